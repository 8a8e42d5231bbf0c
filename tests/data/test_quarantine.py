"""Quarantine with a real DVC: the next `dvc repro` runs the stage again instead of restoring its output."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.end_to_end.project import dvc, git
from zero.data.quarantine import has_missing_shards, quarantine_games
from zero.storage.files import read_manifest
from zero.storage.manifests import GameSet, ShardRef
from zero.storage.store import Store

STAGE = """
import hashlib, json, pathlib
runs = pathlib.Path("runs.txt")
runs.write_text(runs.read_text() + "run\\n" if runs.exists() else "run\\n")
folder = pathlib.Path("data/games")
folder.mkdir(parents=True)
data = b"games"
(folder / "shard-0000.parquet").write_bytes(data)
file = {"path": "shard-0000.parquet", "sha256": hashlib.sha256(data).hexdigest(), "num_bytes": len(data)}
shard = {"file": file, "key": "0" * 64, "generation": 3, "first_game": 0, "num_games": 1, "num_positions": 1}
origin = {"stage": "selfplay", "lineage": "made", "generation": 3, "seed": 1, "params_digest": "0" * 64,
          "engine": "0" * 64, "inputs": {}}
manifest = {"origin": origin, "shards": [shard], "num_games": 1, "num_positions": 1}
(folder / "manifest.json").write_text(json.dumps(manifest))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one stage that has run once."""
    folder = tmp_path_factory.mktemp("made")
    git(folder, "init", "--quiet")
    dvc(folder, "init", "--quiet")
    (folder / "play.py").write_text(STAGE)
    stage = {"cmd": f"{sys.executable} play.py", "deps": ["play.py"], "outs": ["data/games"]}
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {"selfplay": stage}}))
    dvc(folder, "repro")
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "workspace"))


def shard_of(workspace: Path) -> ShardRef:
    return read_manifest(workspace / "data/games", GameSet).shards[0]


def test_dvc_alone_would_restore_the_games(workspace):
    """DVC restores missing outputs from its cache. If that changes, the quarantine of its listing can be removed."""
    (workspace / "data/games/shard-0000.parquet").unlink()
    assert "is cached - skipping run" in dvc(workspace, "repro").stdout
    assert (workspace / "data/games/shard-0000.parquet").exists()


def test_the_next_repro_plays_quarantined_games_again(workspace):
    ref, lock = shard_of(workspace), (workspace / "dvc.lock").read_bytes()
    store = Store(str(workspace / "store"))
    store.put_shard(ref.key, b"games")
    quarantine_games(workspace, "data/games", ref, "they are a test", store)
    assert has_missing_shards(workspace, "data/games")
    assert store.get_shard(ref.key) is None
    dvc(workspace, "repro")
    assert (workspace / "runs.txt").read_text() == "run\nrun\n"
    assert not has_missing_shards(workspace, "data/games")
    assert (workspace / "dvc.lock").read_bytes() == lock
    aside = workspace / ".zero/quarantine"
    assert (aside / "gen-0003-games-shard-0000.parquet").read_bytes() == b"games"
    assert (aside / "gen-0003-games-shard-0000.parquet.reason.txt").read_text() == "they are a test\n"
    assert len(list(aside.glob("*.dir"))) == 1


def test_the_listing_of_a_committed_output_stays_in_the_cache(workspace):
    """An audit plays recorded games again in a clone that shares the project's cache."""
    git(workspace, "add", "--all")
    git(workspace, "commit", "--quiet", "-m", "generation")
    before = sorted((workspace / ".dvc/cache").rglob("*.dir"))
    quarantine_games(workspace, "data/games", shard_of(workspace), "they are a test", None)
    assert sorted((workspace / ".dvc/cache").rglob("*.dir")) == before != []
    assert has_missing_shards(workspace, "data/games")


def test_a_second_quarantine_of_a_missing_shard_keeps_the_first_copy(workspace):
    ref = shard_of(workspace)
    for reason in ("one game is bad", "another game is bad"):
        quarantine_games(workspace, "data/games", ref, reason, None)
    aside = workspace / ".zero/quarantine"
    assert (aside / "gen-0003-games-shard-0000.parquet").read_bytes() == b"games"
    assert len(list(aside.glob("*.dir"))) == 1


def test_a_corrupt_file_is_quarantined_and_the_store_keeps_its_copy(workspace):
    ref, store = shard_of(workspace), Store(str(workspace / "store"))
    store.put_shard(ref.key, b"games")
    for folder in (workspace, workspace, workspace / "without-dvc"):  # the second time the file is not there any more
        quarantine_games(folder, "data/games", ref, "altered", None)
        assert has_missing_shards(folder, "data/games")
        assert (folder / ".zero/quarantine/gen-0003-games-shard-0000.parquet.reason.txt").exists()
    assert store.get_shard(ref.key) is not None
