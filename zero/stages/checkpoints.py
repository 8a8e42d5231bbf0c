"""What an interrupted training goes on from: a checkpoint beside the outs, whole or not used.

It lies in `<workspace>/.zero/training-<key>/`, where neither git nor DVC looks; the key is a digest of all that the
result depends on, so that a checkpoint is never taken for another training's. Removed when the training is done.
"""

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from zero.errors import StorageError
from zero.network.learner import StepResult
from zero.storage.files import checked_path, file_ref, read_manifest, write_atomic, write_manifest
from zero.storage.manifests import FileRef, Manifest

RESUME_ROOT = ".zero"
PREFIX = "training-"

log = logging.getLogger(__name__)


class Progress(Manifest):
    """How far the training had come."""

    step: int
    """Optimiser steps since generation 0."""
    learning_rate_factor: float
    curve: tuple[StepResult, ...]
    """Lines of the training curve so far."""
    pending: tuple[StepResult, ...]
    """Steps since the last line."""
    weights: FileRef
    """Of the network in training."""
    optimizer: FileRef
    average: FileRef | None
    """The moving average of the weights, where there is one."""


class SavedTraining(NamedTuple):
    """A checkpoint that has been read and checked."""

    progress: Progress
    weights: bytes
    optimizer: bytes
    average: bytes | None


def resume_dir(folder: Path, key: str) -> Path:
    """Where the checkpoint of a training lies in a workspace."""
    return folder / RESUME_ROOT / f"{PREFIX}{key[:16]}"


def save_training(
    directory: Path,
    step: int,
    learning_rate_factor: float,
    curve: tuple[StepResult, ...],
    pending: tuple[StepResult, ...],
    weights: bytes,
    optimizer: bytes,
    average: bytes | None,
) -> None:
    """Replaces the checkpoint; killed at any point, the old or the new one is there.

    Raises:
      StorageError: it cannot be written.
    """
    files = {"weights": weights, "optimizer": optimizer} | ({} if average is None else {"average": average})
    paths = {name: directory / f"{name}-{step:08d}.safetensors" for name in files}
    for name, data in files.items():
        write_atomic(paths[name], data)
    refs = {name: file_ref(path, directory) for name, path in paths.items()}
    progress = Progress(
        step=step,
        learning_rate_factor=learning_rate_factor,
        curve=curve,
        pending=pending,
        weights=refs["weights"],
        optimizer=refs["optimizer"],
        average=refs.get("average"),
    )
    write_manifest(directory, progress)
    for path in directory.glob("*.safetensors"):
        if path not in paths.values():
            path.unlink()


def load_training(directory: Path) -> SavedTraining | None:
    """The checkpoint; None where there is none, or it is broken (then training starts anew)."""
    if not directory.exists():
        return None
    try:
        progress = read_manifest(directory, Progress)
        weights = checked_path(progress.weights, directory).read_bytes()
        optimizer = checked_path(progress.optimizer, directory).read_bytes()
        average = None if progress.average is None else checked_path(progress.average, directory).read_bytes()
    except StorageError as error:
        log.warning("checkpoint not used, training starts anew: %s", error)
        return None
    return SavedTraining(progress, weights, optimizer, average)


def remove_checkpoints(folder: Path) -> None:
    """Removes the checkpoints of a workspace, also those of trainings that were given up."""
    for directory in (folder / RESUME_ROOT).glob(f"{PREFIX}*"):
        shutil.rmtree(directory, ignore_errors=True)
