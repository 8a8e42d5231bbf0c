"""The comparison of variants of training, on a small window."""

import pytest
from typer.testing import CliRunner

from benchmarks.recipes import compare, main, table_of
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
    (first, base, no_match), (name, trained, played) = compare(workspace, [VARIANT], 0.3, 4, 2, tmp_path / "out")
    assert (first, no_match, name) == (AS_IT_IS, None, VARIANT)
    assert trained.num_weights > base.num_weights and min(base.steps, trained.steps) > 1
    assert played is not None
    result = played.table.result
    assert result.wins + result.losses + result.draws == 4
    assert table_of([(first, base, no_match), (name, trained, played)]).row_count == 2


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
