"""Stage `training` on another machine. Its inputs and outputs are exchanged through the store, as files by digest.

`zero training` fetches the outcome from the store if it is complete there, and otherwise trains on this machine, just
as the other stages do with shards. The outcome of a worker is trusted like its shards; `zero reproduce` recomputes it.

Only the function that trains imports torch, after the profile's environment variables are set: torch reads some of
them once, when it is imported.
"""

import contextlib
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from zero.config.params import PARAMS_FILE, parse_params
from zero.errors import LineageError, StorageError
from zero.network.profile import execution_profile
from zero.stages.costs import ProcessCosts, add_process_costs, process_costs, stage_costs
from zero.stages.executor import Progress
from zero.stages.inputs import Inputs, read_inputs
from zero.stages.meter import worker_name
from zero.stages.spec import check_code, check_profile, lock_file_digest
from zero.storage.files import canonical_json, locked, remove_other_files, sha256_bytes, write_atomic
from zero.storage.layout import (
    CHALLENGER_DIR,
    GENERATION_FILE,
    TRAINEE_DIR,
    TRAINING_CURVE,
    TRAINING_METRICS,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, Checkpoint, Manifest, Origin, Sha256
from zero.storage.store import Store

STAGE = "training"
INPUTS = (GENERATION_FILE, TRAINEE_DIR, WINDOW_DIR)
"""Files and folders of a workspace that training reads, apart from the parameters."""

log = logging.getLogger(__name__)


class TrainingSpec(Manifest):
    """Specification of a training; equal specifications give equal files."""

    origin: Origin
    lock_file: Sha256
    """SHA-256 of constraints.txt."""
    profile: dict[str, str]
    """Execution profile of the machine that planned the training; the worker must have the same."""
    files: dict[str, Sha256]
    """Digests of the input files by path in the workspace; the store holds them under these digests."""

    def key(self) -> str:
        """SHA-256 (hex) of everything that the outcome depends on; the origin covers the content of `files`."""
        return sha256_bytes(canonical_json(self.model_copy(update={"files": {}})))


class TrainingOutcome(Manifest):
    """Outcome of a training, as the store holds it."""

    key: Sha256
    files: dict[str, Sha256]
    """Digests of the output files by path in the workspace; the store holds them under these digests."""
    worker: str
    costs: tuple[ProcessCosts, ...]
    """Costs of all processes that worked on the training, interrupted ones included."""


def plan(inputs: Inputs, store: Store, only_missing: bool = False) -> TrainingSpec | None:
    """Specification of a generation's training. Uploads its inputs to the store.

    Args:
      inputs: what the stages read of the workspace.
      store: where the inputs go.
      only_missing: return None, and upload nothing, if the store has the outcome already.

    Raises:
      StorageError: an input is missing or the store does not respond.
    """
    spec, folder = _spec(inputs), inputs.folder
    if only_missing and _find_outcome(spec, store):
        return None
    paths = [path for name in INPUTS for path in _files_below(folder, name)]
    files = {path: store.put_file((folder / path).read_bytes()) for path in (PARAMS_FILE, *paths)}
    return spec.model_copy(update={"files": files})


def train_into_store(spec: TrainingSpec, store: Store, folder: Path, progress: Progress | None = None) -> None:
    """Executes a training and puts its outcome into the store, unless the store has it already.

    Args:
      spec: the training.
      store: where its inputs are, and where the outcome goes.
      folder: working folder, named by the key of the training, from which an interrupted training resumes. It is
        removed at the end, together with sibling folders whose trainings are in the store. Folders in which another
        process works stay.
      progress: see `zero.stages.training.run`.

    Raises:
      LineageError: the code, package lock or execution profile of this machine are not those of the specification, or
        the inputs belong to another training.
      StorageError: an input is not in the store, or a file cannot be written.
    """
    check_code(STAGE, spec.origin.engine, spec.lock_file)
    _remove_finished_siblings(folder, store)
    if not _find_outcome(spec, store):
        # All paths are checked before the first file is written.
        paths = {path: _input_path(folder, path) for path in spec.files}
        params = parse_params(_input(spec, PARAMS_FILE, store).decode())
        check_profile(spec.profile, execution_profile(params.profile))
        # The process of a flow that was killed trains on; that of the next flow then finds the outcome.
        with locked(folder, f"another process is at the training in {folder}; waiting for its end", waits=True):
            if not _find_outcome(spec, store):  # the previous owner of the lock may have finished it
                # Under the lock, since another process may be training from these files.
                for path, target in paths.items():
                    write_atomic(target, _input(spec, path, store))
                _train(spec, store, folder, progress)
    _remove_unless_locked(folder)


def fetch(inputs: Inputs, store: Store) -> Checkpoint | None:
    """Copies the outcome of a workspace's training from the store; None if the store has no complete one.

    Raises:
      StorageError: an input is missing or the store does not respond.
    """
    folder, number = inputs.folder, inputs.generation.number
    found = _find_outcome(_spec(inputs), store)
    if found is None:
        return None
    outcome, checkpoint, contents = found
    for path in _output_files(checkpoint):  # the manifest last, which makes the challenger valid
        write_atomic(folder / path, contents[path])
    remove_other_files(folder / CHALLENGER_DIR, checkpoint.files)
    add_process_costs(folder, number, outcome.costs)
    log.info("generation %d: training was executed by %s", number, outcome.worker)
    return checkpoint


def _train(spec: TrainingSpec, store: Store, folder: Path, progress: Progress | None) -> None:
    """Trains in a folder that has all inputs, and puts the outcome into the store."""
    from zero.stages.training import run  # imports torch, whose environment `execution_profile` has set

    inputs = read_inputs(folder)
    if inputs.training_origin != spec.origin:
        raise LineageError(f"the files of training {spec.key()[:12]} belong to another one; start the generation again")
    with stage_costs(inputs, STAGE):
        paths = _output_files(run(inputs, progress))
    # The files before the list that names them: a reader finds either a complete outcome or none.
    files = {path: store.put_file((folder / path).read_bytes()) for path in paths}
    costs = process_costs(folder, STAGE, inputs.generation.number)
    outcome = TrainingOutcome(key=spec.key(), files=files, worker=worker_name(), costs=costs)
    store.put_training(spec.key(), canonical_json(outcome))


def _spec(inputs: Inputs) -> TrainingSpec:
    """The specification of a workspace's training, without its files."""
    profile = execution_profile(inputs.params.profile)
    return TrainingSpec(origin=inputs.training_origin, lock_file=lock_file_digest(), profile=profile, files={})


def _find_outcome(spec: TrainingSpec, store: Store) -> tuple[TrainingOutcome, Checkpoint, dict[str, bytes]] | None:
    """A complete outcome of a training, with its checkpoint and the content of its files, which have been checked.

    None if the store has none; of several, the first by name.
    """
    found = []
    for data in store.get_trainings(spec.key()):
        try:
            outcome = TrainingOutcome.model_validate_json(data)
        except ValidationError:
            continue  # written by another version of this program
        # Outside `try`: a store that does not respond is an error.
        contents = {path: store.get_file(digest) for path, digest in outcome.files.items()}
        files = {path: content for path, content in contents.items() if content is not None}
        try:
            found.append((outcome, _checkpoint(spec, outcome, files), files))
        except StorageError as error:
            log.warning("outcome of training %s by %s ignored: %s", spec.key()[:12], outcome.worker, error)
    if any(files != found[0][2] for _, _, files in found):
        log.warning("two workers made different challengers of training %s; using the first by name", spec.key()[:12])
    return found[0] if found else None


def _checkpoint(spec: TrainingSpec, outcome: TrainingOutcome, files: Mapping[str, bytes]) -> Checkpoint:
    """The checkpoint of an outcome.

    Raises:
      StorageError: the outcome is not complete, or is not of this training.
    """
    if lost := sorted(outcome.files.keys() - files.keys()):
        raise StorageError(f"the store lacks {', '.join(lost)}")
    manifest = f"{CHALLENGER_DIR}/{MANIFEST_FILE}"
    try:
        checkpoint = Checkpoint.model_validate_json(files.get(manifest, b""))
    except ValidationError:
        raise StorageError(f"{manifest} is not the manifest of a challenger") from None
    if outcome.key != spec.key() or checkpoint.origin != spec.origin:
        raise StorageError("it is of another training")
    # Names and digests must agree in both lists: the outcome comes from a worker.
    expected = _output_files(checkpoint)
    if set(expected) != set(files) or any(
        digest not in (None, outcome.files[path]) for path, digest in expected.items()
    ):
        raise StorageError(f"its files are not those that {manifest} names")
    return checkpoint


def _output_files(checkpoint: Checkpoint) -> dict[str, str | None]:
    """Paths in the workspace of a training's output files, with their digests if the challenger's manifest has them.

    The manifest comes last, so that a challenger is complete when its manifest exists.

    Raises:
      StorageError: a path leads out of the challenger's folder.
    """
    refs = checkpoint.files
    if any("/" in ref.path or ref.path in ("", ".", "..") for ref in refs):
        raise StorageError(f"a challenger has no files at {', '.join(ref.path for ref in refs)}")
    files: dict[str, str | None] = {f"{CHALLENGER_DIR}/{ref.path}": ref.sha256 for ref in refs}
    return files | dict.fromkeys((TRAINING_METRICS, TRAINING_CURVE, f"{CHALLENGER_DIR}/{MANIFEST_FILE}"))


def _input(spec: TrainingSpec, path: str, store: Store) -> bytes:
    """Content of an input file.

    Raises:
      StorageError: the store lacks it.
    """
    content = store.get_file(spec.files[path]) if path in spec.files else None
    if content is None:
        raise StorageError(f"{path} of a training is not in the store {store.url}; run the generation again to put it")
    return content


def _remove_finished_siblings(folder: Path, store: Store) -> None:
    """Removes the folders that interrupted trainings left beside `folder`, if the store has their outcomes."""
    for other in folder.parent.glob("*"):
        if other != folder and store.get_trainings(other.name):
            _remove_unless_locked(other)


def _remove_unless_locked(folder: Path) -> None:
    """Removes the folder of a training, unless a process on this machine works in it."""
    # The store can have the outcome while a process works here: another machine may have finished the training first.
    with contextlib.suppress(StorageError), locked(folder, f"a process is at the training in {folder}"):
        shutil.rmtree(folder, ignore_errors=True)


def _files_below(folder: Path, name: str) -> list[str]:
    """Paths relative to `folder` of a file, or of all files below a subfolder."""
    path = folder / name
    if not path.is_dir():
        return [name]
    return sorted(str(file.relative_to(folder)) for file in path.rglob("*") if file.is_file())


def _input_path(folder: Path, path: str) -> Path:
    """Where an input file is written in the working folder.

    Raises:
      StorageError: training does not read this path. A specification comes from outside and must not write elsewhere.
    """
    is_input = path == PARAMS_FILE or any(path == name or path.startswith(f"{name}/") for name in INPUTS)
    if not is_input or {"", ".", ".."} & set(path.split("/")):
        raise StorageError(f"{path!r} is not an input of a training; do not trust the sender of this specification")
    return folder / path
