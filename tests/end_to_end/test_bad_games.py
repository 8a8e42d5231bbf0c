"""Games that are wrong in a real lineage: caught by the stage that must, kept out of the record, and played again."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.end_to_end.project import dvc, edit_params, make_project, zero
from zero.artifacts import FileRef, GameRecord, GameSet, ShardRef, read_manifest, sha256_bytes, write_manifest
from zero.presets import preset_text
from zero.shards.records import game_record, read_records, write_records

SMALL = {"selfplay__num_games": 16, "selfplay__games_per_shard": 8, "gating__num_games": 8, "training__num_steps": 4}


class Lineage(NamedTuple):
    """A lineage whose first generation is made, not yet recorded."""

    home: Path
    workspace: Path
    lock: bytes

    @property
    def ref(self) -> ShardRef:
        """Its second shard of self-play."""
        return read_manifest(self.workspace / "data/games", GameSet).shards[1]

    def in_store(self) -> Path:
        (path,) = (self.home / ".zero/store/shards" / self.ref.key[:2]).glob(f"{self.ref.key}.*.parquet")
        return path

    def is_as_it_was(self) -> bool:
        return (self.workspace / "dvc.lock").read_bytes() == self.lock


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    home = make_project(tmp_path_factory.mktemp("home"))
    (home / "small.yaml").write_text(edit_params(preset_text("smoke"), executor__num_processes=2, **SMALL))
    zero(home, "new", "tiny", "--params", "small.yaml")
    zero(home, "prepare", "tiny")
    workspace = home / ".zero/workspaces/tiny"
    dvc(workspace, "repro")
    return Lineage(home, workspace, (workspace / "dvc.lock").read_bytes())


def changed(data: bytes, change: Callable[[GameRecord], GameRecord]) -> bytes:
    """A shard whose shortest game is another one."""
    games = read_records(data, "shard")
    records = [game_record(games, index) for index in range(games.num_games)]
    index = int(np.diff(games.move_offsets).argmin())
    records[index] = change(records[index])
    return write_records(records)


def nudged(game: GameRecord) -> GameRecord:
    values = game.root_values.copy()
    values[2] = np.nextafter(values[2], np.float32(2.0))
    return game._replace(root_values=values)


def test_games_that_dvc_believes_in_are_refused_by_replay_and_played_again(lineage: Lineage) -> None:
    games_dir, ref = lineage.workspace / "data/games", lineage.ref
    games = read_manifest(games_dir, GameSet)
    false = changed((games_dir / ref.file.path).read_bytes(), lambda game: game._replace(outcome=-game.outcome))
    for path in (games_dir / ref.file.path, games_dir / "manifest.json"):
        path.unlink()  # a link into DVC's cache
    (games_dir / ref.file.path).write_bytes(false)
    file = FileRef(path=ref.file.path, sha256=sha256_bytes(false), num_bytes=len(false))
    shards = (games.shards[0], ref.model_copy(update={"file": file}))
    write_manifest(games_dir, games.model_copy(update={"shards": shards}))
    dvc(lineage.workspace, "commit", "--force", "selfplay")
    refused = dvc(lineage.workspace, "repro", check=False)
    assert refused.returncode != 0
    assert "breaks the data contract" in refused.stderr and "another outcome than recorded" in refused.stderr
    again = dvc(lineage.workspace, "repro")
    assert "Running stage 'selfplay'" in again.stdout
    assert lineage.is_as_it_was()


def test_a_wrong_shard_that_looks_right_ends_the_generation_and_is_played_again(lineage: Lineage) -> None:
    stored = lineage.in_store()
    false = changed(stored.read_bytes(), nudged)
    stored.with_name(f"{lineage.ref.key}.{sha256_bytes(false)}.parquet").write_bytes(false)
    stored.unlink()
    dvc(lineage.workspace, "repro", "--single-item", "--force", "selfplay")
    refused = dvc(lineage.workspace, "repro", check=False)
    assert refused.returncode != 0
    assert "shard-0001.parquet, played twice, gave two results: game" in refused.stderr
    assert "move 2: root_values" in refused.stderr
    unfinished = zero(lineage.home, "advance", "tiny", check=False)
    assert unfinished.returncode == 1 and "is not finished" in unfinished.stderr
    dvc(lineage.workspace, "repro")
    assert lineage.is_as_it_was()
