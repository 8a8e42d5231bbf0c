"""The comparison of variants of training, on a small window."""

import pytest
from typer.testing import CliRunner

from benchmarks.recipes import compare, main
from benchmarks.setting import AS_IT_IS, changed
from tests.made_games import made_params, write_params, write_workspace
from zero.config.params import LearningRateStep
from zero.errors import ParamsError
from zero.stages import replay
from zero.storage.store import Store

VARIANT = "network.num_channels=6,training.optimizer=adam,training.rate=0.002"


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    write_workspace(folder, made_params())
    replay.run(folder, Store(str(tmp_path / "store")))
    return folder


def test_variants_train_for_the_same_time_and_play_a_match(workspace, tmp_path):
    table = compare(workspace, [VARIANT], 0.3, 4, 2, tmp_path / "out")
    cells = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert cells["variant"] == [AS_IT_IS, VARIANT]
    weights, steps = ([int(cell.replace(",", "")) for cell in cells[name]] for name in ("weights", "steps"))
    assert weights[1] > weights[0] and min(steps) > 1
    before, played = cells["wins-losses-draws"]
    assert before == "" and sum(map(int, played.split("-"))) == 4


def test_a_variant_changes_only_what_it_names():
    params = made_params()
    new = changed(params, VARIANT)
    assert (new.network.num_channels, new.training.optimizer) == (6, "adam")
    assert new.training.learning_rate == (LearningRateStep(from_step=0, learning_rate=0.002),)
    network = new.network.model_copy(update={"num_channels": params.network.num_channels})
    training = params.training.model_copy(update={"optimizer": "adam", "learning_rate": new.training.learning_rate})
    assert new.model_copy(update={"network": network}) == params.model_copy(update={"training": training})
    assert changed(params, AS_IT_IS) == params


@pytest.mark.parametrize(("section", "field"), [("network", "pooled_heads"), ("selfplay", "overlap")])
def test_optional_parameters_can_be_changed(section, field):
    assert getattr(getattr(changed(made_params(), f"{section}.{field}=true"), section), field) is True


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("network.num_chanels=6", "unknown parameter 'network.num_chanels'"),
        ("seed=6", "unknown parameter 'seed'"),
        ("training.batch_size=-1", "greater than"),
    ],
)
def test_an_invalid_variant_is_an_error(variant, message):
    with pytest.raises(ParamsError, match=message):
        changed(made_params(), variant)


def test_a_folder_without_a_window_is_one_line(tmp_path):
    import typer

    app = typer.Typer()
    app.command()(main)
    write_params(tmp_path, made_params())
    done = CliRunner().invoke(app, [str(tmp_path), "training.batch_size=4", "--seconds", "0.1"])
    assert done.exit_code == 1 and done.output.splitlines()[-1].startswith("recipes: ")
