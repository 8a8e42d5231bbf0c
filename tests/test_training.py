"""Stage training: the same bytes each time, also when it was interrupted."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.made_games import made_params, write_games, write_params, write_workspace
from zero import replay
from zero.artifacts import Checkpoint, checked_path, read_manifest
from zero.errors import ParamsError, StorageError
from zero.network.learner import StepResult
from zero.network.weights import load_network
from zero.params import LearningRateStep, NetworkParams, Params
from zero.training import curve_line, run

OUTS = (
    "models/challenger/manifest.json",
    "models/challenger/optimizer.safetensors",
    "models/challenger/weights.safetensors",
    "metrics/training.json",
    "plots/training.csv",
)


class KilledError(Exception):
    """Stands for the end of the process."""


def workspace(folder: Path, params: Params) -> Path:
    write_workspace(folder, params)
    replay.run(folder)
    return folder


def outs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OUTS}


def trained(folder: Path, params: Params) -> dict[str, bytes]:
    run(workspace(folder, params))
    return outs(folder)


def kill_at(step: int):
    def progress(done: int, total: int) -> None:
        if done == step:
            raise KilledError

    return progress


def curve(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "plots/training.csv").read_text().splitlines()))


def leftovers(folder: Path) -> list[Path]:
    return list((folder / ".zero").glob("training-*"))


@pytest.mark.parametrize(
    "training",
    [{}, {"optimizer": "adam"}, {"kl_target": 0.001}, {"random_symmetry": False}],
    ids=["sgd", "adam", "kl", "plain"],
)
def test_two_runs_give_the_same_bytes(tmp_path, training):
    params = made_params(**training)
    assert trained(tmp_path / "a", params) == trained(tmp_path / "b", params)


def test_two_threads_give_the_same_bytes_each_time(tmp_path):
    params = made_params(batch_size=64)
    params = params.model_copy(update={"profile": params.profile.model_copy(update={"training_threads": 2})})
    assert trained(tmp_path / "a", params) == trained(tmp_path / "b", params)


def test_another_seed_gives_other_weights(tmp_path):
    one = trained(tmp_path / "a", made_params())
    other = trained(tmp_path / "b", made_params().model_copy(update={"seed": 2}))
    assert one["models/challenger/weights.safetensors"] != other["models/challenger/weights.safetensors"]


@pytest.mark.parametrize("training", [{"kl_target": 0.001}, {"optimizer": "adam"}, {"momentum": 0.0}])
@pytest.mark.parametrize("kill_step", [4, 7, 9])
def test_interrupted_training_goes_on_to_the_same_bytes(tmp_path, training, kill_step):
    params = made_params(**training)
    straight = trained(tmp_path / "straight", params)
    folder = workspace(tmp_path / "killed", params)
    with pytest.raises(KilledError):
        run(folder, kill_at(kill_step))
    assert not (folder / "models/challenger/manifest.json").exists()
    assert len(leftovers(folder)) == 1
    steps: list[int] = []
    run(folder, lambda done, total: steps.append(done))
    assert steps == list(range(kill_step // 4 * 4 + 1, 11)), "it went on from the last checkpoint"
    assert outs(folder) == straight
    assert not leftovers(folder)


def test_a_broken_checkpoint_is_not_used(tmp_path):
    straight = trained(tmp_path / "straight", made_params())
    folder = workspace(tmp_path / "killed", made_params())
    with pytest.raises(KilledError):
        run(folder, kill_at(6))
    (weights,) = leftovers(folder)[0].glob("weights-*")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    steps: list[int] = []
    run(folder, lambda done, total: steps.append(done))
    assert steps[0] == 1
    assert outs(folder) == straight


def test_a_checkpoint_of_other_parameters_is_not_used(tmp_path):
    params = made_params(weight_decay=0.01)
    straight = trained(tmp_path / "straight", params)
    folder = workspace(tmp_path / "killed", made_params())
    with pytest.raises(KilledError):
        run(folder, kill_at(6))
    write_params(folder, params)
    replay.run(folder)
    run(folder)
    assert outs(folder) == straight
    assert not leftovers(folder)


def test_the_next_generation_goes_on_with_weights_optimizer_and_schedule(tmp_path):
    rates = (LearningRateStep(from_step=0, learning_rate=0.02), LearningRateStep(from_step=15, learning_rate=0.002))
    params = made_params(learning_rate=rates)
    folder = workspace(tmp_path, params)
    first = run(folder)
    shutil.rmtree(folder / "state/trainee")
    shutil.copytree(folder / "models/challenger", folder / "state/trainee")
    shutil.rmtree(folder / "state/replay")
    shutil.copytree(folder / "data/window", folder / "state/replay")
    write_games(folder, 2)
    replay.run(folder)
    second = run(folder)
    assert (first.step, second.step) == (10, 20)
    lines = curve(folder)
    assert [(line["step"], line["learning_rate"]) for line in lines] == [
        ("12", "0.02"),
        ("15", "0.02"),
        ("18", "0.002"),
        ("20", "0.002"),
    ]


def test_the_challenger_is_described_by_its_manifest(tmp_path):
    folder = workspace(tmp_path, made_params())
    checkpoint = run(folder)
    directory = folder / "models/challenger"
    assert checkpoint == read_manifest(directory, Checkpoint)
    model = load_network(checked_path(checkpoint.weights, directory).read_bytes())
    checked_path(checkpoint.optimizer, directory)
    assert model.spec.network == checkpoint.network == made_params().network
    assert set(checkpoint.origin.inputs) == {"data/window", "state/trainee"}
    assert sorted(path.name for path in directory.iterdir()) == [
        "manifest.json",
        "optimizer.safetensors",
        "weights.safetensors",
    ]


def test_the_metrics_are_the_last_line_of_the_curve(tmp_path):
    run(workspace(tmp_path, made_params()))
    lines = curve(tmp_path)
    metrics = json.loads((tmp_path / "metrics/training.json").read_text())
    assert [line["step"] for line in lines] == ["3", "6", "9", "10"]
    assert list(lines[0]) == list(StepResult._fields)
    for name, value in lines[-1].items():
        assert metrics[name] == pytest.approx(float(value), rel=1e-5)
    assert (metrics["num_samples"], metrics["window_games"]) == (80, 6)


def test_training_lowers_the_loss(tmp_path):
    run(workspace(tmp_path, made_params(num_steps=60, batch_size=32, log_interval=10)))
    losses = [float(line["loss"]) for line in curve(tmp_path)]
    assert losses[-1] < losses[0] - 0.1


def test_a_line_is_the_mean_of_its_steps_and_has_the_last_rate():
    steps = [StepResult(step, *np.arange(6) + step) for step in (4, 6)]
    line = curve_line(steps)
    assert line == StepResult(6, 5.0, 6.0, 7.0, 9.0, 9.0, 10.0)
    assert isinstance(line.step, int)


def test_another_network_than_the_trainee_is_refused(tmp_path):
    folder = workspace(tmp_path, made_params())
    network = NetworkParams(tower="residual", heads="joint", num_blocks=1, num_channels=8, value_hidden=5)
    write_params(folder, made_params().model_copy(update={"network": network}))
    with pytest.raises(ParamsError, match=r"network\.num_channels = 8, but the trainee has 4"):
        run(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors"])
def test_an_altered_trainee_is_refused(tmp_path, name):
    folder = workspace(tmp_path, made_params())
    path = folder / "state/trainee" / name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match=f"{name} was altered"):
        run(folder)
    assert not (folder / "models").exists()


def test_a_missing_window_is_refused(tmp_path):
    write_workspace(tmp_path, made_params())
    with pytest.raises(StorageError, match=r"no .*data/window/manifest\.json"):
        run(tmp_path)
