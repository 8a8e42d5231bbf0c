"""Runs the work of the rows in child processes, and measures it in rounds.

The sides of a comparison work in turn (A B A B ...), so that a change of the machine's speed affects both. A ratio is
computed within a round. A round before the first one is discarded.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from benchmarks.results import Detail, Sample, Spread, median_details, spread_of
from zero.config.params import ProfileParams
from zero.errors import WorkerError

WARM_UP_SECONDS = 0.5
"""Maximum length of a measurement in the round that is discarded."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

Result = TypeVar("Result")
Side = Callable[[float], Sample]
"""Works for about that many seconds and returns what it counted."""
Sides = dict[str, Side]
"""Work that is prepared and warm, by name."""


class Context(NamedTuple):
    """Settings of all rows."""

    seconds: float  # per measurement
    repeats: int  # rounds
    profile: ProfileParams  # of the networks; one thread
    cores: tuple[int, ...]  # available to the children


class Measured(NamedTuple):
    """The figures of a row."""

    figure: Spread | None
    rival_figure: Spread | None = None
    ratio: Spread | None = None
    details: tuple[Detail, ...] = ()
    note: str = ""


class Child:
    """A process on its own cores that does some work. A context manager."""

    def __init__(
        self,
        prepare: Callable[..., Sides],
        *arguments: object,
        cores: Sequence[int],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the process, which calls `prepare(*arguments)`, with as many threads as cores."""
        self._name = prepare.__module__
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        # The process inherits both: libraries read their number of threads when they are imported.
        with _starting_on(cores, thread_environment(len(cores)) | dict(variables or {})):
            self._ready = self._pool.submit(_prepare, prepare, arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def wait_until_ready(self) -> int:
        """Waits until the work is prepared; returns the process id.

        Raises:
          WorkerError: the process died.
          ZeroError: the work cannot be prepared.
        """
        return self._result(self._ready)

    def start(self, side: str, seconds: float) -> Callable[[], Sample]:
        """Starts a measurement; the returned function waits for its result. Raises as `wait_until_ready` does."""
        self.wait_until_ready()
        measurement = self._pool.submit(_run, side, seconds)
        return lambda: self._result(measurement)

    def side(self, side: str) -> Side:
        """A side of a comparison."""
        return lambda seconds: self.start(side, seconds)()

    def _result(self, future: "Future[Result]") -> Result:
        try:
            return future.result()
        except BrokenProcessPool:
            raise WorkerError(f"the process of {self._name} died; see its messages above") from None


def thread_environment(num_threads: int) -> dict[str, str]:
    """Environment variables that limit the threads of libraries."""
    return dict.fromkeys(THREAD_VARIABLES, str(num_threads))


def rate(step: Callable[[], int], seconds: float) -> float:
    """What `step` counts per second, over calls for some seconds, at least one."""
    count = 0
    started = time.perf_counter()
    while True:
        count += step()
        if (elapsed := time.perf_counter() - started) >= seconds:
            return count / elapsed


def not_measured(why: str) -> Measured:
    """A row that cannot be measured on this machine."""
    return Measured(None, note=why)


def compare(context: Context, ours: Side, rival: Side | None = None) -> Measured:
    """Measures a row in rounds. With a rival, the row has the ratio of our figure to the rival's."""
    sides = [ours] if rival is None else [ours, rival]
    for side in sides:
        side(min(context.seconds, WARM_UP_SECONDS))
    rounds = [[side(context.seconds) for side in sides] for _ in range(context.repeats)]
    our_samples, *others = zip(*rounds, strict=True)
    figure, details = spread_of([sample.figure for sample in our_samples]), median_details(our_samples)
    if not others:
        return Measured(figure, details=details)
    rival_figure = spread_of([sample.figure for sample in others[0]])
    ratio = spread_of([mine.figure / theirs.figure for mine, theirs in rounds])
    return Measured(figure, rival_figure, ratio, details + median_details(others[0]))


_sides: Sides = {}
"""The prepared work of a child process."""


def _prepare(prepare: Callable[..., Sides], arguments: tuple[object, ...]) -> int:
    _sides.update(prepare(*arguments))
    return os.getpid()


def _run(side: str, seconds: float) -> Sample:
    return _sides[side](seconds)


@contextlib.contextmanager
def _starting_on(cores: Sequence[int], variables: Mapping[str, str]) -> Iterator[None]:
    """Cores and environment variables for the processes that start in the block."""
    affinity, environment = os.sched_getaffinity(0), dict(os.environ)
    os.sched_setaffinity(0, cores)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)
        for name in variables.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
