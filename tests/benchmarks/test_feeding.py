"""The fake device, and the measurement of the search beside it."""

import time

import numpy as np
import pytest
import typer

from benchmarks.feeding import FakeDevice, fed, law_text, main, new_row, predicted
from benchmarks.harness import spread_of
from benchmarks.results import Row, read_results
from benchmarks.setting import changed, params_of
from tests.benchmarks.commands import cells
from tests.parameters import preset
from zero.errors import ParamsError
from zero.search.evaluator import AsyncEvaluator

LATENCY = {"fixed_us": 100.0, "position_us": 2.0}


def test_a_fake_device_answers_after_its_time_and_not_from_arrays_that_the_caller_overwrites():
    params = preset("smoke")
    device = FakeDevice(params, fixed=0.01, position=0.005)
    assert isinstance(device, AsyncEvaluator)
    planes, prior, value = np.ones((4, 17, 1), np.uint64), np.zeros((4, 26), np.float32), np.zeros(4, np.float32)
    begun = time.perf_counter()
    device.submit(planes, prior, value)
    assert not prior.any(), "the answer comes with `wait`"
    device.wait()
    assert time.perf_counter() - begun >= 0.03
    np.testing.assert_allclose(prior.sum(axis=1), 1.0, rtol=1e-5)
    assert len(set(value.tolist())) == 4 and np.abs(value).max() <= 0.5
    again = np.zeros_like(prior)
    device.evaluate(planes, again, value)
    assert np.array_equal(again, prior)


@pytest.mark.parametrize(
    "changes", ["", "profile.half_batches=true", "profile.half_batches=true,profile.search_threads=3"]
)
def test_the_loop_of_a_shard_is_fed_by_a_fake_device(changes):
    params = changed(preset("smoke"), changes)
    figure = fed(params, 1000.0, 0.0)(0.05)
    assert 0 < figure <= 1000 * params.selfplay.num_slots, "a batch takes a millisecond or more"


def test_a_row_has_the_games_of_all_processes_and_the_limit_of_its_devices():
    row = new_row("go9-gpu", 2, 1, 1024, True, LATENCY)
    assert row.ours is not None and row.rival_figure is not None
    params = params_of(row.ours, {"device": "cpu"})
    assert (params.selfplay.num_slots, params.profile.half_batches, row.ours.cores) == (512, True, (1, 1))
    assert row.rival_figure.median == pytest.approx(2 * 256 / (100e-6 + 256 * 2e-6))


@pytest.mark.parametrize(
    ("one", "two", "eight"),
    [(100, 200, 800), (100, 100, 100), (100, 90, 100), (100, 250, 800), (100, 100 / 0.6, 100 / 0.3)],
)
def test_the_law_continues_the_figures_of_one_core_and_two(one, two, eight):
    assert predicted(one, two, 1) == pytest.approx(one)
    assert predicted(one, two, 8) == pytest.approx(eight)


def test_a_prediction_needs_both_figures():
    figures = {"1x1-64-double": 100.0, "1x2-64-double": 200.0, "1x1-64-single": 50.0, "2x1-64-double": None}
    rows = [
        Row(name=name, work="", unit="", figure=None if x is None else spread_of([x])) for name, x in figures.items()
    ]
    assert cells(law_text(rows))[2:] == [["64-double", "threads", "100", "200", "400", "800", "1,600"]]


def test_the_command_measures_each_setting(tmp_path):
    with pytest.raises(typer.Exit) as end:
        main("1", "1", "16", preset="smoke", seconds=0.02, repeats=1, out=tmp_path / "out.json")
    assert not end.value.exit_code
    rows = read_results(tmp_path / "out.json").rows
    assert [row.name for row in rows] == ["1x1-16-single", "1x1-16-double"]
    assert all(row.figure and row.figure.median > 0 for row in rows)
    with pytest.raises(ParamsError, match="--threads 'one': give whole numbers separated by commas"):
        main("1", "one", "16")
