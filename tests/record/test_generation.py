"""The view of a generation: a work tree, and a commit with DVC's cache, give the same answers."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.project import git
from tests.made_generations import recorded_in
from tests.parameters import smoke_text
from tests.tracking.lineage import Lineage
from zero.errors import LineageError, StorageError
from zero.record.generation import Generation, in_progress
from zero.record.history import Line
from zero.record.objects import CommittedFiles, DataCache, GitReader, Out
from zero.storage.files import write_manifest
from zero.storage.layout import GENERATION_FILE
from zero.storage.manifests import GenerationId

OUTS = ("data/window", "models/challenger")
MD5 = f"{'a' * 32}.dir"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Generation 1 of a made lineage in a work tree."""
    lineage = Lineage(tmp_path / "made", "go9")
    lineage.start()
    return lineage.add(promoted=True)


def md5_of(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def put(cache: DataCache, content: bytes, suffix: str = "") -> str:
    """Adds content to a cache and returns its MD5."""
    md5 = md5_of(content) + suffix
    cache.path(md5).parent.mkdir(parents=True, exist_ok=True)
    cache.path(md5).write_bytes(content)
    return md5


def put_folder(cache: DataCache, folder: Path) -> str:
    """Adds a folder to a cache as DVC does: its files, and the list of them."""
    files = [{"md5": put(cache, each.read_bytes()), "relpath": each.name} for each in sorted(folder.iterdir())]
    return put(cache, json.dumps(files, sort_keys=True).encode(), ".dir")


def test_both_backends_give_the_same_view(folder: Path, tmp_path: Path) -> None:
    cache = DataCache(tmp_path / "cache")
    outs = [{"path": path, "md5": put_folder(cache, folder / path)} for path in OUTS]
    (folder / "dvc.lock").write_text(yaml.safe_dump({"stages": {"all": {"outs": outs}}}))
    champion = {"outs": [{"path": "champion", "md5": put_folder(cache, folder / "state/champion"), "hash": "md5"}]}
    (folder / "state/champion.dvc").write_text(yaml.safe_dump(champion))
    tree = recorded_in(folder)
    clone = Path(shutil.copytree(folder, tmp_path / "clone"))
    for path in (*OUTS, "state/champion"):
        shutil.rmtree(clone / path)
    git(clone, "init", "--quiet")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "generation 1")
    assert tree.line is not None and tree.line.entry is not None
    with GitReader(clone) as reader:
        files = CommittedFiles(reader, cache, git(clone, "rev-parse", "HEAD").strip())
        committed = Generation("go9", 1, files, Line(tree.line.text, tree.line.entry))
        for name in (
            *("tag", "entry", "ledger", "params", "lock_digest", "outs", "state_outs", "decision", "attestation"),
            *("health", "costs", "window", "challenger", "champion", "trainee", "games", "origins", "next_state"),
        ):
            assert getattr(committed, name) == getattr(tree, name), name
        weights = committed.data("models/challenger", "weights.safetensors")
        assert weights == tree.data("models/challenger", "weights.safetensors")
        assert weights is not None
        assert committed.is_here("models/challenger") and not committed.is_here("data/games")
        assert committed.recorded_ms is not None and tree.recorded_ms is None


def test_a_missing_object_of_the_cache_is_none(folder: Path, tmp_path: Path) -> None:
    (folder / "dvc.lock").write_text(
        yaml.safe_dump({"stages": {"all": {"outs": [{"path": "data/window", "md5": f"{'a' * 32}.dir"}]}}})
    )
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "generation 1")
    line = recorded_in(folder).line
    with GitReader(folder) as reader:
        made = Generation("go9", 1, CommittedFiles(reader, DataCache(tmp_path / "empty"), "HEAD"), line)
        assert made.window is None and made.data_path("data/window", "manifest.json") is None


@pytest.mark.parametrize("path", ["datasets/made", "./datasets/made", "datasets//made/"])
def test_a_dataset_is_found_by_each_form_of_its_path(tmp_path: Path, path: str) -> None:
    (tmp_path / "params.yaml").write_text(smoke_text().replace("dataset: ''", f"dataset: {path}"))
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets/made.dvc").write_text(f"outs: [{{md5: {MD5}, hash: md5, path: made}}]")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "generation 0")
    with GitReader(tmp_path) as reader:
        made = Generation("go9", 0, CommittedFiles(reader, DataCache(tmp_path / "empty"), "HEAD"), None)
        assert made.dataset_out == Out("datasets/made", MD5, cached=True)


def test_files_that_only_the_other_clone_has_are_listed(tmp_path: Path) -> None:
    """A tag may have been fetched into the project, and not into the workspace."""
    for name in ("workspace", "project"):
        (tmp_path / name / "zero").mkdir(parents=True)
        (tmp_path / name / "zero/a.py").write_text(f"# {name}\n")
        git(tmp_path / name, "init", "--quiet")
        git(tmp_path / name, "add", "--all")
        git(tmp_path / name, "commit", "--quiet", "-m", name)
    commit = git(tmp_path / "project", "rev-parse", "HEAD").strip()
    with GitReader(tmp_path / "workspace", also=tmp_path / "project") as reader:
        files = reader.files(f"{commit}:zero")
    assert files == {"a.py": git(tmp_path / "project", "rev-parse", "HEAD:zero/a.py").strip()}


def test_a_git_that_ended_is_one_error(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    with pytest.raises(LineageError, match="git ended while reading HEAD:a in "), GitReader(tmp_path) as reader:
        reader._process.kill()
        reader._process.wait()
        reader.read("HEAD:a")


def test_a_path_of_two_lines_is_no_object_and_the_next_answer_is_right(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "two files")
    with GitReader(tmp_path) as reader:
        assert reader.read("HEAD:nothing\nHEAD:a") is None
        assert reader.read("HEAD:b") == b"b"


@pytest.mark.parametrize(
    "text", ["stages: [", "stages: 2020-13-45", "stages: 7", "[" * 100_000, "a: !!bool b", "a: &b {}\nc: *b"]
)
def test_a_lock_that_is_no_lock_has_no_outputs(folder: Path, text: str) -> None:
    (folder / "dvc.lock").write_text(text)
    assert recorded_in(folder).outs == {}


def test_a_generation_in_progress_has_no_entry(folder: Path) -> None:
    write_manifest(folder, GenerationId(lineage="go9", number=2, resign_threshold=-0.9), GENERATION_FILE)
    made = in_progress(folder)
    assert (made.tag, made.entry, made.outs) == ("go9/gen-0002", None, {})
    assert made.champion is not None and made.next_state is None


def test_a_workspace_without_the_file_of_its_generation_is_named(folder: Path) -> None:
    with pytest.raises(StorageError, match=r"state/generation\.json is missing or unreadable; run `dvc checkout`"):
        in_progress(folder)
