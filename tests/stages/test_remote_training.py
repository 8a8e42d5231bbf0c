"""Training through the store: it gives the bytes of a local training, and only complete outcomes are accepted."""

import fcntl
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.made_games import made_params, write_workspace
from zero.cli.shards import train
from zero.errors import LineageError, StorageError
from zero.stages import remote_training, replay
from zero.stages.costs import process_costs
from zero.stages.inputs import read_inputs
from zero.stages.meter import worker_name
from zero.stages.remote_training import TrainingSpec, fetch, train_into_store
from zero.stages.training import run
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import Checkpoint
from zero.storage.store import Store

HOOK = """
import os, sys
from zero.cli import main

def hook(event, arguments):
    if event == "import" and arguments[0] == "torch":
        print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
        os._exit(0)

assert "torch" not in sys.modules
sys.addaudithook(hook)
sys.argv = ["zero", "train"]
main()
"""
"""`zero train`, until it imports torch."""
QUERY = """
import sys
from pathlib import Path
import zero.cli.stages
from zero.stages.inputs import read_inputs
from zero.stages.remote_training import fetch, plan
from zero.storage.store import Store
folder, store = Path(sys.argv[1]), Store(sys.argv[2])
assert plan(read_inputs(folder), store, only_missing=True) is None and fetch(read_inputs(folder), store)
assert "torch" not in sys.modules
"""
CHALLENGER = "models/challenger"
MANIFEST = f"{CHALLENGER}/manifest.json"
MADE = (
    MANIFEST,
    *(f"models/challenger/{name}.safetensors" for name in ("weights", "optimizer", "raw-weights")),
    *("metrics/training.json", "plots/training.csv"),
)

Files = dict[str, bytes]


def plan(folder: Path, store: Store) -> TrainingSpec | None:
    """The training of a workspace; None if the store has its outcome."""
    return remote_training.plan(read_inputs(folder), store, only_missing=True)


class Trained(NamedTuple):
    """A workspace whose training was executed through a store."""

    folder: Path
    store: Store
    spec: TrainingSpec
    work: Path
    """Working folder of another attempt."""
    files: Files
    """Output files of the training."""

    def is_done(self) -> bool:
        """Whether the plan and the fetch find the outcome; they must agree."""
        planned = plan(self.folder, self.store)
        assert planned in (None, self.spec)
        fetched = fetch(read_inputs(self.folder), self.store)
        assert (planned is None) == (fetched is not None)
        return planned is None

    def train(self) -> int:
        """Trains into the store, and returns the number of steps."""
        steps: list[int] = []
        train_into_store(self.spec, self.store, self.work, lambda done, _: steps.append(done))
        assert not self.work.exists()
        return len(steps)

    def put_outcome(self, files: Files) -> None:
        """Replaces the outcome in the store."""
        digests = {path: self.store.put_file(data) for path, data in files.items()}
        shutil.rmtree(Path(self.store.url) / "trainings")
        outcome = {"key": self.spec.key(), "files": digests, "worker": "mallory", "costs": []}
        self.store.put_training(self.spec.key(), json.dumps(outcome).encode())


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Trained:
    folder, scratch = tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("worker")
    store = Store(str(scratch / "store"))
    write_workspace(folder, made_params(ema_decay=0.9))
    replay.run(read_inputs(folder), store)
    spec = plan(folder, store)
    assert spec is not None and fetch(read_inputs(folder), store) is None
    train_into_store(spec, store, scratch / "work")
    assert not (scratch / "work").exists()
    assert fetch(read_inputs(folder), store) is not None
    files = {path: (folder / path).read_bytes() for path in MADE}
    return Trained(folder, store, spec, scratch / "work", files)


@pytest.fixture
def trained(original: Trained, tmp_path: Path) -> Trained:
    """A copy that a test may change."""
    shutil.copytree(original.folder, tmp_path / "workspace")
    shutil.copytree(original.store.url, tmp_path / "store")
    copy = original._replace(folder=tmp_path / "workspace", store=Store(str(tmp_path / "store")))
    return copy._replace(work=tmp_path / ".zero" / "trainings" / copy.spec.key())


