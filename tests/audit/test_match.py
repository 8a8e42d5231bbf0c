"""Every change of a match or of its players is detected and named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.audit.record import Record, cells, chained, named
from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import zero
from zero.audit import Finding
from zero.storage.files import canonical_json

POINTS = 25

# The match


def altered_match(record: Record, column: str, values: object) -> list[Finding]:
    """Rewrites a column of the first shard of generation 1's match in the cache."""
    path = record.cached(1, "data/match", "shard-0000.parquet")
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    path.chmod(0o644)
    pq.write_table(table, path)
    return record.mismatches()


def test_results_of_games_turned_over(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0000.parquet")
    outcomes = -pq.read_table(path).column("outcome").to_numpy()
    found = altered_match(record, "outcome", outcomes)
    named(found, "match", 1, "games against the rules", "the recorded outcome is wrong")
    assert not any(finding.where.startswith(("metrics", "record")) for finding in found)


def test_moves_of_a_game_changed(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0000.parquet")
    actions = pq.read_table(path).column("actions").to_pylist()
    game, stone = next((g, i) for g, moves in enumerate(actions) for i, move in enumerate(moves[:-2]) if move < POINTS)
    actions[game][stone + 1] = actions[game][stone]  # a stone on a stone
    finding = named(altered_match(record, "actions", actions), "match", 1, "an illegal move")
    assert finding.found.endswith(f"at move {stone + 1}")


def test_games_given_to_other_players(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0000.parquet")
    white = pq.read_table(path).column("white").to_pylist()
    found = altered_match(record, "black", white)
    named(found, "manifests", 1, "data/match/shard-0000.parquet: Black in 8 games, first 0")


def test_shard_of_another_game(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0001.parquet")
    table = pq.read_table(path).replace_schema_metadata({"num_actions": "82"})
    path.chmod(0o644)
    pq.write_table(table, path)
    shard = "data/match/shard-0001.parquet"
    named(record.mismatches(), "match", 1, f"{shard}: actions of a position: found 82, expected 26")


def test_names_of_games_are_numbers(record: Record) -> None:
    """A shard whose game numbers do not fit its position."""
    path = record.cached(1, "data/match", "shard-0000.parquet")
    games = np.asarray(pq.read_table(path).column("game").to_numpy()) + 8
    found = altered_match(record, "game", games)
    named(found, "manifests", 1, "data/match/shard-0000.parquet: numbers of the games")


def test_result_and_threshold_edited(record: Record) -> None:
    tree = json.loads(record.read(2, "metrics/gating.json"))
    tree["match"]["wins"] += 1
    record.rewrite_newest({"metrics/gating.json": canonical_json(tree | {"threshold": 0.5})})
    found = record.mismatches()
    assert cells(found) == {("lock", 2), ("attestation", 2), ("match", 2)}
    wins = tree["match"]["wins"]
    named(found, "lock", 2, "metrics/gating.json: MD5 against dvc.lock")
    named(found, "attestation", 2, "digest of metrics/gating.json")
    named(found, "match", 2, "metrics/gating.json: wins of the match", f"found {wins}, expected {wins - 1}")
    named(found, "match", 2, "threshold against the ledger", "found 0.5, expected 1.0")


def test_result_edited_in_the_ledger(record: Record) -> None:
    start, first, second = record.lines()
    wins = first["decision"]["match"]["wins"]
    first["decision"]["match"]["wins"] = wins + 1
    record.commit_ledger(chained([start, first, second]))
    found = record.mismatches()
    named(found, "match", 1, "record/ledger.jsonl: wins of the match", f"found {wins + 1}, expected {wins}")


# Champion and trainee


def test_another_champion_and_trainee_in_the_state(record: Record) -> None:
    files = ("state/champion.dvc", "state/trainee.dvc")
    record.rewrite_newest({file: record.read(0, file) for file in files})
    found = record.mismatches()
    first, second = record.lines()[0], record.lines()[1]
    finding = named(found, "parent", 2, "state/champion.dvc: champion")
    assert (finding.found, finding.expected) == (first["champion"], second["champion"])
    named(found, "parent", 2, "dvc.lock: selfplay reads state/champion")
    named(found, "parent", 2, "state/trainee.dvc: trainee")
    named(found, "attestation", 2, "digest of trainee-optimizer")


def test_trainee_at_another_step(record: Record) -> None:
    """The weights and optimizer that generation 1 left, under a manifest with another step."""
    listing = record.cached(1, "models/challenger")
    path = record.cached(1, "models/challenger", "manifest.json")
    manifest = json.loads(path.read_bytes()) | {"step": 999_999, "learning_rate_factor": 7.0}
    other = listing.read_text().replace(path.parent.name + path.name, record.put(canonical_json(manifest)))
    md5 = record.put(other.encode(), ".dir")
    record.rewrite_newest({"state/trainee.dvc": f"outs:\n- md5: {md5}\n  hash: md5\n  path: trainee\n".encode()})
    named(record.mismatches(), "parent", 2, "state/trainee.dvc: MD5 against what tiny/gen-0001 left", md5[:12])


def test_generation_of_the_state_edited(record: Record) -> None:
    tree = json.loads(record.read(2, "state/generation.json"))
    edited = {"number": 77, "lineage": "other", "resign_threshold": 0.5}
    record.rewrite_newest({"state/generation.json": canonical_json(tree | edited)})
    found = record.mismatches()
    for message in (
        "number: found 77, expected 2",
        "lineage: found other, expected tiny",
        "resignation threshold: found 0.5, expected -1.0",
    ):
        named(found, "parent", 2, f"state/generation.json: {message}")


def test_generation_of_the_state_that_cannot_be_read(record: Record) -> None:
    record.rewrite_newest({"state/generation.json": b"{}\n"})
    named(record.mismatches(), "parent", 2, "state/generation.json: generation: found none that can be read")


# The state of a generation without stages


def test_state_of_a_start_edited(begun: Lineage, tmp_path: Path) -> None:
    record = Record(copy_of(begun, tmp_path).home)

    def edit_trainee(manifest: Any) -> None:
        manifest["step"], manifest["learning_rate_factor"] = 5000, 0.01
        manifest["origin"]["seed"] += 1

    def edit_champion(manifest: Any) -> None:
        manifest["network"]["num_channels"] *= 2

    def edit_window(manifest: Any) -> None:
        manifest["num_games"] = 12

    assert record.mismatches() == []
    record.edit_newest("state/trainee", edit_trainee, 0)
    record.edit_newest("state/champion", edit_champion, 0)
    record.edit_newest("state/replay", edit_window, 0)
    found = record.mismatches()
    assert cells(found) == {("parent", 0)}
    for message in (
        "trainee/manifest.json: step: found 5000, expected 0",
        "trainee/manifest.json: learning_rate_factor: found 0.01, expected 1.0",
        "trainee/manifest.json: seed of its origin",
        "champion/manifest.json: num_channels of its network",
        "replay/manifest.json: num_games: found 12, expected 0",
    ):
        named(found, "parent", 0, f"state/{message}")
    assert len(found) == 5


def test_state_of_a_rollback_and_of_a_branch_edited(record: Record) -> None:
    zero(record.home, "branch", "tiny", "tiny/gen-0001", "kid")
    zero(record.home, "rollback", "tiny", "tiny/gen-0001")

    def edit_champion(manifest: Any) -> None:
        manifest["network"]["num_channels"] *= 2

    def edit_window(manifest: Any) -> None:
        manifest["shards"][0]["skip_games"] += 7

    for lineage, number in (("tiny", 3), ("kid", 1)):
        changed = Record(record.home, lineage)
        assert changed.mismatches() == []
        changed.edit_newest("state/champion", edit_champion, number)
        changed.edit_newest("state/replay", edit_window, number)
        tag = f"{lineage}/gen-{number:04d}"
        lines = [finding.line() for finding in changed.mismatches()]
        assert all(line.startswith(f"{tag} parent: state/") for line in lines)
        assert any("state/champion/manifest.json: num_channels of its network" in line for line in lines)
        found = "skip_games=7" if lineage == "kid" else "state/replay.dvc: MD5 against what"
        assert any(found in line for line in lines)
