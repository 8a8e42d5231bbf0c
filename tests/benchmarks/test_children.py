"""Children that do the work of a side."""

import os
import time
from pathlib import Path

import pytest

from benchmarks.children import Child
from benchmarks.search import SearchWork, search_work
from benchmarks.selfplay import SelfplayWork, one_by_one, together
from tests.benchmarks.runs import short_context
from tests.parameters import preset
from zero.errors import WorkerError

CORE = max(os.sched_getaffinity(0))


@pytest.fixture
def work() -> SearchWork:
    return search_work(short_context(), "zero", 0.0).model_copy(update={"num_games": 2})


def test_a_child_works_on_its_core_as_often_as_it_is_asked_and_ends_with_its_block(work):
    with Child("search", work, [CORE]) as child:
        first, second = child.run("search", 0.01), child.side("search")(0.01)
        assert first.figure > 0 and second.figure > 0
        process = Path(f"/proc/{child.pid}")
        threads = [(task / "status").read_text() for task in (process / "task").iterdir()]
        assert threads and all(f"Cpus_allowed_list:\t{CORE}\n" in status for status in threads)
        assert b"OMP_NUM_THREADS=1\0" in (process / "environ").read_bytes()
    assert not process.exists()


def test_two_children_work_at_once_or_one_by_one(work):
    with Child("search", work, [CORE]) as first, Child("search", work, [CORE]) as second:
        for child in (first, second):
            child.wait_until_ready()
        started = time.perf_counter()
        together((first, second), "search", 1.5)
        at_once = time.perf_counter() - started
        one_by_one((first, second), "search", 1.5)
        assert at_once < time.perf_counter() - started - at_once
        rates = [child.run("search", 0.1).figure for child in (first, second)]
        assert min(rates) / 10 < one_by_one((first, second), "search", 0.1).figure < 10 * max(rates)


def test_a_child_that_cannot_do_its_work_says_why(work):
    with Child("against_pgx", work, [CORE]) as child, pytest.raises(WorkerError, match="benchmark against_pgx"):
        child.wait_until_ready()


def test_an_error_of_the_work_comes_back_in_its_words():
    params = preset("go9-gpu")  # no test machine is expected to have a GPU
    broken = params.model_copy(update={"profile": params.profile.model_copy(update={"device": "cuda"})})
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here, so that asking for one is no error")
    with (
        Child("selfplay", SelfplayWork(params=broken), [CORE]) as child,
        pytest.raises(WorkerError, match=r"benchmark selfplay: profile\.device = 'cuda', but torch finds no CUDA"),
    ):
        child.run("raw", 0.01)


def test_a_child_that_is_killed_is_an_error_and_not_a_wait(work):
    with Child("search", work, [CORE]) as child:
        child.wait_until_ready()
        os.kill(child.pid, 9)
        with pytest.raises(WorkerError, match="child of benchmark search ended with status -9: it said nothing"):
            child.run("search", 0.01)
