"""Wrong games in a real lineage are caught by a stage, kept out of the record, and played again."""

from collections.abc import Callable

import numpy as np

from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import dvc, zero
from tests.made_games import records_of, replace_shard
from zero.data.records import read_records, write_records
from zero.storage.files import read_manifest, sha256_bytes
from zero.storage.manifests import GameRecord, GameSet, ShardRef

NUM_SLOTS = 8
"""Of the `smoke` preset."""


def second_shard(lineage: Lineage) -> ShardRef:
    """Of its self-play."""
    return read_manifest(lineage.workspace / "data/games", GameSet).shards[1]


def lock_of(lineage: Lineage) -> bytes:
    return (lineage.workspace / "dvc.lock").read_bytes()


def changed(games: list[GameRecord], change: Callable[[GameRecord], GameRecord]) -> list[GameRecord]:
    """The games of a shard, in which the first game to end is another one."""
    first = min(games[:NUM_SLOTS], key=lambda game: len(game.actions))
    return [change(game) if game is first else game for game in games]


def nudged(game: GameRecord) -> GameRecord:
    values = game.root_values.copy()
    values[2] = np.nextafter(values[2], np.float32(2.0))
    return game._replace(root_values=values)


def test_wrong_games_with_a_matching_lock_are_refused_by_replay_and_played_again(unrecorded: Lineage) -> None:
    lock, workspace = lock_of(unrecorded), unrecorded.workspace
    replace_shard(
        workspace / "data/games", 1, lambda games: changed(games, lambda game: game._replace(outcome=-game.outcome))
    )
    dvc(workspace, "commit", "--force", "selfplay")
    refused = dvc(workspace, "repro", check=False)
    assert refused.returncode != 0
    assert "breaks the data contract" in refused.stderr and "the recorded outcome is wrong" in refused.stderr
    again = dvc(workspace, "repro")
    assert "Running stage 'selfplay'" in again.stdout
    assert lock_of(unrecorded) == lock


def test_a_wrong_shard_that_looks_valid_ends_the_generation_and_is_played_again(unrecorded: Lineage) -> None:
    """Replay accepts it and verification finds it, whatever was trained and gated in between."""
    lock, workspace, ref = lock_of(unrecorded), unrecorded.workspace, second_shard(unrecorded)
    (stored,) = (unrecorded.home / ".zero/store/shards" / ref.key[:2]).glob(f"{ref.key}.*.parquet")
    false = write_records(changed(records_of(read_records(stored.read_bytes(), "shard")), nudged))
    stored.with_name(f"{ref.key}.{sha256_bytes(false)}.parquet").write_bytes(false)
    stored.unlink()
    dvc(workspace, "repro", "--force", "replay")
    refused = dvc(workspace, "repro", "--single-item", "verification", check=False)
    assert refused.returncode != 0
    assert "shard-0001.parquet differs from its re-execution: game" in refused.stderr
    assert "move 2: root_values" in refused.stderr
    unfinished = zero(unrecorded.home, "advance", "tiny", check=False)
    assert unfinished.returncode == 1 and "is not finished" in unfinished.stderr
    dvc(workspace, "repro")
    assert lock_of(unrecorded) == lock
