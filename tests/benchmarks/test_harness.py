"""Rounds of a comparison, and the child processes that do the work."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmarks import harness, search, selfplay
from benchmarks.harness import Child, Context, compare, rate
from benchmarks.results import Detail, Sample
from benchmarks.search import search_params
from benchmarks.selfplay import one_by_one, together
from tests.benchmarks.runs import short_context
from tests.clock import Clock
from tests.parameters import preset
from zero.errors import WorkerError, ZeroError

CORE = max(os.sched_getaffinity(0))


class Turns:
    """Sides with given figures, and the order of their calls."""

    def __init__(self) -> None:
        self.order: list[tuple[str, float]] = []

    def side(self, name: str, *figures: float):
        coming = iter(figures)

        def run(seconds: float) -> Sample:
            self.order.append((name, seconds))
            figure = next(coming)
            return Sample(figure=figure, details=(Detail(name=name, value=2 * figure, unit="s"),))

        return run


@pytest.fixture
def turns():
    return Turns()


def context(repeats: int) -> Context:
    return short_context(repeats)._replace(seconds=4.0)


def test_sides_alternate_after_a_short_round(turns):
    compare(context(2), turns.side("ours", 9, 1, 1), turns.side("rival", 9, 1, 1))
    assert turns.order == [
        *(("ours", 0.5), ("rival", 0.5)),
        *(("ours", 4.0), ("rival", 4.0), ("ours", 4.0), ("rival", 4.0)),
    ]


def test_a_ratio_is_computed_within_a_round(turns):
    measured = compare(context(3), turns.side("ours", 1000, 10, 60, 90), turns.side("rival", 1, 10, 20, 90))
    assert measured.ratio is not None and measured.figure is not None and measured.rival_figure is not None
    assert (measured.ratio.low, measured.ratio.median, measured.ratio.high) == (1.0, 1.0, 3.0)
    assert measured.figure.median / measured.rival_figure.median == 3.0  # the ratio of the medians
    assert [(detail.name, detail.value) for detail in measured.details] == [("ours", 120), ("rival", 40)]


def test_a_row_without_a_rival_has_no_ratio(turns):
    measured = compare(context(3), turns.side("ours", 1000, 10, 60, 90))
    assert measured.figure is not None
    assert (measured.figure.low, measured.figure.median, measured.figure.high) == (10, 60, 90)
    assert measured.ratio is None and measured.rival_figure is None


def test_a_rate_is_a_count_per_second(monkeypatch):
    monkeypatch.setattr(harness, "time", Clock())
    steps = iter([3, 4, 5])
    assert rate(lambda: next(steps), 3.0) == (3 + 4 + 5) / 3
    assert rate(lambda: 7, 0.0) == 7.0, "at least one step"


@pytest.fixture
def work():
    return search.prepare, search_params(short_context(), 0.0), 2


def test_a_child_stays_on_its_core_and_ends_with_its_block(work):
    affinity = os.sched_getaffinity(0)
    with Child(*work, cores=[CORE]) as child:
        first, second = child.side("search")(0.01), child.side("search")(0.01)
        assert first.figure > 0 and second.figure > 0
        process = Path(f"/proc/{child.wait_until_ready()}")
        threads = [(task / "status").read_text() for task in (process / "task").iterdir()]
        assert threads and all(f"Cpus_allowed_list:\t{CORE}\n" in status for status in threads)
        assert b"OMP_NUM_THREADS=1\0" in (process / "environ").read_bytes()
    assert not process.exists()
    assert os.sched_getaffinity(0) == affinity


def test_two_children_work_at_the_same_time_or_one_by_one(work):
    with Child(*work, cores=[CORE]) as first, Child(*work, cores=[CORE]) as second:
        for child in (first, second):
            child.wait_until_ready()
        started = time.perf_counter()
        together((first, second), "search", 0.4)
        at_once = time.perf_counter() - started
        one_by_one((first, second), "search", 0.4)
        assert at_once < time.perf_counter() - started - at_once


def test_an_error_of_the_work_is_raised_in_the_parent():
    params = preset("go9-gpu")
    broken = params.model_copy(update={"profile": params.profile.model_copy(update={"device": "cuda"})})
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, so that the request is not an error")
    with (
        Child(selfplay.prepare, broken, cores=[CORE]) as child,
        pytest.raises(ZeroError, match=r"profile\.device = 'cuda', but torch finds no CUDA"),
    ):
        child.side("raw")(0.01)


def test_a_killed_child_is_an_error(work):
    with Child(*work, cores=[CORE]) as child:
        os.kill(child.wait_until_ready(), signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"the process of benchmarks\.search died"):
            child.side("search")(0.01)
