"""Measures a row of the table: every side of it works in child processes, each on fixed cores.

The sides of a row take turns (A B A B ...), so that a change of the machine's speed affects both. A ratio is computed
within a round. A round before the first one is discarded.
"""

import contextlib
import os
import pkgutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from multiprocessing import get_context
from time import perf_counter
from typing import Any

from benchmarks.results import FAILED, Row, Side, Spread, gpu_names
from benchmarks.setting import params_of
from zero.errors import ZeroError
from zero.players.gtp_process import program_path

WARM_UP_SECONDS = 0.5
"""Maximum length of a measurement in the round that is discarded."""
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Environment of the children: libraries read it when they are imported. Torch gets its number from the parameters."""

Work = Callable[[float], float]
"""Works for about that many seconds and returns its figure, such as evaluations per second."""
Profile = Mapping[str, Any]
"""Changed fields of section `profile`, for the sides on the CPU."""


def measure(row: Row, profile: Profile, seconds: float, repeats: int) -> Row:
    """Measures a row, `seconds` for each side and round. An error becomes its note, so that the others are measured."""
    if note := missing(row):
        return row.model_copy(update={"note": note})
    try:
        with contextlib.ExitStack() as stack:
            sides = [stack.enter_context(started(side, profile)) for side in (row.ours, row.against) if side]
            for side in sides:
                side(min(seconds, WARM_UP_SECONDS))
            rounds = [[side(seconds) for side in sides] for _ in range(repeats)]
    except (ZeroError, BrokenProcessPool) as error:
        return row.model_copy(update={"note": f"{FAILED}{error}"})
    figure, *rival = (spread_of(figures) for figures in zip(*rounds, strict=True))
    changes = {"figure": figure}
    if rival:
        changes |= {"rival_figure": rival[0], "ratio": spread_of([mine / theirs for mine, theirs in rounds])}
    return row.model_copy(update=changes)


def missing(row: Row) -> str:
    """What this machine lacks to measure a row; empty if nothing."""
    for name, remedy in row.needs.items():
        if not (gpu_names() if name == "GPU" else program_path(name) or find_spec(name)):
            return f"no {name} ({remedy})"
    needed = max(sum(side.cores) for side in (row.ours, row.against) if side)
    return f"fewer than {needed} cores" if needed > len(os.sched_getaffinity(0)) else ""


@contextlib.contextmanager
def started(side: Side, profile: Profile) -> Iterator[Work]:
    """The processes of a side, when their work is prepared.

    Raises:
      ZeroError: the work cannot be prepared.
      BrokenProcessPool: a process died; also raised by the work.
    """
    free = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        pools = []
        for num_cores in side.cores:
            cores = [free.pop() for _ in range(num_cores or len(free))]
            pools.append(stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))))
            pools[-1].submit(_prepare, side, profile, cores).result()

        def work(seconds: float) -> float:
            running = [pool.submit(_measure, seconds) for pool in pools]
            return sum(each.result() for each in running)

        yield work


def rate(step: Callable[[], int], seconds: float) -> float:
    """What `step` counts per second, over calls for some seconds, at least one."""
    count, begun = 0, perf_counter()
    while True:
        count += step()
        if (elapsed := perf_counter() - begun) >= seconds:
            return count / elapsed


def spread_of(values: Sequence[float]) -> Spread:
    """Median and range."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


_prepared: list[Work] = []
"""The work of a child process."""


def _prepare(side: Side, profile: Profile, cores: Sequence[int]) -> None:
    os.sched_setaffinity(0, cores)  # before there are other threads, which inherit it
    prepare: Callable[..., Work] = pkgutil.resolve_name(f"benchmarks.{side.work}")
    _prepared.append(prepare(params_of(side, profile), **side.arguments))


def _measure(seconds: float) -> float:
    return _prepared[0](seconds)
