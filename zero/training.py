"""Stage `training`: the trainee learns from the window; what comes out is the challenger.

Training always goes on from the trainee, whether its last challenger became champion or not, as in the paper. It reads
`data/window`, `state/trainee`, `state/generation.json` and `params.yaml` and nothing else.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from zero.artifacts import (
    MANIFEST_FILE,
    Checkpoint,
    GenerationId,
    Manifest,
    Origin,
    Window,
    canonical_json,
    checked_path,
    file_ref,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_manifest,
    write_whole,
)
from zero.errors import ParamsError
from zero.games.rules import rules_of
from zero.network.learner import Learner, StepResult
from zero.network.profile import prepare_torch
from zero.network.weights import load_network
from zero.params import Params, load_params, params_digest
from zero.play.samples import SampleGames, Sampler
from zero.replay import GENERATION_FILE, STATE_DIR, WINDOW_DIR, read_window
from zero.resume import load_training, remove_checkpoints, resume_dir, save_training
from zero.shards.records import GameColumns
from zero.shards.spec import engine_fingerprint

STAGE = "training"
TRAINEE_DIR = "state/trainee"
CHALLENGER_DIR = "models/challenger"
METRICS_FILE = "metrics/training.json"
PLOT_FILE = "plots/training.csv"
WEIGHTS_FILE = "weights.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"

log = logging.getLogger(__name__)


class TrainingMetrics(Manifest):
    """`metrics/training.json`: the last line of the curve, and how much was learned from."""

    step: int
    loss: float
    policy_loss: float
    value_loss: float
    learning_rate: float
    policy_accuracy: float
    policy_entropy: float
    learning_rate_factor: float
    num_steps: int
    num_samples: int
    window_games: int
    window_positions: int


def run(folder: Path, progress: Callable[[int, int], None] | None = None) -> Checkpoint:
    """Makes `models/challenger`, the metrics and the curve of a workspace; goes on where it was interrupted.

    Args:
      folder: the workspace.
      progress: called after each step with the steps done and the steps of this generation.

    Raises:
      ParamsError: `params.yaml` is not valid, does not fit the trainee, or makes training diverge.
      StorageError: a file is missing or altered, or cannot be written.
    """
    params = load_params(folder)
    generation = read_manifest(folder / STATE_DIR, GenerationId, GENERATION_FILE)
    window = read_manifest(folder / WINDOW_DIR, Window)
    trainee = read_manifest(folder / TRAINEE_DIR, Checkpoint)
    check_trainee(trainee, params)
    origin = Origin(
        stage=STAGE,
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, STAGE),
        engine=engine_fingerprint(STAGE),
        inputs={
            WINDOW_DIR: sha256_file(folder / WINDOW_DIR / MANIFEST_FILE),
            TRAINEE_DIR: sha256_file(folder / TRAINEE_DIR / MANIFEST_FILE),
        },
    )
    rules = rules_of(params.game)
    games = sample_games(read_window(window, folder / WINDOW_DIR, rules))
    prepare_torch(params.profile, params.profile.training_threads)
    learner, curve = _train(folder, params, origin, trainee, games, progress)
    checkpoint = _write_challenger(folder, params, origin, window, learner, curve)
    remove_checkpoints(folder)
    log.info("generation %d: trained to step %d, loss %.4f", generation.number, learner.step, curve[-1].loss)
    return checkpoint


def check_trainee(trainee: Checkpoint, params: Params) -> None:
    """Checks that the trainee is the network of the parameters.

    Raises:
      ParamsError: it is another one.
    """
    for name in type(params.network).model_fields:
        has, wanted = getattr(trainee.network, name), getattr(params.network, name)
        if has != wanted:
            raise ParamsError(
                f"network.{name} = {wanted!r}, but the trainee has {has!r}; set it back or start a new lineage"
            )


def sample_games(columns: GameColumns) -> SampleGames:
    """The columns that samples are made of."""
    return SampleGames(
        outcome=columns.outcome,
        move_offsets=columns.move_offsets,
        actions=columns.actions,
        visit_offsets=columns.visit_offsets,
        visit_actions=columns.visit_actions,
        visit_counts=columns.visit_counts,
    )


def curve_line(steps: Sequence[StepResult]) -> StepResult:
    """One line of the curve: means over the steps, step and learning rate of the last."""
    means = np.mean(np.array(steps), axis=0)
    return StepResult(*means.tolist())._replace(step=steps[-1].step, learning_rate=steps[-1].learning_rate)


def curve_text(curve: Sequence[StepResult]) -> str:
    """The curve as CSV, numbers with six digits."""
    lines = [",".join([str(line.step), *(f"{value:.6g}" for value in line[1:])]) for line in curve]
    return "\n".join([",".join(StepResult._fields), *lines]) + "\n"


def _train(
    folder: Path,
    params: Params,
    origin: Origin,
    trainee: Checkpoint,
    games: SampleGames,
    progress: Callable[[int, int], None] | None,
) -> tuple[Learner, tuple[StepResult, ...]]:
    training = params.training
    directory = resume_dir(folder, sha256_bytes(canonical_json(origin)))
    last_step = trainee.step + training.num_steps
    learner, curve, pending = _start(folder, directory, params, trainee)
    with Sampler(
        rules_of(params.game), games, params.seed, origin.generation, training.batch_size, training.random_symmetry
    ) as sampler:
        for result in learner.train(sampler.batches(learner.step, last_step - learner.step)):
            pending.append(result)
            if result.step % training.log_interval == 0 or result.step == last_step:
                curve.append(curve_line(pending))
                pending.clear()
            if result.step % training.checkpoint_interval == 0 and result.step < last_step:
                save_training(
                    directory,
                    result.step,
                    learner.learning_rate_factor,
                    tuple(curve),
                    tuple(pending),
                    learner.weights(),
                    learner.optimizer_state(),
                )
            if progress:
                progress(result.step - trainee.step, training.num_steps)
    return learner, tuple(curve)


def _start(
    folder: Path, directory: Path, params: Params, trainee: Checkpoint
) -> tuple[Learner, list[StepResult], list[StepResult]]:
    """The learner where training was interrupted, else from the trainee; its curve and the steps after it."""
    if saved := load_training(directory):
        learner = Learner(
            load_network(saved.weights),
            params.training,
            params.profile.device,
            saved.progress.step,
            saved.progress.learning_rate_factor,
            saved.optimizer,
        )
        log.info("training goes on from step %d", learner.step)
        return learner, list(saved.progress.curve), list(saved.progress.pending)
    trainee_dir = folder / TRAINEE_DIR
    learner = Learner(
        load_network(checked_path(trainee.weights, trainee_dir).read_bytes()),
        params.training,
        params.profile.device,
        trainee.step,
        trainee.learning_rate_factor,
        checked_path(trainee.optimizer, trainee_dir).read_bytes(),
    )
    return learner, [], []


def _write_challenger(
    folder: Path, params: Params, origin: Origin, window: Window, learner: Learner, curve: Sequence[StepResult]
) -> Checkpoint:
    directory = folder / CHALLENGER_DIR
    write_whole(directory / WEIGHTS_FILE, learner.weights())
    write_whole(directory / OPTIMIZER_FILE, learner.optimizer_state())
    checkpoint = Checkpoint(
        origin=origin,
        network=params.network,
        step=learner.step,
        learning_rate_factor=learner.learning_rate_factor,
        weights=file_ref(directory / WEIGHTS_FILE, directory),
        optimizer=file_ref(directory / OPTIMIZER_FILE, directory),
    )
    metrics = TrainingMetrics(
        **curve[-1]._asdict(),
        learning_rate_factor=learner.learning_rate_factor,
        num_steps=params.training.num_steps,
        num_samples=params.training.num_steps * params.training.batch_size,
        window_games=window.num_games,
        window_positions=window.num_positions,
    )
    write_whole(folder / METRICS_FILE, canonical_json(metrics))
    write_whole(folder / PLOT_FILE, curve_text(curve).encode())
    write_manifest(directory, checkpoint)
    return checkpoint
