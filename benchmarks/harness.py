"""Runs the work of the rows in child processes, and measures it in rounds.

The sides of a comparison work in turn (A B A B ...), so that a change of the machine's speed affects both. A ratio is
computed within a round. A round before the first one is discarded.
"""

import contextlib
import importlib
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
from zero.storage.manifests import Manifest

WARM_UP_SECONDS = 0.5
"""Maximum length of a measurement in the round that is discarded."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

Result = TypeVar("Result")
Side = Callable[[float], Sample]
"""Works for about that many seconds and returns what it counted."""


class Measure(NamedTuple):
    """A piece of work that is prepared and warm."""

    name: str
    run: Side


class Context(NamedTuple):
    """Settings of all rows."""

    seconds: float  # per measurement
    repeats: int  # rounds
    profile: ProfileParams  # of the networks; one thread
    cores: tuple[int, ...]  # available to the children
    tick: Callable[[], None]  # called after each round


class Measured(NamedTuple):
    """The figures of a row."""

    figure: Spread | None
    rival_figure: Spread | None = None
    ratio: Spread | None = None
    details: tuple[Detail, ...] = ()
    note: str = ""


class Child:
    """A process on its own cores that does the work of `benchmarks.MODULE`. A context manager."""

    def __init__(
        self, module: str, arguments: Manifest, cores: Sequence[int], environment: Mapping[str, str] | None = None
    ) -> None:
        """Starts the process, which calls `prepare(arguments)` of the module, with as many threads as cores."""
        self._module = module
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        # The process inherits both: libraries read their number of threads when they are imported.
        with _affinity(cores), _environment(thread_environment(len(cores)) | dict(environment or {})):
            self._ready = self._pool.submit(_prepare, module, arguments.model_dump_json())

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

    def start(self, measure: str, seconds: float) -> "Future[Sample]":
        """Starts a measurement; `finish` returns its result."""
        self.wait_until_ready()
        return self._pool.submit(_run, measure, seconds)

    def finish(self, measurement: "Future[Sample]") -> Sample:
        """The result of a measurement.

        Raises:
          WorkerError: the process died.
        """
        return self._result(measurement)

    def side(self, measure: str) -> Side:
        """One measure as a side of a comparison."""
        return lambda seconds: self.finish(self.start(measure, seconds))

    def _result(self, future: "Future[Result]") -> Result:
        try:
            return future.result()
        except BrokenProcessPool:
            raise WorkerError(f"the process of benchmark {self._module} died; see its messages above") from None


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


def alone(context: Context, side: Side) -> Measured:
    """A row without a ratio."""
    samples = [samples[0] for samples in _rounds(context, side)]
    return Measured(spread_of([sample.figure for sample in samples]), details=median_details(samples))


def against(context: Context, ours: Side, rival: Side) -> Measured:
    """A row with a ratio of our figure to the rival's."""
    rounds = _rounds(context, ours, rival)
    our_samples, rival_samples = [samples[0] for samples in rounds], [samples[1] for samples in rounds]
    return Measured(
        figure=spread_of([sample.figure for sample in our_samples]),
        rival_figure=spread_of([sample.figure for sample in rival_samples]),
        ratio=spread_of([mine.figure / other.figure for mine, other in rounds]),
        details=median_details(our_samples) + median_details(rival_samples),
    )


def _rounds(context: Context, *sides: Side) -> list[tuple[Sample, ...]]:
    """The samples of each round, by side."""
    for side in sides:
        side(min(context.seconds, WARM_UP_SECONDS))
    rounds = []
    for _ in range(context.repeats):
        rounds.append(tuple(side(context.seconds) for side in sides))
        context.tick()
    return rounds


_measures: dict[str, Measure] = {}
"""The prepared work of a child process."""


def _prepare(module: str, arguments: str) -> int:
    _measures.update({each.name: each for each in importlib.import_module(f"benchmarks.{module}").prepare(arguments)})
    return os.getpid()


def _run(measure: str, seconds: float) -> Sample:
    return _measures[measure].run(seconds)


@contextlib.contextmanager
def _affinity(cores: Sequence[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
