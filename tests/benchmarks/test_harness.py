"""Rounds of a comparison, and the child processes that do the work."""

import contextlib
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import measure, rate, spread_of, started
from benchmarks.results import FAILED, Row, Side
from benchmarks.setting import ON_CPU
from tests.clock import Clock
from zero.errors import WorkerError

OURS, RIVAL = Side(work="ours"), Side(work="rival")
ROW = Row(name="row", work="", unit="s", ours=OURS, against=RIVAL)
PROCESS = Side(work="search:memory")


@pytest.fixture
def turns(monkeypatch):
    """The order in which made sides work; their figures are set by the test."""
    order: list[tuple[str, float]] = []
    figures: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def made(side, profile):
        def work(seconds):
            order.append((side.work, seconds))
            return figures[side.work].pop(0)

        yield work

    monkeypatch.setattr(harness, "started", made)
    return order, figures


def test_sides_alternate_after_a_short_round(turns):
    order, figures = turns
    figures |= {"ours": [9, 1, 1], "rival": [9, 1, 1]}
    measure(ROW, ON_CPU, 4.0, 2)
    assert order == [*(("ours", 0.5), ("rival", 0.5)), *(("ours", 4.0), ("rival", 4.0), ("ours", 4.0), ("rival", 4.0))]


def test_a_ratio_is_computed_within_a_round(turns):
    turns[1].update(ours=[1000, 10, 60, 90], rival=[1, 10, 20, 90])
    measured = measure(ROW, ON_CPU, 4.0, 3)
    assert measured.ratio is not None and measured.figure is not None and measured.rival_figure is not None
    assert (measured.ratio.low, measured.ratio.median, measured.ratio.high) == (1.0, 1.0, 3.0)
    assert measured.figure.median / measured.rival_figure.median == 3.0  # the ratio of the medians


def test_a_row_without_a_rival_has_no_ratio(turns):
    turns[1].update(ours=[1000, 10, 60, 90])
    measured = measure(ROW.model_copy(update={"against": None}), ON_CPU, 4.0, 3)
    assert measured.figure == spread_of([10, 60, 90])
    assert measured.ratio is None and measured.rival_figure is None


def test_a_row_that_fails_or_cannot_be_measured_has_a_note(monkeypatch):
    def fail(side, profile):
        raise WorkerError("the child died")

    monkeypatch.setattr(harness, "started", fail)
    assert measure(ROW, ON_CPU, 0.01, 1).note == f"{FAILED}the child died"
    needy = ROW.model_copy(update={"needs": {"no-such-program": "an apt package"}})
    assert measure(needy, ON_CPU, 0.01, 1).note == "no no-such-program (an apt package)"
    many = ROW.model_copy(update={"ours": Side(work="ours", cores=(1, 10_000))})
    assert measure(many, ON_CPU, 0.01, 1).note == "fewer than 10001 cores"


def test_a_rate_is_a_count_per_second(monkeypatch):
    monkeypatch.setattr(harness, "perf_counter", Clock().perf_counter)
    steps = iter([3, 4, 5])
    assert rate(lambda: next(steps), 3.0) == (3 + 4 + 5) / 3
    assert rate(lambda: 7, 0.0) == 7.0, "at least one step"


def test_a_child_stays_on_its_core_and_ends_with_its_block():
    affinity = os.sched_getaffinity(0)
    before = children()
    with started(PROCESS, ON_CPU) as work:
        assert work(0.01) == work(0.01) > 0.0
        (child,) = {pid for pid in children() - before if b"resource_tracker" not in command_of(pid)}
        assert os.sched_getaffinity(child) == {max(affinity)}
    assert not Path(f"/proc/{child}").exists()
    assert os.sched_getaffinity(0) == affinity


def test_the_figures_of_several_processes_are_added():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    with started(PROCESS, ON_CPU) as one, started(PROCESS.model_copy(update={"cores": (1, 1)}), ON_CPU) as two:
        assert two(0.01) == 2 * one(0.01)


def test_a_killed_child_is_an_error():
    before = children()
    with started(PROCESS, ON_CPU) as work:
        for pid in children() - before:
            if b"resource_tracker" not in command_of(pid):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            work(0.01)


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
