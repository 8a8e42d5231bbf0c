"""Stage training: the same bytes each time, also after an interruption."""

import contextlib
import csv
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.made_games import made_params, saturate_value_head, write_games, write_params, write_workspace
from tests.parameters import network_params, with_sections
from zero.config.params import LearningRateStep, Params
from zero.errors import ParamsError, StorageError, WorkerError
from zero.network.learner import StepResult
from zero.network.weights import load_network
from zero.stages import replay, training
from zero.stages.inputs import read_inputs
from zero.stages.training import curve_line
from zero.storage.files import checked_path, read_manifest, write_manifest
from zero.storage.manifests import Checkpoint, FileRef
from zero.storage.store import Store

OUTS = (
    "models/challenger/manifest.json",
    "models/challenger/optimizer.safetensors",
    "models/challenger/weights.safetensors",
    "metrics/training.json",
    "plots/training.csv",
)


def run(folder: Path, progress: Callable[[int, int], None] | None = None) -> Checkpoint:
    return training.run(read_inputs(folder), progress)


class KilledError(Exception):
    """Stands for the death of the process."""


def workspace(folder: Path, params: Params) -> Path:
    write_workspace(folder, params)
    replay.run(read_inputs(folder), Store(str(folder / "store")))
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


def with_all_extras(params: Params) -> Params:
    """A network with pooling and auxiliary heads, and an exponential moving average of its weights."""
    network = network_params(global_pooling=True, ownership_head=True, score_head=True)
    section = {"ownership_loss_weight": 0.5, "score_loss_weight": 0.5, "ema_decay": 0.9}
    return with_sections(params, network=network, training=section)


def test_bf16_gives_the_same_bytes_each_time_but_not_those_of_fp32(tmp_path):
    low = with_sections(made_params(), profile={"training_precision": "bf16"})
    one, other = (trained(tmp_path / name, low) for name in ("a", "b"))
    assert one == other != trained(tmp_path / "c", made_params())


