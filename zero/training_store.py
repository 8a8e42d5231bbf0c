"""A training done on another machine: what it reads and what it makes go by way of the store, as files by hash.

The stage `training` takes the outcome from the store where it is there, and computes it where it is not, as the other
stages do with shards. What a worker puts is believed like a shard; `zero reproduce` computes the training again.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from zero.artifacts import (
    MANIFEST_FILE,
    Checkpoint,
    Manifest,
    Origin,
    Sha256,
    canonical_json,
    checked_path,
    read_manifest,
    sha256_bytes,
    write_whole,
)
from zero.errors import LineageError, StorageError
from zero.network.profile import execution_profile
from zero.params import PARAMS_FILE, load_params
from zero.shards.meter import worker_name
from zero.shards.spec import check_code, lock_file_digest
from zero.storage import Store
from zero.training import CHALLENGER_DIR, METRICS_FILE, PLOT_FILE, STAGE, TRAINEE_DIR, run, training_origin
from zero.window import GENERATION_FILE, STATE_DIR, WINDOW_DIR

READ = (f"{STATE_DIR}/{GENERATION_FILE}", TRAINEE_DIR, WINDOW_DIR)
"""What training reads in a workspace beside the parameters; folders with all that is in them."""
MADE = (CHALLENGER_DIR, METRICS_FILE, PLOT_FILE)

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


def plan(folder: Path, store: Store, missing: bool) -> TrainingSpec | None:
    """The training of a workspace, everything it reads put into the store; None if only what is `missing` is wanted.

    Raises:
      ParamsError, StorageError: as `zero.training.run`.
    """
    spec = _spec(folder)
    if missing and _outcomes(spec.key(), store):
        return None
    paths = [path for place in READ for path in _files(folder, place)]
    files = {path: store.put_file((folder / path).read_bytes()) for path in (PARAMS_FILE, *paths)}
    return spec.model_copy(update={"files": files})


def train_into_store(spec: TrainingSpec, store: Store, folder: Path, progress: Progress | None = None) -> None:
    """Does a training and puts its outcome into the store.

    Args:
      spec: what to do.
      store: where its files are, and where the outcome goes.
      folder: to work in; what an interrupted try has left there is gone on with. Removed at the end.
      progress: see `zero.training.run`.

    Raises:
      LineageError: this machine has other sources, another package lock or another profile than the spec names.
      StorageError: a file is not in the store, or it cannot be written.
    """
    check_code(STAGE, spec.origin.engine, spec.lock_file)
    if _outcomes(spec.key(), store):
        return
    for path, digest in spec.files.items():
        data = store.get_file(digest)
        if data is None:
            raise StorageError(f"{path} ({digest[:12]}) is not in the store {store.url}; start the training again")
        write_whole(_inside(folder, path), data)
    for name, here in execution_profile(load_params(folder).profile).items():
        if spec.profile.get(name) != here:
            raise LineageError(f"this worker's {name} is {here}, the training wants {spec.profile.get(name)}")
    run(folder, progress)
    made = [path for place in MADE for path in _files(folder, place)]
    files = {path: store.put_file((folder / path).read_bytes()) for path in made}
    outcome = TrainingOutcome(key=spec.key(), files=files, worker=worker_name())
    store.put_training(spec.key(), canonical_json(outcome))
    shutil.rmtree(folder, ignore_errors=True)


def fetch(folder: Path, store: Store) -> Checkpoint | None:
    """Takes the outcome of a workspace's training from the store; None where it is not there, or not whole.

    Raises:
      ParamsError, StorageError: as `zero.training.run`.
    """
    spec = _spec(folder)
    for outcome in _outcomes(spec.key(), store):
        contents = {path: store.get_file(digest) for path, digest in outcome.files.items()}
        whole = {path: data for path, data in contents.items() if data is not None}
        if len(whole) < len(contents) or f"{CHALLENGER_DIR}/{MANIFEST_FILE}" not in whole:
            continue
        for path, data in whole.items():
            write_whole(_inside(folder, path), data)
        checkpoint = read_manifest(folder / CHALLENGER_DIR, Checkpoint)
        checked_path(checkpoint.weights, folder / CHALLENGER_DIR)
        if checkpoint.raw_weights is None:
            (folder / CHALLENGER_DIR / "raw-weights.safetensors").unlink(missing_ok=True)
        log.info("training was done by %s", outcome.worker)
        return checkpoint
    return None


def _spec(folder: Path) -> TrainingSpec:
    params = load_params(folder)
    return TrainingSpec(
        origin=training_origin(folder, params),
        lock_file=lock_file_digest(),
        profile=execution_profile(params.profile),
        files={},
    )


def _outcomes(key: str, store: Store) -> list[TrainingOutcome]:
    outcomes = []
    for data in store.get_trainings(key):
        try:
            outcome = TrainingOutcome.model_validate_json(data)
        except ValidationError:
            continue  # of another version of this program
        if outcome.key == key:
            outcomes.append(outcome)
    if len({tuple(sorted(outcome.files.items())) for outcome in outcomes}) > 1:
        log.warning("two workers made different challengers of one training; the first by name is taken")
    return outcomes


def _files(folder: Path, place: str) -> list[str]:
    """Paths in the workspace of a file, or of all files below a folder."""
    path = folder / place
    if not path.is_dir():
        return [place]
    return sorted(str(file.relative_to(folder)) for file in path.rglob("*") if file.is_file())


def _inside(folder: Path, path: str) -> Path:
    """The place of a file in a workspace.

    Raises:
      StorageError: its path leads out of the places that a training reads or writes.
    """
    parts = path.split("/")
    known = path == PARAMS_FILE or any(path == place or path.startswith(f"{place}/") for place in (*READ, *MADE))
    if not known or {"", ".", ".."} & set(parts):
        raise StorageError(f"{path!r} is no file of a training; somebody else has written into this store")
    return folder / path
