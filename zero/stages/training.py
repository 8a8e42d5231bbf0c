"""Stage `training`: the trainee learns from the window of games and becomes the challenger.

Training always continues from the trainee, whether its last challenger was promoted or not, as in the paper. After a
training that the health check calls dead, the next one starts again from the same trainee (`zero.network.health`).
The stage reads `data/window`, `state/trainee`, `state/generation.json` and `params.yaml`. With
`profile.training_processes` above 1 it trains in that many child processes; only this process writes the outputs.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zero.config.params import Params
from zero.data.samples import SampleBatch, Sampler, new_sample_batch, sample_games
from zero.data.window import read_window
from zero.games.rules import rules_of
from zero.network.data_parallel import Peers, Progress, run_data_parallel
from zero.network.gpu_lock import lock_visible_gpus
from zero.network.health import Health, health_of
from zero.network.learner import Learner, StepResult
from zero.network.profile import execution_profile, flush_denormals, prepare_torch
from zero.network.weights import load_network
from zero.stages.checkpoints import (
    CheckpointManifest,
    TrainingCheckpoint,
    checkpoint_dir,
    load_checkpoint,
    remove_checkpoints,
    save_checkpoint,
)
from zero.stages.inputs import Inputs, check_trainee
from zero.stages.spec import lock_file_digest
from zero.storage.files import (
    canonical_json,
    checked_bytes,
    file_ref,
    remove_other_files,
    sha256_bytes,
    write_atomic,
    write_manifest,
)
from zero.storage.layout import (
    AVERAGE_FILE,
    CHALLENGER_DIR,
    OPTIMIZER_FILE,
    RAW_WEIGHTS_FILE,
    TRAINEE_DIR,
    TRAINING_CURVE,
    TRAINING_METRICS,
    WEIGHTS_FILE,
    WINDOW_DIR,
)
from zero.storage.manifests import Checkpoint, Origin, Window

SAMPLER_THREADS = {"cpu": 1, "cuda": 4}
"""Threads that make batches, by device. The number does not change any result."""

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """Result of a training."""

    step: int  # optimiser steps since generation 0
    learning_rate_factor: float
    curve: tuple[StepResult, ...]
    weights: bytes  # of the player: the moving average, if there is one
    raw_weights: bytes | None  # of the network in training, if the player's differ
    optimizer: bytes


def run(inputs: Inputs, progress: Progress | None = None) -> Checkpoint:
    """Trains in a workspace. Writes `models/challenger`, the metrics and the curve; resumes an interrupted training.

    Args:
      inputs: what the stages read of the workspace.
      progress: called after each step with the number of steps done and the steps of this generation.

    Raises:
      ParamsError: the parameters do not fit the trainee, or make training diverge.
      StorageError: a file is missing or corrupt, or cannot be written.
      WorkerError: a training process died.
    """
    params, number, window = inputs.params, inputs.generation.number, inputs.window
    check_trainee(inputs.trainee, params)
    origin = inputs.training_origin  # before the training: the code and the inputs that it begins with

    prepare_torch(params.profile, params.profile.training_threads)
    if params.profile.training_processes == 1:
        with lock_visible_gpus(params.profile):
            trained = train(inputs, None, progress)
    else:
        trained = run_data_parallel(train, (inputs,), params.profile, progress)
    health = health_of(trained.curve, params.training.num_steps)

    checkpoint = _write_challenger(inputs, origin, trained, health)
    _write_metrics(inputs, window, trained, health)
    remove_checkpoints(inputs.folder)  # only now: after a crash during the writes above, training resumes
    log.info("generation %d: trained to step %d, loss %.4f", number, trained.step, trained.curve[-1].loss)
    for line in health.lines():
        log.warning("generation %d: %s", number, line)
    return checkpoint


def curve_line(steps: Sequence[StepResult]) -> StepResult:
    """One line of the training curve: means over the steps, but step and learning rate of the last one."""
    means = np.mean(np.array(steps), axis=0)
    return StepResult(*means.tolist())._replace(step=steps[-1].step, learning_rate=steps[-1].learning_rate)


def curve_text(curve: Sequence[StepResult]) -> str:
    """The training curve as CSV, numbers with six significant digits."""
    lines = [",".join([str(line.step), *(f"{value:.6g}" for value in line[1:])]) for line in curve]
    return "\n".join([",".join(StepResult._fields), *lines]) + "\n"


def _checkpoint_key(inputs: Inputs) -> str:
    """Digest of all that the weights depend on: code, parameters and inputs, library versions, and the machine."""
    origin, profile = inputs.training_origin.model_dump(mode="json"), execution_profile(inputs.params.profile)
    key = {"origin": origin, "lock_file": lock_file_digest(), "profile": profile}
    return sha256_bytes(canonical_json(key))


def train(inputs: Inputs, peers: Peers | None, progress: Progress | None) -> Trained:
    """Trains from the trainee or from the last training checkpoint, and saves checkpoints at intervals.

    Args:
      inputs: the workspace, whose trainee learns from its window.
      peers: the processes that train together, or None. Each calls this function; the first one reads the games, and
        writes the checkpoints, for all.
      progress: see `run`.

    Raises:
      ParamsError: training diverges, or the GPU's memory is too small.
      StorageError: a file is corrupt, or cannot be written.
    """
    params, trainee, training = inputs.params, inputs.trainee, inputs.params.training
    directory = checkpoint_dir(inputs.folder, _checkpoint_key(inputs))
    first_step, last_step = trainee.step, trainee.step + training.num_steps
    # Each process reads the same files, so all of them start from equal weights.
    start = load_checkpoint(directory) or _trainee_checkpoint(trainee, inputs.folder / TRAINEE_DIR)
    with flush_denormals():
        learner = _learner(params, start, peers)
        curve, pending = list(start.manifest.curve), list(start.manifest.pending)
        # Closed explicitly, so that the threads of the sampler end also if the training diverges.
        with closing(_batches(inputs, peers, learner.step, last_step)) as batches:
            for step in learner.train(batches):
                is_line = step % training.log_interval == 0 or step == last_step
                is_checkpoint = step % training.checkpoint_interval == 0 and step < last_step
                # Reading results makes the host wait for a GPU, so it happens only where they are needed.
                if is_line or is_checkpoint:
                    pending += learner.results()
                if is_line:
                    curve.append(curve_line(pending))
                    pending.clear()
                # After each step all processes have equal weights, so one checkpoint serves all of them.
                if is_checkpoint and (peers is None or peers.rank == 0):
                    save_checkpoint(
                        directory,
                        step=step,
                        learning_rate_factor=learner.learning_rate_factor,
                        curve=tuple(curve),
                        pending=tuple(pending),
                        weights=learner.weights(),
                        optimizer=learner.optimizer_state(),
                        average=learner.player_weights() if training.ema_decay else None,
                    )
                if progress:
                    progress(step - first_step, training.num_steps)
    return Trained(
        step=learner.step,
        learning_rate_factor=learner.learning_rate_factor,
        curve=tuple(curve),
        weights=learner.player_weights(),
        raw_weights=learner.weights() if training.ema_decay else None,
        optimizer=learner.optimizer_state(),
    )


def _batches(
    inputs: Inputs, peers: Peers | None, first_step: int, last_step: int
) -> Generator[SampleBatch, None, None]:
    """The batches of the steps after `first_step`, or this process's share of each batch."""
    params, training = inputs.params, inputs.params.training
    rules = rules_of(params.game)
    num_steps = last_step - first_step
    if peers is not None:  # process 0 makes the batches, and all receive their shares from it
        share = new_sample_batch(rules, training.batch_size // peers.size)
        if peers.rank > 0:
            yield from peers.scatter(None, share, num_steps)
            return
    games = sample_games(read_window(inputs.window, inputs.folder / WINDOW_DIR, rules))
    with Sampler(
        rules,
        games,
        seed=params.seed,
        generation=inputs.generation.number,
        batch_size=training.batch_size,
        random_symmetry=training.random_symmetry,
        num_threads=SAMPLER_THREADS[params.profile.device],
        search_value_weight=training.search_value_weight,
    ) as sampler:
        batches = sampler.batches(first_step, num_steps)
        yield from batches if peers is None else peers.scatter(batches, share, num_steps)


def _trainee_checkpoint(trainee: Checkpoint, trainee_dir: Path) -> TrainingCheckpoint:
    """The trainee as the checkpoint of a training that has not made any step."""
    manifest = CheckpointManifest(
        step=trainee.step,
        learning_rate_factor=trainee.learning_rate_factor,
        curve=(),
        pending=(),
        weights=trainee.continued_weights,
        optimizer=trainee.optimizer,
        average=trainee.continued_average,
    )
    files = (trainee.continued_weights, trainee.optimizer, trainee.continued_average)
    return TrainingCheckpoint(manifest, *(checked_bytes(ref, trainee_dir) for ref in files))


def _learner(params: Params, start: TrainingCheckpoint, peers: Peers | None) -> Learner:
    manifest = start.manifest
    if manifest.curve or manifest.pending:
        log.info("training resumes from step %d", manifest.step)
    average = start.average if params.training.ema_decay else None
    return Learner(
        load_network(start.weights),
        params.training,
        params.profile.device,
        step=manifest.step,
        learning_rate_factor=manifest.learning_rate_factor,
        optimizer_state=start.optimizer,
        average=None if average is None else load_network(average),
        precision=params.profile.training_precision,
        peers=peers,
    )


def _write_challenger(inputs: Inputs, origin: Origin, trained: Trained, health: Health) -> Checkpoint:
    """Writes the challenger. After a dead training only `weights` are new; the rest is copied from the trainee."""
    trainee, directory = inputs.trainee, inputs.folder / CHALLENGER_DIR
    restarts = health.verdict == "dead"
    # The match is played with the trained weights in either case. The next training starts from `raw_weights`, the
    # optimiser state and `average`, so after a dead training these three repeat the trainee.
    files = {WEIGHTS_FILE: trained.weights, OPTIMIZER_FILE: trained.optimizer}
    if restarts:
        kept = {
            OPTIMIZER_FILE: trainee.optimizer,
            RAW_WEIGHTS_FILE: trainee.continued_weights,
            AVERAGE_FILE: trainee.continued_average,
        }
        files |= {name: checked_bytes(ref, inputs.folder / TRAINEE_DIR) for name, ref in kept.items()}
    elif trained.raw_weights is not None:
        files[RAW_WEIGHTS_FILE] = trained.raw_weights
    for name, data in files.items():
        write_atomic(directory / name, data)
    refs = {name: file_ref(directory / name, directory) for name in files}
    checkpoint = Checkpoint(
        origin=origin,
        network=inputs.params.network,
        step=trainee.step if restarts else trained.step,
        learning_rate_factor=trainee.learning_rate_factor if restarts else trained.learning_rate_factor,
        weights=refs[WEIGHTS_FILE],
        optimizer=refs[OPTIMIZER_FILE],
        raw_weights=refs.get(RAW_WEIGHTS_FILE),
        average=refs.get(AVERAGE_FILE),
        restarts=restarts,
    )
    # After the files that it names: a folder with a manifest is complete.
    write_manifest(directory, checkpoint)
    remove_other_files(directory, checkpoint.files)
    return checkpoint


def _write_metrics(inputs: Inputs, window: Window, trained: Trained, health: Health) -> None:
    """Writes `metrics/training.json`: the last line of the curve, the amount of training, its health. And the curve."""
    training = inputs.params.training
    metrics = trained.curve[-1]._asdict() | {
        "learning_rate_factor": trained.learning_rate_factor,
        "num_steps": training.num_steps,
        "num_samples": training.num_steps * training.batch_size,
        "window_games": window.num_games,
        "window_positions": window.num_positions,
        "health": health.model_dump(mode="json"),
    }
    write_atomic(inputs.folder / TRAINING_METRICS, canonical_json(metrics))
    write_atomic(inputs.folder / TRAINING_CURVE, curve_text(trained.curve).encode())
