"""Training checkpoints: the state from which an interrupted training continues. They are not outputs of the stage.

Not to be confused with `zero.storage.manifests.Checkpoint`, the manifest of challenger and trainee.

A checkpoint is stored in `<workspace>/.zero/training-<key>/`, which neither git nor DVC tracks. The key is a digest
of all that the weights depend on, so a checkpoint is never used for another training, nor with other library versions
or on another kind of CPU. It is removed when the training is finished.
"""

import logging
import shutil
from pathlib import Path
from typing import NamedTuple

from zero.errors import StorageError
from zero.network.learner import StepResult
from zero.storage.files import checked_bytes, file_ref, read_manifest, write_atomic, write_manifest
from zero.storage.manifests import FileRef, Manifest

CHECKPOINT_ROOT = ".zero"
PREFIX = "training-"

log = logging.getLogger(__name__)


class CheckpointManifest(Manifest):
    """Manifest of a training checkpoint."""

    step: int
    """Optimiser steps since generation 0."""
    learning_rate_factor: float
    """Factor of the KL adaptation on the scheduled learning rate."""
    curve: tuple[StepResult, ...]
    """Lines of the training curve so far."""
    pending: tuple[StepResult, ...]
    """Steps after the last line of the curve."""
    weights: FileRef
    """The network in training."""
    optimizer: FileRef
    average: FileRef | None
    """The exponential moving average of the weights; None if it is off."""


class TrainingCheckpoint(NamedTuple):
    """A training checkpoint in memory; its files have been checked against their digests."""

    manifest: CheckpointManifest
    weights: bytes
    optimizer: bytes
    average: bytes | None


def checkpoint_dir(folder: Path, key: str) -> Path:
    """Folder of a training's checkpoint in a workspace; `key` is a digest of all that its weights depend on."""
    return folder / CHECKPOINT_ROOT / f"{PREFIX}{key[:16]}"


def save_checkpoint(
    directory: Path,
    step: int,
    learning_rate_factor: float,
    curve: tuple[StepResult, ...],
    pending: tuple[StepResult, ...],
    weights: bytes,
    optimizer: bytes,
    average: bytes | None,
) -> None:
    """Replaces the checkpoint atomically: after a crash at any point, the old or the new one is complete.

    Raises:
      StorageError: a file cannot be written.
    """
    # The order matters: new files under new names, then the manifest that names them, then removal of the old files.
    files = {"weights": weights, "optimizer": optimizer} | ({} if average is None else {"average": average})
    paths = {name: directory / f"{name}-{step:08d}.safetensors" for name in files}
    for name, data in files.items():
        write_atomic(paths[name], data)
    refs = {name: file_ref(path, directory) for name, path in paths.items()}
    manifest = CheckpointManifest(
        step=step,
        learning_rate_factor=learning_rate_factor,
        curve=curve,
        pending=pending,
        weights=refs["weights"],
        optimizer=refs["optimizer"],
        average=refs.get("average"),
    )
    write_manifest(directory, manifest)
    for path in directory.glob("*.safetensors"):
        if path not in paths.values():
            path.unlink()


def load_checkpoint(directory: Path) -> TrainingCheckpoint | None:
    """The checkpoint; None if there is none or it is corrupt, in which case training starts from the trainee."""
    if not directory.exists():
        return None
    try:
        manifest = read_manifest(directory, CheckpointManifest)
        weights = checked_bytes(manifest.weights, directory)
        optimizer = checked_bytes(manifest.optimizer, directory)
        average = None if manifest.average is None else checked_bytes(manifest.average, directory)
    except StorageError as error:
        log.warning("training checkpoint ignored, training starts from the trainee: %s", error)
        return None
    return TrainingCheckpoint(manifest, weights, optimizer, average)


def remove_checkpoints(folder: Path) -> None:
    """Removes all training checkpoints of a workspace, including those of abandoned trainings."""
    for directory in (folder / CHECKPOINT_ROOT).glob(f"{PREFIX}*"):
        shutil.rmtree(directory, ignore_errors=True)
