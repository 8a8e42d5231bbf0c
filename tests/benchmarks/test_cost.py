"""The computed cost of presets: against the measured cost of `go9-laptop`, in the documentation, and in the presets."""

from pathlib import Path

import pytest

from benchmarks.cost import CPU, GPU, MINUTE, PLANS, cost, main, params_of, table
from tests.benchmarks.commands import cells, exit_status

ROOT = Path(__file__).parents[2]
SELFPLAY_EVALUATIONS, MATCH_EVALUATIONS, SECONDS = 3.838e6, 1.286e6, 231
"""Of a generation of `go9-laptop`, the mean of six of seed 12 (RESULTS.md, 2026-11-28)."""
ON_A_GPU = [name for name, plan in PLANS.items() if plan.machine is GPU]


def test_the_cost_of_go9_laptop_is_near_the_measured_one():
    found = cost(params_of("go9-laptop"), CPU)
    assert found.selfplay_evaluations == pytest.approx(SELFPLAY_EVALUATIONS, rel=0.05)
    assert found.match_evaluations == pytest.approx(MATCH_EVALUATIONS, rel=0.05)
    assert found.seconds == pytest.approx(SECONDS, rel=0.1)


def test_the_documentation_has_the_computed_table():
    assert table(list(PLANS)) in (ROOT / "docs/gpu.md").read_text()


@pytest.mark.parametrize(("name", "minutes"), [("go9-gpu", 20), ("go13-gpu", 240), ("go19-gpu-small", 540)])
def test_a_plan_fits_its_time(name, minutes):
    assert cost(params_of(name), GPU).seconds * PLANS[name].generations <= minutes * MINUTE


@pytest.mark.parametrize("name", ON_A_GPU)
def test_the_learning_rates_fit_the_plan(name):
    training = params_of(name).training
    drops = [entry.from_step / (training.num_steps * PLANS[name].generations) for entry in training.learning_rate]
    planned = [0, 1 / 2, 2 / 3, 5 / 6] if name == "go9-gpu" else [0, 1 / 3, 2 / 3, 0.9]
    assert drops == pytest.approx(planned, abs=0.02)


def test_a_given_rate_replaces_that_of_the_gpu_and_a_preset_without_a_plan_is_one_line(monkeypatch, capsys):
    for words, status in ((["go9-gpu", "--evaluations", "100000"], 0), (["go9-paper"], 1)):
        assert exit_status(monkeypatch, main, "cost", *words) == status
    out, error = capsys.readouterr()
    assert ["evaluations/s in self-play", "100,000"] in cells(out)
    assert error == f"cost: no plan for 'go9-paper'; presets with a plan: {', '.join(PLANS)}\n"