def zero_train(trained: Trained, spec: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs `zero train` on a machine whose working folder of this training is `trained.work`."""
    home = trained.work.parents[2]
    settings = {"ZERO_HOME": str(home), "ZERO_STORE": trained.store.url, "ZERO_PROGRESS": "json"}
    command = [sys.executable, *(arguments or ("-m", "zero", "train"))]
    return subprocess.run(
        command, env=os.environ | settings, input=spec, capture_output=True, text=True, timeout=600, check=False
    )


def test_looking_up_an_outcome_does_not_import_torch(trained: Trained):
    subprocess.run([sys.executable, "-c", QUERY, trained.folder, trained.store.url], timeout=600, check=True)


def test_a_worker_and_a_local_training_give_the_same_bytes(trained: Trained):
    assert trained.is_done()
    run(read_inputs(trained.folder))
    assert {path: (trained.folder / path).read_bytes() for path in MADE} == trained.files


def test_the_costs_of_a_worker_are_counted_once(trained: Trained):
    for _ in range(2):
        assert trained.is_done()
        (line,) = process_costs(trained.folder, "training", 1)
        assert line.worker == worker_name()
        assert 0 < line.seconds < 600
        assert line.cpu_seconds > 0


def test_a_worker_sets_the_environment_before_it_imports_torch(trained: Trained, monkeypatch: pytest.MonkeyPatch):
    shutil.rmtree(Path(trained.store.url) / "trainings")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    done = zero_train(trained, trained.spec.model_dump_json(), "-c", HOOK)
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


def test_the_command_trains_from_the_store_into_the_store(trained: Trained):
    shutil.rmtree(Path(trained.store.url) / "trainings")
    done = zero_train(trained, trained.spec.model_dump_json())
    assert done.returncode == 0, done.stderr
    *progress, last = done.stdout.splitlines()
    assert json.loads(progress[-1]) == {"event": "progress", "stage": "training", "done": 10, "total": 10}
    assert last == f"the challenger of made, generation 1, is in {trained.store.url}"
    assert not list(trained.work.parent.iterdir())
    assert trained.is_done()
    assert {path: (trained.folder / path).read_bytes() for path in MADE} == trained.files


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda spec: "", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        (lambda spec: json.dumps(spec | {"warm_start": "x"}), "warm_start: Extra inputs are not permitted"),
        (lambda spec: json.dumps(spec | {"origin": {}}), "origin: stage: Field required"),
    ],
)
def test_the_command_rejects_a_specification_of_other_code(
    original: Trained, change: Callable[[dict[str, Any]], str], cause: str, monkeypatch: pytest.MonkeyPatch
):
    text = change(original.spec.model_dump(mode="json"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    message = f"this worker's code does not know this training specification: {cause}; check out the lineage's code"
    with pytest.raises(LineageError, match=re.escape(message)):
        train()


def test_a_finished_training_is_not_repeated_and_stale_folders_are_removed(trained: Trained):
    other, unknown, foreign = (trained.work.parent / name for name in ("ab" * 32, "cd" * 32, "notes"))
    for folder in (trained.work, other, unknown, foreign):
        folder.mkdir(parents=True)
    trained.store.put_training(other.name, b"finished by another machine")
    assert trained.train() == 0
    assert sorted(trained.work.parent.iterdir()) == [unknown, foreign]


def test_an_incomplete_outcome_is_computed_again(trained: Trained):
    file = Path(trained.store.url) / "files" / sha256_bytes(trained.files["models/challenger/optimizer.safetensors"])
    file.write_bytes(bytes(file.stat().st_size))
    assert not trained.is_done(), "it is corrupt, and then quarantined"
    assert not file.exists() and not trained.is_done()
    assert trained.train() == 10
    assert trained.is_done()


def with_manifest(files: Files, **changes: object) -> Files:
    checkpoint = Checkpoint.model_validate_json(files[MANIFEST])
    return files | {MANIFEST: canonical_json(checkpoint.model_copy(update=changes))}


def of_another_training(files: Files) -> Files:
    origin = Checkpoint.model_validate_json(files[MANIFEST]).origin
    return with_manifest(files, origin=origin.model_copy(update={"generation": 7}))


def with_weights_elsewhere(files: Files) -> Files:
    weights = Checkpoint.model_validate_json(files[MANIFEST]).weights
    moved = weights.model_copy(update={"path": "../../../elsewhere"})
    content = files[f"{CHALLENGER}/weights.safetensors"]
    return with_manifest(files, weights=moved) | {f"{CHALLENGER}/{moved.path}": content}


@pytest.mark.parametrize(
    "change",
    [
        of_another_training,
        lambda files: files | {f"{CHALLENGER}/raw-weights.safetensors": files[f"{CHALLENGER}/weights.safetensors"]},
        lambda files: files | {f"{CHALLENGER}/../../../elsewhere": b""},
        with_weights_elsewhere,
        lambda files: {path: data for path, data in files.items() if path != "plots/training.csv"},
        lambda files: files | {MANIFEST: b"{}"},
    ],
    ids=["another training", "other raw weights", "a file elsewhere", "weights elsewhere", "no curve", "no manifest"],
)
def test_a_wrong_outcome_is_ignored(trained: Trained, caplog, change: Callable[[Files], Files]):
    trained.put_outcome(change(trained.files))
    assert not trained.is_done()
    assert "by mallory ignored" in caplog.text
    assert not (trained.folder.parent / "elsewhere").exists()


@pytest.mark.parametrize(
    "path", ["data/window/../../../elsewhere", "/elsewhere", "models/challenger/manifest.json", ""]
)
def test_a_worker_writes_only_input_files(trained: Trained, path: str):
    shutil.rmtree(Path(trained.store.url) / "trainings")
    spec = trained.spec.model_copy(update={"files": {**trained.spec.files, path: trained.store.put_file(b"bad")}})
    with pytest.raises(StorageError, match="is not an input of a training"):
        train_into_store(spec, trained.store, trained.work)
    assert not trained.work.exists()


def test_of_two_workers_with_the_same_folder_the_second_waits(trained: Trained, caplog: pytest.LogCaptureFixture):
    """The first may belong to a flow that was killed."""
    shutil.rmtree(Path(trained.store.url) / "trainings")
    trained.work.mkdir(parents=True)
    with ThreadPoolExecutor(1) as threads, (trained.work / "lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = threads.submit(train_into_store, trained.spec, trained.store, trained.work)
        deadline = time.monotonic() + 300.0
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.05)
        assert caplog.messages == [f"another process is at the training in {trained.work}; waiting for its end"]
        assert [path.name for path in trained.work.iterdir()] == ["lock"] and not second.done()
        other.close()
        second.result()
    assert trained.is_done()


def test_a_worker_that_waited_takes_the_outcome_of_the_other(trained: Trained, caplog: pytest.LogCaptureFixture):
    """The first puts its outcome into the store and removes the folder, with the lock for which the second waits."""
    shutil.move(Path(trained.store.url) / "trainings", trained.folder / "outcomes")
    trained.work.mkdir(parents=True)
    steps: list[int] = []
    with ThreadPoolExecutor(1) as threads, (trained.work / "lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = threads.submit(
            train_into_store, trained.spec, trained.store, trained.work, lambda done, _: steps.append(done)
        )
        deadline = time.monotonic() + 300.0
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.move(trained.folder / "outcomes", Path(trained.store.url) / "trainings")
        shutil.rmtree(trained.work)
        other.close()
        second.result()
    assert not steps and not trained.work.exists()


def test_the_folder_of_a_running_training_stays_although_another_machine_has_finished_it(trained: Trained):
    sibling = trained.work.parent / ("ab" * 32)
    trained.store.put_training(sibling.name, b"finished by another machine")
    for folder in (trained.work, sibling):
        folder.mkdir(parents=True)
        with (folder / "lock").open("a") as running:
            fcntl.flock(running, fcntl.LOCK_EX)
            train_into_store(trained.spec, trained.store, trained.work)
            assert [path.name for path in folder.iterdir()] == ["lock"]
    assert trained.train() == 0
    assert not list(trained.work.parent.iterdir())


def test_a_worker_rejects_files_of_another_training(trained: Trained):
    origin = trained.spec.origin.model_copy(update={"generation": 7})
    with pytest.raises(LineageError, match=r"the files of training .* belong to another"):
        train_into_store(trained.spec.model_copy(update={"origin": origin}), trained.store, trained.work)


def test_a_worker_with_another_profile_rejects_the_training_and_leaves_no_files(trained: Trained):
    spec = trained.spec.model_copy(update={"profile": {**trained.spec.profile, "torch": "0.4"}})
    with pytest.raises(
        LineageError, match=r"this worker's torch is .*, the specification has 0\.4; use a machine with"
    ):
        train_into_store(spec, trained.store, trained.work)
    assert not trained.work.exists()
