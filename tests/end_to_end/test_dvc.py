"""DVC's own commands on a recorded lineage, as `docs/dvc.md` shows them: differences, plots, experiments."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import dvc, git, zero

GENERATIONS = ("tiny/gen-0001", "tiny/gen-0002")


def test_differences_of_metrics_and_parameters_are_those_of_the_generations(recorded: Lineage) -> None:
    metrics = json.loads(dvc(recorded.workspace, "metrics", "diff", "--json", *GENERATIONS).stdout)
    losses = [json.loads(recorded.show(tag, "metrics/training.json"))["loss"] for tag in GENERATIONS]
    loss = metrics["metrics/training.json"]["loss"]
    assert [loss["old"], loss["new"]] == losses
    params = json.loads(dvc(recorded.workspace, "params", "diff", "--json", *GENERATIONS).stdout)
    assert params["params.yaml"]["gating.threshold"] == {"old": 0.0, "new": 1.0, "diff": 1.0}


def test_plots_show_two_generations_over_each_other(recorded: Lineage) -> None:
    plots = json.loads(dvc(recorded.workspace, "plots", "diff", "--json", *GENERATIONS).stdout)["data"]
    of_games = {"plots/lengths.csv": ("moves", "games"), "plots/values.csv": ("value", "outcome")}
    of_training = {"plots/training.csv": "loss", "policy loss": "policy_loss", "value loss": "value_loss"}
    axes = of_games | {name: ("step", metric) for name, metric in of_training.items()}
    assert plots.keys() == axes.keys()
    for name, (x, y) in axes.items():
        (plot,) = plots[name]
        assert plot["revisions"] == list(GENERATIONS)
        drawn = [row for row in plot["content"]["data"]["values"] if row["rev"] == GENERATIONS[1]]
        assert plot["content"]["encoding"]["x"]["field"] == x and all(y in row for row in drawn)
        if y.endswith("loss"):
            assert drawn[0][x] == 0, "the steps of the lineage would put the curves side by side"


@pytest.fixture(scope="module")
def checkout(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of a generation with an experiment in it."""
    folder = Path(tmp_path_factory.mktemp("checkout")) / "copy"
    zero(recorded.home, "checkout", GENERATIONS[1], str(folder))
    dvc(folder, "exp", "run", "--name", "larger-batches", "-S", "training.batch_size=16", "training")
    return folder


def test_an_experiment_changes_the_training_and_nothing_before_it(checkout: Path) -> None:
    assert set(git(checkout, "diff", "--name-only").split()) == {
        *("dvc.lock", "metrics/training.json", "params.yaml", "plots/training.csv")
    }


def test_an_experiment_can_be_compared_with_its_generation(checkout: Path) -> None:
    found = json.loads(dvc(checkout, "exp", "diff", "--json", GENERATIONS[1], "larger-batches").stdout)
    assert found["params"]["params.yaml"]["training.batch_size"]["new"] == 16
    assert found["metrics"]["metrics/training.json"]["num_samples"]["diff"] == -16 * 12
    plots = json.loads(dvc(checkout, "plots", "diff", "--json", GENERATIONS[1], "larger-batches").stdout)["data"]
    assert plots["value loss"][0]["revisions"] == [GENERATIONS[1], "larger-batches"]
