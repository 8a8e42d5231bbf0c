"""A training done on another machine: what it reads and what it makes go by way of the store, as files by hash.

The stage `training` takes the outcome from the store where it is there whole, and computes it where it is not, as the
other stages do with shards. What a worker puts is believed like a shard; `zero reproduce` computes the training again.

Torch is imported by who trains alone, and only after the profile's environment was set: some of it is read once.
"""

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from zero.config.params import PARAMS_FILE, Params, load_params, parse_params
from zero.errors import LineageError, StorageError
from zero.network.profile import execution_profile
from zero.shards.meter import worker_name
from zero.shards.spec import check_code, lock_file_digest
from zero.stages.costs import StageLine, add_lines, lines_of, stage_costs
from zero.stages.training_inputs import STAGE, training_origin
from zero.storage.files import canonical_json, read_manifest, remove_other_files, sha256_bytes, write_atomic
from zero.storage.layout import (
    CHALLENGER_DIR,
    GENERATION_FILE,
    TRAINEE_DIR,
    TRAINING_CURVE,
    TRAINING_METRICS,
    WINDOW_DIR,
)
from zero.storage.locks import locked
from zero.storage.manifests import MANIFEST_FILE, Checkpoint, GenerationId, Manifest, Origin, Sha256
from zero.storage.store import Store

READ = (GENERATION_FILE, TRAINEE_DIR, WINDOW_DIR)
"""What training reads in a workspace beside the parameters; folders with all that is in them."""

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


class TrainingSpec(Manifest):
    """A training to be done: equal specifications give equal files."""

    origin: Origin
    lock_file: Sha256
    """SHA-256 of constraints.txt."""
    profile: dict[str, str]
    """Execution profile of the machine that planned it, and must do it."""
    files: dict[str, Sha256]
    """What it reads, by path in the workspace; in the store under these hashes."""

    def key(self) -> str:
        """SHA-256 (hex) of what the outcome depends on; the origin names the files' content."""
        return sha256_bytes(canonical_json(self.model_copy(update={"files": {}})))


class TrainingOutcome(Manifest):
    """What came out of a training: its files by path in the workspace, in the store under these hashes."""

    key: Sha256
    files: dict[str, Sha256]
    worker: str
    costs: tuple[StageLine, ...]
    """What the processes spent that have worked on it in the folder where it was done."""


class Finished(NamedTuple):
    """An outcome that the store has whole."""

    checkpoint: Checkpoint
    files: dict[str, bytes]
    worker: str
    costs: tuple[StageLine, ...]


def plan(folder: Path, store: Store, missing: bool) -> TrainingSpec | None:
    """The training of a workspace, everything it reads put into the store; None if only what is `missing` is wanted.

    Raises:
      ParamsError, StorageError: as `zero.stages.training.run`.
    """
    spec = _spec(folder)
    if missing and _finished(spec, store):
        return None
    paths = [path for place in READ for path in _files(folder, place)]
    files = {path: store.put_file((folder / path).read_bytes()) for path in (PARAMS_FILE, *paths)}
    return spec.model_copy(update={"files": files})


def train_into_store(spec: TrainingSpec, store: Store, folder: Path, progress: Progress | None = None) -> None:
    """Does a training and puts its outcome into the store, unless it is there.

    Args:
      spec: what to do.
      store: where its files are, and where the outcome goes.
      folder: to work in; what an interrupted try has left there is gone on with. Removed at the end, and with it those
        beside it that are named by the key of a training which is in the store.
      progress: see `zero.stages.training.run`.

    Raises:
      LineageError: this machine has other sources, another package lock or another profile than the spec names, or the
        files are of another training.
      StorageError: a file is not in the store, it cannot be written, or another process is at this training here.
    """
    check_code(STAGE, spec.origin.engine, spec.lock_file)
    _remove_leftovers(folder, store)
    if not _finished(spec, store):
        places = {path: _inside(folder, path) for path in spec.files}
        params = parse_params(_input(spec, PARAMS_FILE, store).decode())
        for name, here in execution_profile(params.profile).items():
            if spec.profile.get(name) != here:
                raise LineageError(f"this worker's {name} is {here}, the training wants {spec.profile.get(name)}")
        with locked(folder, f"another process is at the training in {folder}; wait for its end"):
            if not _finished(spec, store):  # who had the lock before may have done it
                for path, place in places.items():
                    write_atomic(place, _input(spec, path, store))
                _train(spec, params, store, folder, progress)
    shutil.rmtree(folder, ignore_errors=True)


def _train(spec: TrainingSpec, params: Params, store: Store, folder: Path, progress: Progress | None) -> None:
    """Trains in a folder that has all it takes, and puts the outcome into the store."""
    from zero.stages.training import run

    if training_origin(folder, params) != spec.origin:
        raise LineageError(f"the files of training {spec.key()[:12]} are of another; start the generation again")
    with stage_costs(folder, STAGE):
        made = _made(run(folder, progress))
    files = {path: store.put_file((folder / path).read_bytes()) for path in made}
    costs = lines_of(folder, STAGE, _generation(folder))
    outcome = TrainingOutcome(key=spec.key(), files=files, worker=worker_name(), costs=costs)
    store.put_training(spec.key(), canonical_json(outcome))