def test_two_threads_give_the_same_bytes_each_time(tmp_path):
    params = with_sections(made_params(batch_size=64), profile={"training_threads": 2})
    assert trained(tmp_path / "a", params) == trained(tmp_path / "b", params)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace after a training, during which denormals are flushed."""
    folder, halves = workspace(tmp_path_factory.mktemp("finished"), made_params()), []
    run(folder, lambda done, total: halves.append(float(torch.tensor([2.0**-126]) * 0.5)))
    assert halves and not any(halves)
    return folder


def test_training_locks_its_gpu(tmp_path, monkeypatch):
    events = []

    @contextlib.contextmanager
    def lock(profile):
        events.append("locked")
        yield
        events.append("unlocked")

    monkeypatch.setattr("zero.stages.training.lock_visible_gpus", lock)
    run(workspace(tmp_path, made_params()), progress=lambda done, total: events.append("step"))
    assert (events[0], set(events[1:-1]), events[-1]) == ("locked", {"step"}, "unlocked")


@pytest.mark.parametrize(
    ("training", "kill_step"),
    [
        ({"kl_target": 0.001}, 4),
        ({"optimizer": "adam"}, 7),
        ({"momentum": 0.0, "random_symmetry": False}, 9),
        ({"ema_decay": 0.9}, 7),
    ],
    ids=["kl", "adam", "sgd", "average"],
)
def test_an_interrupted_training_gives_the_same_bytes(tmp_path, training, kill_step):
    params = made_params(**training)
    uninterrupted = trained(tmp_path / "uninterrupted", params)
    folder = workspace(tmp_path / "killed", params)
    with pytest.raises(KilledError):
        run(folder, kill_at(kill_step))
    assert not (folder / "models/challenger/manifest.json").exists()
    assert len(leftovers(folder)) == 1
    steps: list[int] = []
    run(folder, lambda done, total: steps.append(done))
    assert steps == list(range(kill_step // 4 * 4 + 1, 11)), "it resumed from the last checkpoint"
    assert outs(folder) == uninterrupted
    assert not leftovers(folder)


def test_a_corrupt_checkpoint_is_ignored(tmp_path):
    uninterrupted = trained(tmp_path / "uninterrupted", made_params())
    folder = workspace(tmp_path / "killed", made_params())
    with pytest.raises(KilledError):
        run(folder, kill_at(6))
    (weights,) = leftovers(folder)[0].glob("weights-*")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    steps: list[int] = []
    run(folder, lambda done, total: steps.append(done))
    assert steps[0] == 1
    assert outs(folder) == uninterrupted


@pytest.mark.parametrize("name", ["lock_file_digest", "execution_profile"])
def test_a_checkpoint_of_other_libraries_or_another_machine_is_ignored(tmp_path, monkeypatch, name):
    folder = workspace(tmp_path / "killed", made_params())
    with monkeypatch.context() as elsewhere, pytest.raises(KilledError):
        elsewhere.setattr(f"zero.stages.training.{name}", lambda *_: "other")
        run(folder, kill_at(6))
    assert len(leftovers(folder)) == 1
    steps: list[int] = []
    run(folder, lambda done, total: steps.append(done))
    assert steps[0] == 1


def test_a_checkpoint_of_other_parameters_is_ignored(tmp_path):
    params = made_params(weight_decay=0.01)
    uninterrupted = trained(tmp_path / "uninterrupted", params)
    folder = workspace(tmp_path / "killed", made_params())
    with pytest.raises(KilledError):
        run(folder, kill_at(6))
    write_params(folder, params)
    replay.run(read_inputs(folder), Store(str(folder / "store")))
    run(folder)
    assert outs(folder) == uninterrupted
    assert not leftovers(folder)


def test_the_next_generation_continues_with_weights_optimizer_and_schedule(tmp_path):
    rates = (LearningRateStep(from_step=0, learning_rate=0.02), LearningRateStep(from_step=15, learning_rate=0.002))
    params = made_params(learning_rate=rates)
    folder = workspace(tmp_path, params)
    first = run(folder)
    next_generation(folder, 2)
    second = run(folder)
    assert (first.step, second.step) == (10, 20)
    lines = curve(folder)
    assert [(line["step"], line["learning_rate"]) for line in lines] == [
        ("12", "0.02"),
        ("15", "0.02"),
        ("18", "0.002"),
        ("20", "0.002"),
    ]


def next_generation(folder: Path, number: int) -> None:
    """Rolls the challenger and the window forward as the registry does, and plays."""
    for source, target in (("models/challenger", "state/trainee"), ("data/window", "state/replay")):
        shutil.rmtree(folder / target)
        shutil.copytree(folder / source, folder / target)
    write_games(folder, number)
    replay.run(read_inputs(folder), Store(str(folder / "store")))


def bytes_of(folder: Path, ref: FileRef | None) -> bytes:
    assert ref is not None
    return checked_path(ref, folder).read_bytes()


def test_a_dead_training_restarts_from_the_checkpoint_it_started_from(tmp_path, caplog):
    steps = {"num_steps": 100, "log_interval": 20, "checkpoint_interval": 50, "ema_decay": 0.9}
    folder = workspace(tmp_path, made_params(**steps))
    saturate_value_head(folder)  # the squared error cannot repair it
    trainee_dir, directory = folder / "state/trainee", folder / "models/challenger"
    trainee = read_manifest(trainee_dir, Checkpoint)
    checkpoint = run(folder)
    health = json.loads((folder / "metrics/training.json").read_text())["health"]
    assert (health["verdict"], checkpoint.restarts) == ("dead", True)
    assert (checkpoint.step, checkpoint.learning_rate_factor) == (0, 1.0)
    kept = bytes_of(trainee_dir, trainee.weights)
    assert bytes_of(directory, checkpoint.continued_weights) == kept
    assert bytes_of(directory, checkpoint.continued_average) == kept
    assert bytes_of(directory, checkpoint.optimizer) == bytes_of(trainee_dir, trainee.optimizer)
    assert bytes_of(directory, checkpoint.weights) != kept, "the match is played by the trained network"
    assert "the next generation restarts" in caplog.text
    next_generation(folder, 2)
    second = run(folder)
    assert (second.step, second.restarts) == (0, True), "the same saturated head dies again"
    assert curve(folder)[-1]["step"] == "100"
    assert (directory / "average.safetensors").exists()
    write_params(folder, made_params(**steps, value_loss="cross_entropy"))
    healthy = run(folder)
    assert (healthy.step, healthy.restarts) == (100, False)
    assert not (directory / "average.safetensors").exists()


def test_the_seed_the_warm_up_and_the_value_loss_change_the_weights(tmp_path):
    changes = {
        "plain": made_params(),
        "seed": with_sections(made_params(), seed=2),
        "warm-up": made_params(warmup_steps=5),
        "cross-entropy": made_params(value_loss="cross_entropy"),
    }
    found = [
        trained(tmp_path / name, params)["models/challenger/weights.safetensors"] for name, params in changes.items()
    ]
    assert len(set(found)) == 4


def test_the_challenger_is_the_average_and_training_continues_from_the_raw_weights(tmp_path):
    plain, averaged = (workspace(tmp_path / str(decay), made_params(ema_decay=decay)) for decay in (0.0, 0.9))
    for number in (1, 2):
        without, checkpoint = run(plain), run(averaged)
        assert checkpoint.continued_weights.sha256 == without.weights.sha256, "the average does not change the training"
        assert checkpoint.weights.sha256 != without.weights.sha256
        assert checkpoint.optimizer.sha256 == without.optimizer.sha256
        directory = averaged / "models/challenger"
        load_network(checked_path(checkpoint.continued_weights, directory).read_bytes())
        for folder in (plain, averaged):
            next_generation(folder, number + 1)


def test_the_average_continues_across_generations(tmp_path):
    """With a decay of 0.5, a generation of one step gives the mean of the old average and the new weights. Without an
    average, nothing of it is left.
    """
    folder = workspace(tmp_path, made_params(ema_decay=0.5))
    first = run(folder)
    before = load_network(checked_path(first.weights, folder / "models/challenger").read_bytes()).state_dict()
    next_generation(folder, 2)
    write_params(folder, made_params(ema_decay=0.5, num_steps=1))
    second = run(folder)
    directory = folder / "models/challenger"
    latest = load_network(checked_path(second.continued_weights, directory).read_bytes()).state_dict()
    for name, tensor in load_network(checked_path(second.weights, directory).read_bytes()).state_dict().items():
        torch.testing.assert_close(tensor, (before[name] + latest[name]) / 2, rtol=1e-5, atol=1e-6)
    assert second.raw_weights is not None
    next_generation(folder, 3)
    write_params(folder, made_params(num_steps=1))
    assert run(folder).raw_weights is None
    assert not (directory / "raw-weights.safetensors").exists()


def test_the_losses_of_the_auxiliary_heads_are_in_the_curve(tmp_path):
    run(workspace(tmp_path, with_all_extras(made_params(num_steps=60, batch_size=32, log_interval=10))))
    first, *_, last = curve(tmp_path)
    for name in ("policy_loss", "value_loss", "ownership_loss", "score_loss"):
        assert 0 < float(last[name]) < float(first[name]), name
    parts = [float(last[name]) for name in ("policy_loss", "value_loss", "ownership_loss", "score_loss")]
    assert parts[0] + parts[1] + 0.5 * parts[2] + 0.5 * parts[3] < float(last["loss"])


def test_two_processes_train_as_one_and_resume_after_a_death_to_the_same_bytes(tmp_path):
    params = with_all_extras(made_params(batch_size=32))
    pair = with_sections(params, profile={"training_processes": 2})
    steps: list[int] = []
    run(workspace(tmp_path / "uninterrupted", pair), lambda done, total: steps.append(done))
    assert steps == list(range(1, 11))
    uninterrupted = outs(tmp_path / "uninterrupted")

    def kill_one(done: int, total: int) -> None:
        if done == 6:
            os.kill(max(child.pid or 0 for child in multiprocessing.active_children()), signal.SIGKILL)

    folder = workspace(tmp_path / "killed", pair)
    with pytest.raises(WorkerError, match=r"was killed by signal 9; run the stage again"):
        run(folder, kill_one)
    assert not (folder / "models/challenger").exists()
    steps.clear()
    run(folder, lambda done, total: steps.append(done))
    assert steps == list(range(5, 11)), "it resumed from the last checkpoint"
    assert outs(folder) == uninterrupted
    assert not leftovers(folder)

    trained(tmp_path / "alone", params)
    for one, two in zip(curve(tmp_path / "alone"), curve(folder), strict=True):
        for name in ("loss", "policy_loss", "value_loss", "ownership_loss", "score_loss"):
            assert float(two[name]) == pytest.approx(float(one[name]), rel=0.1), name


def test_an_error_in_a_training_process_is_the_error_of_the_stage(tmp_path):
    params = with_sections(made_params(), profile={"training_processes": 2})
    folder = workspace(tmp_path, params)
    path = next((folder / "data/window").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match=r"\.parquet is corrupt"):
        run(folder)
    assert not (folder / "models").exists()


def test_the_challenger_is_described_by_its_manifest(finished):
    directory = finished / "models/challenger"
    checkpoint = read_manifest(directory, Checkpoint)
    model = load_network(checked_path(checkpoint.weights, directory).read_bytes())
    checked_path(checkpoint.optimizer, directory)
    assert model.spec.network == checkpoint.network == made_params().network
    assert set(checkpoint.origin.inputs) == {"data/window", "state/trainee"}
    assert sorted(path.name for path in directory.iterdir()) == [
        "manifest.json",
        "optimizer.safetensors",
        "weights.safetensors",
    ]


def test_the_metrics_are_the_last_line_of_the_curve(finished):
    lines = curve(finished)
    metrics = json.loads((finished / "metrics/training.json").read_text())
    assert [line["step"] for line in lines] == ["3", "6", "9", "10"]
    assert list(lines[0]) == list(StepResult._fields)
    for name, value in lines[-1].items():
        assert metrics[name] == pytest.approx(float(value), rel=1e-5)
    assert (metrics["num_samples"], metrics["window_games"]) == (80, 6)


def test_a_line_is_the_mean_of_its_steps_and_has_the_last_rate():
    steps = [StepResult(step, *np.arange(14) + step) for step in (4, 6)]
    line = curve_line(steps)
    assert line == StepResult(6, 5.0, 6.0, 7.0, 8.0, 9.0, 11.0, *np.arange(11.0, 19.0))
    assert isinstance(line.step, int)


def test_a_network_that_differs_from_the_trainee_is_rejected(tmp_path):
    folder = workspace(tmp_path, made_params())
    network = network_params(num_channels=8)
    write_params(folder, with_sections(made_params(), network=network))
    with pytest.raises(ParamsError, match=r"network\.num_channels = 8, but the trainee has 4"):
        run(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "raw-weights.safetensors"])
def test_a_corrupt_trainee_is_rejected(tmp_path, name):
    folder = workspace(tmp_path, made_params())
    directory = folder / "state/trainee"
    shutil.copyfile(directory / "weights.safetensors", directory / "raw-weights.safetensors")
    trainee = read_manifest(directory, Checkpoint)
    raw_weights = trainee.weights.model_copy(update={"path": "raw-weights.safetensors"})
    write_manifest(directory, trainee.model_copy(update={"raw_weights": raw_weights}))
    path = directory / name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match=f"{name} is corrupt"):
        run(folder)
    assert not (folder / "models").exists()


def test_a_missing_window_is_rejected(tmp_path):
    write_workspace(tmp_path, made_params())
    with pytest.raises(StorageError, match=r"no .*data/window/manifest\.json"):
        run(tmp_path)