def fetch(folder: Path, store: Store) -> Checkpoint | None:
    """Takes the outcome of a workspace's training from the store; None where it is not there, or not whole.

    Raises:
      ParamsError, StorageError: as `zero.stages.training.run`.
    """
    found = _finished(_spec(folder), store)
    if found is None:
        return None
    for path in _made(found.checkpoint):
        write_atomic(folder / path, found.files[path])
    remove_other_files(folder / CHALLENGER_DIR, found.checkpoint.files)
    add_lines(folder, _generation(folder), found.costs)
    log.info("training was done by %s", found.worker)
    return found.checkpoint


def _generation(folder: Path) -> int:
    return read_manifest(folder, GenerationId, GENERATION_FILE).number


def _spec(folder: Path) -> TrainingSpec:
    params = load_params(folder)
    profile = execution_profile(params.profile)
    origin = training_origin(folder, params)
    return TrainingSpec(origin=origin, lock_file=lock_file_digest(), profile=profile, files={})


def _finished(spec: TrainingSpec, store: Store) -> Finished | None:
    """The outcome of a training, its files read and checked; the first by name of those that are whole."""
    outcomes = []
    for data in store.get_trainings(spec.key()):
        try:
            outcomes.append(TrainingOutcome.model_validate_json(data))
        except ValidationError:
            continue  # of another version of this program
    found = []
    for outcome in outcomes:
        contents = {path: store.get_file(digest) for path, digest in outcome.files.items()}
        files = {path: content for path, content in contents.items() if content is not None}
        try:
            found.append(Finished(_checkpoint(spec, outcome, files), files, outcome.worker, outcome.costs))
        except StorageError as error:
            log.warning("what %s made of training %s is not used: %s", outcome.worker, spec.key()[:12], error)
    if any(other.files != found[0].files for other in found):
        log.warning("two workers made different challengers of one training; the first by name is taken")
    return found[0] if found else None


def _checkpoint(spec: TrainingSpec, outcome: TrainingOutcome, files: Mapping[str, bytes]) -> Checkpoint:
    """The checkpoint of an outcome that is one of this training, and whole.

    Raises:
      StorageError: it is not.
    """
    if lost := sorted(outcome.files.keys() - files.keys()):
        raise StorageError(f"the store lacks {', '.join(lost)}")
    manifest = f"{CHALLENGER_DIR}/{MANIFEST_FILE}"
    try:
        checkpoint = Checkpoint.model_validate_json(files.get(manifest, b""))
    except ValidationError:
        raise StorageError(f"{manifest} is no manifest of a challenger") from None
    if outcome.key != spec.key() or checkpoint.origin != spec.origin:
        raise StorageError("it is of another training")
    made = _made(checkpoint)
    if set(made) != set(files) or any(digest not in (None, outcome.files[path]) for path, digest in made.items()):
        raise StorageError(f"its files are not those that {manifest} names")
    return checkpoint


def _made(checkpoint: Checkpoint) -> dict[str, str | None]:
    """The files of a challenger by path in the workspace, with the digests that its manifest tells; that one last.

    Raises:
      StorageError: a path leads elsewhere.
    """
    refs = checkpoint.files
    if any("/" in ref.path or ref.path in ("", ".", "..") for ref in refs):
        raise StorageError(f"a challenger has no files at {', '.join(ref.path for ref in refs)}")
    files: dict[str, str | None] = {f"{CHALLENGER_DIR}/{ref.path}": ref.sha256 for ref in refs}
    return files | dict.fromkeys((TRAINING_METRICS, TRAINING_CURVE, f"{CHALLENGER_DIR}/{MANIFEST_FILE}"))


def _input(spec: TrainingSpec, path: str, store: Store) -> bytes:
    """A file that a training reads.

    Raises:
      StorageError: the store lacks it.
    """
    content = store.get_file(spec.files[path]) if path in spec.files else None
    if content is None:
        raise StorageError(f"{path} of a training is not in the store {store.url}; run the generation again to put it")
    return content


def _remove_leftovers(folder: Path, store: Store) -> None:
    """Removes what killed tries of other trainings have left beside `folder`, where the store has their outcome."""
    for other in folder.parent.glob("*"):
        if other != folder and store.get_trainings(other.name):
            shutil.rmtree(other, ignore_errors=True)


def _files(folder: Path, place: str) -> list[str]:
    """Paths in the workspace of a file, or of all files below a folder."""
    path = folder / place
    if not path.is_dir():
        return [place]
    return sorted(str(file.relative_to(folder)) for file in path.rglob("*") if file.is_file())


def _inside(folder: Path, path: str) -> Path:
    """The place of a file that training reads.

    Raises:
      StorageError: its path leads elsewhere.
    """
    known = path == PARAMS_FILE or any(path == place or path.startswith(f"{place}/") for place in READ)
    if not known or {"", ".", ".."} & set(path.split("/")):
        raise StorageError(f"{path!r} is no file that training reads; somebody else has asked for this training")
    return folder / path
