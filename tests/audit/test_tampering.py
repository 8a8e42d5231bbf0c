"""Ways to change the record of a lineage unseen: each is seen, and named. The lineage is real, made once a session."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.audit.record import BRANCH, Record, cells, chained, flipped, line_of, named, tag_of
from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import git, zero
from zero.artifacts import Window, canonical_json, sha256_bytes
from zero.audit import Finding, Mark, audit
from zero.errors import LineageError
from zero.provenance import KEY_FILE, PROVENANCE_FILE, read_envelope, sign, statement_bytes
from zero.record import LEDGER_FILE
from zero.signing import public_pem, signing_key

POINTS = 25


def test_an_untouched_lineage_passes(record: Record) -> None:
    found = record.audit()
    assert [finding.line() for finding in found.findings] == []
    assert [row.tag for row in found.rows] == [tag_of(0), tag_of(1), tag_of(2)]
    assert set(found.rows[2].marks.values()) == {Mark.AGREES, Mark.NOT_ASKED}


def test_no_network_is_needed(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the audit opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert record.drifts() == []


def test_a_workspace_is_not_needed(record: Record) -> None:
    shutil.rmtree(record.workspace)
    assert [finding.line() for finding in record.audit().findings] == []


def test_a_workspace_that_another_machine_has_gone_past_is_no_drift(record: Record) -> None:
    git(record.workspace, "tag", "--delete", tag_of(2))
    git(record.workspace, "update-ref", f"refs/heads/{BRANCH}", record.commit(1))
    assert record.drifts() == []


def test_the_command_says_it_by_its_exit_status(record: Record) -> None:
    passed = zero(record.home, "audit", "tiny")
    assert "nothing drifted (MLflow not asked)" in passed.stdout
    git(record.home, "tag", "--force", tag_of(1), tag_of(2))
    drifted = zero(record.home, "audit", "tiny", check=False, COLUMNS="150")
    assert drifted.returncode == 1
    assert f"tiny/gen-0001 tag: {tag_of(1)} in the project: tag at another commit" in drifted.stdout
    told = json.loads(zero(record.home, "audit", tag_of(1), "--json", check=False).stdout)
    assert told["drifted"] and told["rows"][1]["marks"]["tag"] == "DRIFT"


# git


def test_tag_moved_in_the_project(record: Record) -> None:
    git(record.home, "tag", "--force", tag_of(1), tag_of(2))
    found = record.drifts()
    assert cells(found) == {("tag", 1)}
    named(found, "tag", 1, "tag at another commit", record.commit(2)[:12], record.commit(1)[:12])


def test_tag_moved_in_the_workspace(record: Record) -> None:
    git(record.workspace, "tag", "--force", tag_of(1), tag_of(0))
    assert named(record.drifts(), "tag", 1).where == f"{tag_of(1)} in the workspace"


def test_tag_deleted(record: Record) -> None:
    git(record.home, "tag", "--delete", tag_of(2))
    found = record.drifts()
    assert cells(found) == {("tag", 2)}
    assert "git -C" in named(found, "tag", 2, "no tag").remedy


def test_tag_moved_to_a_foreign_commit(record: Record) -> None:
    other = record.rewritten(record.commit(1), {"README": b"other"}, f"{record.commit(1)}^")
    git(record.home, "fetch", "--quiet", str(record.workspace), other)
    git(record.home, "tag", "--force", tag_of(1), other)
    named(record.drifts(), "tag", 1, "tag at a foreign commit", other[:12])


def test_history_rewritten_in_the_project(record: Record) -> None:
    other = record.rewritten(record.commit(2), {"README": b"other"}, f"{record.commit(2)}^")
    git(record.home, "fetch", "--quiet", str(record.workspace), other)
    git(record.home, "update-ref", f"refs/heads/{BRANCH}", other)
    found = record.drifts()
    assert cells(found) == {("tag", 2)}
    named(found, "tag", 2, "history rewritten", BRANCH, other[:12])


def test_newest_generation_taken_back_everywhere(record: Record) -> None:
    record.publish(record.commit(1))
    found = record.drifts()
    named(found, "tag", 2, "tag without a line in the ledger")
    named(found, "ledger", 2, "line removed")


# ledger


def test_ledger_line_removed(record: Record) -> None:
    start, _, last = record.lines()
    record.commit_ledger([start, last])
    found = record.drifts()
    named(found, "ledger", 1, "line removed")
    named(found, "ledger", 2, "SHA-256 of the line before")


def test_ledger_line_removed_and_chained_again(record: Record) -> None:
    start, _, last = record.lines()
    record.commit_ledger(chained([start, last | {"generation": 1}]))
    found = record.drifts()
    named(found, "ledger", 1, "line edited")
    named(found, "ledger", 2, "line removed")


def test_ledger_lines_reordered(record: Record) -> None:
    start, first, second = record.lines()
    record.commit_ledger([start, second, first])
    found = record.drifts()
    named(found, "ledger", 1, "lines re-ordered")
    named(found, "ledger", 2, "SHA-256 of the line before")


def test_ledger_line_edited(record: Record) -> None:
    start, first, second = record.lines()
    first["decision"]["promoted"] = False
    record.commit_ledger([start, first, second])
    found = record.drifts()
    named(found, "ledger", 1, "line edited (decision)")
    named(found, "match", 1, "promoted against the ledger", "found True, expected False")


def test_ledger_line_edited_and_chained_again(record: Record) -> None:
    start, first, second = record.lines()
    first["champion"] = second["trainee"]
    record.commit_ledger(chained([start, first, second]))
    found = record.drifts()
    named(found, "ledger", 1, "line edited (champion)")
    named(found, "match", 1, "champion after the decision")
    named(found, "parent", 2, "champion of the match")


def test_ledger_edited_in_the_workspace_and_not_committed(record: Record) -> None:
    path = record.workspace / LEDGER_FILE
    path.write_text(path.read_text().replace('"promoted": true', '"promoted": false', 1))
    assert named(record.drifts(), "ledger", 2, "file in the workspace edited").where == LEDGER_FILE


def test_ledger_emptied(record: Record) -> None:
    record.commit_ledger(b"")
    found = record.drifts()
    for number in range(3):
        named(found, "ledger", number, "line removed")


# dvc.lock, parameters, code, packages


def test_lock_edited(record: Record) -> None:
    record.rewrite_newest({"dvc.lock": record.read(2, "dvc.lock").replace(b"size: ", b"size: 1", 1)})
    found = record.drifts()
    assert cells(found) == {("lock", 2)}
    named(found, "lock", 2, "dvc.lock: SHA-256 against the ledger")
    named(found, "lock", 2, "dvc.lock: SHA-256 against the statement")


def test_parameters_edited(record: Record) -> None:
    tree: dict[str, Any] = json.loads(record.read(2, "params.yaml"))
    tree["search"]["c_puct"] = 9.0
    record.rewrite_newest({"params.yaml": json.dumps(tree).encode()})
    found = record.drifts()
    named(found, "params", 2, "digest against the ledger")
    named(found, "params", 2, "search against the statement", "'c_puct': 9.0")
    named(found, "params", 2, "digest of selfplay's parameters against its manifest")
    named(found, "code", 2, "params.yaml: changed by the commit that recorded the generation")


def test_code_changed_by_the_commit_that_recorded(record: Record) -> None:
    record.rewrite_newest({"zero/gating.py": record.read(2, "zero/gating.py") + b"\n# other\n"})
    found = record.drifts()
    assert cells(found) == {("code", 2)}
    named(found, "code", 2, "zero: changed by the commit that recorded the generation")


def test_code_changed_under_the_generation(record: Record) -> None:
    other = {"zero/gating.py": record.read(2, "zero/gating.py") + b"\n# other\n"}
    below = record.rewritten(f"{record.commit(2)}^", other, record.commit(1))
    made = record.rewritten(record.commit(2), other, below)
    record.publish(made, gen_0002=made)
    found = record.drifts()
    named(found, "code", 2, f"sources of gating at {below[:12]}: fingerprint against the manifest")
    named(found, "code", 2, f"sources of gating at {below[:12]}: fingerprint against the statement")
    named(found, "statement", 2, "commit of the sources", below[:12])
    assert not any("sources of training" in finding.where for finding in found)


def test_packages_edited(record: Record) -> None:
    other = record.read(2, "constraints.txt").replace(b"numpy==", b"numpy==9", 1)
    record.rewrite_newest({"constraints.txt": other})
    named(record.drifts(), "constraints", 2, "SHA-256 against the statement", sha256_bytes(other)[:12])


# statement


def signed_again(record: Record, key: Ed25519PrivateKey, **edits: object) -> bytes:
    """The statement of generation 2 with fields of its second part edited, signed."""
    statement = read_envelope(record.read(2, PROVENANCE_FILE), "it").statement
    build = statement.predicate.build_definition.model_copy(update=edits)
    return sign(
        statement_bytes(
            statement.model_copy(
                update={"predicate": statement.predicate.model_copy(update={"build_definition": build})}
            )
        ),
        key,
    )


def test_statement_with_a_foreign_signature(record: Record) -> None:
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, Ed25519PrivateKey.generate())})
    found = record.drifts()
    assert cells(found) == {("statement", 2)} and len(found) == 1
    named(found, "statement", 2, "foreign signature", "the key of tiny's first commit")


def test_key_of_the_record_replaced_too(record: Record) -> None:
    key = Ed25519PrivateKey.generate()
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, key), KEY_FILE: public_pem(key)})
    found = record.drifts()
    named(found, "statement", 2, f"{KEY_FILE}: public key")
    named(found, "statement", 2, "foreign signature")


def test_key_that_the_caller_trusts_is_asked_for(record: Record) -> None:
    assert record.drifts(own_key=public_pem(signing_key(record.home))) == []
    found = record.drifts(own_key=public_pem(Ed25519PrivateKey.generate()))
    assert cells(found) == {("statement", 0), ("statement", 1), ("statement", 2)}
    named(found, "statement", 1, "foreign signature", "the key given")


def test_statement_edited_without_signing(record: Record) -> None:
    envelope = json.loads(record.read(2, PROVENANCE_FILE))
    other = json.loads(signed_again(record, Ed25519PrivateKey.generate(), build_type="urn:zero:start:1"))
    record.rewrite_newest({PROVENANCE_FILE: json.dumps(envelope | {"payload": other["payload"]}).encode()})
    found = record.drifts()
    named(found, "statement", 2, "foreign signature")
    named(found, "statement", 2, "digest against the ledger")
    named(found, "statement", 2, "kind", "found urn:zero:start:1")


@pytest.mark.parametrize(
    "name", ["parent-provenance", "champion", "trainee-optimizer", "data/games/shard-0000.parquet", "constraints.txt"]
)
def test_input_of_a_statement_replaced_and_signed_with_the_true_key(record: Record, name: str) -> None:
    statement = read_envelope(record.read(2, PROVENANCE_FILE), "it").statement
    dependencies = tuple(
        each.model_copy(update={"digest": {"sha256": "f" * 64}}) if each.name == name else each
        for each in statement.predicate.build_definition.resolved_dependencies
    )
    record.rewrite_newest(
        {PROVENANCE_FILE: signed_again(record, signing_key(record.home), resolved_dependencies=dependencies)}
    )
    found = record.drifts()
    named(found, "statement", 2, "digest against the ledger")
    if name == "constraints.txt":
        named(found, "constraints", 2, "SHA-256 against the statement", "f" * 12)
    else:
        named(found, "statement", 2, f"digest of {name}", "f" * 12)


def test_statement_gone(record: Record) -> None:
    record.rewrite_newest({PROVENANCE_FILE: b"{}\n"})
    named(record.drifts(), "statement", 2, "signed statement", "none that can be read")


# data


@pytest.mark.parametrize(
    ("number", "out", "name"),
    [
        (1, "data/games", "shard-0001.parquet"),
        (1, "data/match", "shard-0000.parquet"),
        (2, "models/challenger", "weights.safetensors"),
        (1, "models/challenger", "optimizer.safetensors"),
    ],
)
def test_object_altered_in_the_cache(record: Record, number: int, out: str, name: str) -> None:
    path = record.cached(number, out, name)
    record.overwrite(path, flipped(path))
    found = record.drifts()
    told = named(found, "data", number, f"{out}/{name} ({path})", "MD5 against dvc.lock")
    assert told.expected == f"{path.parent.name}{path.name}"
    named(found, "data", number, f"{out}/{name} ({path})", "SHA-256 against its manifest")
    assert all(finding.check in ("data", "manifests") for finding in found)


def test_weights_replaced_by_others_in_the_list_of_files(record: Record) -> None:
    listing = record.cached(2, "models/challenger")
    old, new = (record.cached(number, "models/challenger", "weights.safetensors") for number in (2, 1))
    text = listing.read_text().replace(old.parent.name + old.name, new.parent.name + new.name)
    record.overwrite(listing, text.encode())
    found = record.drifts()
    named(found, "data", 2, f"models/challenger ({listing})", "MD5 against dvc.lock")
    named(found, "data", 2, "models/challenger/weights.safetensors", "SHA-256 against its manifest")


def test_rows_of_a_window_changed(record: Record) -> None:
    path = record.cached(2, "data/window", "manifest.json")
    window = Window.model_validate_json(path.read_bytes())
    first = window.shards[0].model_copy(update={"skip_games": window.shards[0].skip_games + 1})
    record.overwrite(path, canonical_json(window.model_copy(update={"shards": (first, *window.shards[1:])})))
    found = record.drifts()
    named(found, "data", 2, "data/window/manifest.json", "MD5 against dvc.lock")
    named(found, "manifests", 2, "gen-0001-shard-0001.parquet: row", "from game 1", "from game 0")
    named(found, "manifests", 2, "num_games of its rows", "found 35, expected 36")
    named(found, "statement", 2, "digest of data/window/manifest.json")


def test_numbers_of_a_game_set_changed(record: Record) -> None:
    path = record.cached(1, "data/games", "manifest.json")
    text = path.read_text().replace('"num_games": 12', '"num_games": 11', 1)
    record.overwrite(path, text.encode())
    found = record.drifts()
    named(found, "manifests", 1, "data/games/shard-0000.parquet: games against the manifest", "found 12, expected 11")
    named(found, "manifests", 1, "num_games of its shards")


def test_key_of_a_shard_changed(record: Record) -> None:
    path = record.cached(1, "data/match", "manifest.json")
    tree = json.loads(path.read_bytes())
    tree["shards"][0]["key"] = "e" * 64
    record.overwrite(path, canonical_json(tree))
    named(record.drifts(), "manifests", 1, "shard-0000.parquet: key of its specification", "e" * 12)


def test_object_that_is_not_here_is_no_drift(record: Record) -> None:
    record.cached(1, "data/games", "shard-0000.parquet").unlink()
    found = record.audit()
    assert not found.drifted and found.incomplete
    assert cells(list(found.findings)) == {("data", 1), ("data", 2)}  # a later window holds it as well
    told = found.findings[0]
    assert told.mark == Mark.MISSING and "1 of 3 files (shard-0000.parquet)" in told.line()
    assert "dvc pull" in told.remedy
    assert zero(record.home, "audit", "tiny", check=False).returncode == 3


def test_list_of_files_that_is_not_here_is_no_drift(record: Record) -> None:
    record.cached(2, "models/challenger").unlink()
    found = record.audit()
    assert not found.drifted and cells(list(found.findings)) == {("data", 2)}


# match


def altered_match(record: Record, column: str, values: object) -> list[Finding]:
    """Rewrites a column of the first shard of generation 1's match in the cache."""
    path = record.cached(1, "data/match", "shard-0000.parquet")
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    path.chmod(0o644)
    pq.write_table(table, path)
    return record.drifts()


def test_results_of_games_turned_over(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0000.parquet")
    outcomes = -pq.read_table(path).column("outcome").to_numpy()
    found = altered_match(record, "outcome", outcomes)
    named(found, "match", 1, "games against the rules", "another outcome than recorded")
    assert not any(finding.where.startswith(("metrics", "record")) for finding in found)


def test_moves_of_a_game_changed(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0000.parquet")
    actions = pq.read_table(path).column("actions").to_pylist()
    game, stone = next((g, i) for g, moves in enumerate(actions) for i, move in enumerate(moves[:-2]) if move < POINTS)
    actions[game][stone + 1] = actions[game][stone]  # a stone on a stone
    told = named(altered_match(record, "actions", actions), "match", 1, "a move that the rules forbid")
    assert told.found.endswith(f"at move {stone + 1}")


def test_games_given_to_other_players(record: Record) -> None:
    path = record.cached(1, "data/match", "shard-0000.parquet")
    white = pq.read_table(path).column("white").to_pylist()
    found = altered_match(record, "black", white)
    named(found, "manifests", 1, "data/match/shard-0000.parquet: Black in 8 games, first 0")


def test_result_edited(record: Record) -> None:
    tree = json.loads(record.read(2, "metrics/gating.json"))
    tree["match"]["wins"] += 1
    record.rewrite_newest({"metrics/gating.json": canonical_json(tree)})
    found = record.drifts()
    assert cells(found) == {("lock", 2), ("statement", 2), ("match", 2)}
    wins = tree["match"]["wins"]
    named(found, "lock", 2, "metrics/gating.json: MD5 against dvc.lock")
    named(found, "statement", 2, "digest of metrics/gating.json")
    named(found, "match", 2, "metrics/gating.json: wins of the match", f"found {wins}, expected {wins - 1}")


def test_result_edited_in_the_ledger(record: Record) -> None:
    start, first, second = record.lines()
    wins = first["decision"]["match"]["wins"]
    first["decision"]["match"]["wins"] = wins + 1
    record.commit_ledger(chained([start, first, second]))
    found = record.drifts()
    named(found, "match", 1, "record/ledger.jsonl: wins of the match", f"found {wins + 1}, expected {wins}")


def test_threshold_edited(record: Record) -> None:
    tree = json.loads(record.read(2, "metrics/gating.json"))
    record.rewrite_newest({"metrics/gating.json": canonical_json(tree | {"threshold": 0.5})})
    named(record.drifts(), "match", 2, "threshold against the ledger", "found 0.5, expected 1.0")


# parent


def test_another_champion_in_the_state(record: Record) -> None:
    record.rewrite_newest({"state/champion.dvc": record.read(0, "state/champion.dvc")})
    found = record.drifts()
    first, second = record.lines()[0], record.lines()[1]
    told = named(found, "parent", 2, "state/champion.dvc: champion")
    assert (told.found, told.expected) == (first["champion"], second["champion"])
    named(found, "parent", 2, "dvc.lock: selfplay reads state/champion")


def test_another_trainee_in_the_state(record: Record) -> None:
    record.rewrite_newest({"state/trainee.dvc": record.read(0, "state/trainee.dvc")})
    found = record.drifts()
    named(found, "parent", 2, "state/trainee.dvc: trainee")
    named(found, "statement", 2, "digest of trainee-optimizer")


def test_names_of_games_are_numbers(record: Record) -> None:
    """A shard with games of another number than its place."""
    path = record.cached(1, "data/match", "shard-0000.parquet")
    games = np.asarray(pq.read_table(path).column("game").to_numpy()) + 8
    found = altered_match(record, "game", games)
    named(found, "manifests", 1, "data/match/shard-0000.parquet: numbers of the games")


def test_line_of_a_ledger_that_is_none(record: Record) -> None:
    lines = record.lines()
    record.commit_ledger(b"".join(map(line_of, lines[:2])) + b"generation 2 was promoted\n")
    named(record.drifts(), "ledger", 2, "no entry", "generation 2 was promoted")


def test_rollback_and_branch_are_understood(gone_on: Lineage) -> None:
    found = audit(gone_on.home)
    assert [finding.line() for finding in found.findings] == []
    assert {row.tag: row.kind for row in found.rows} == {
        tag_of(0): "start",
        tag_of(1): "decision",
        "kid/gen-0001": "branch",
        "kid/gen-0002": "decision",
        tag_of(2): "decision",
        tag_of(3): "rollback",
        tag_of(4): "decision",
    }


def test_a_tag_is_audited_with_its_ancestors(gone_on: Lineage) -> None:
    assert [row.tag for row in audit(gone_on.home, "kid/gen-0001").rows] == [tag_of(0), tag_of(1), "kid/gen-0001"]


def test_source_of_a_rollback_edited(gone_on: Lineage, tmp_path: Path) -> None:
    record = Record(copy_of(gone_on, tmp_path).home)
    lines = [json.loads(line) for line in (record.workspace / LEDGER_FILE).read_bytes().splitlines()]
    lines[3]["source"]["commit"] = record.commit(2)
    head = git(record.workspace, "rev-parse", BRANCH).strip()
    text = b"".join(map(line_of, chained(lines)))
    record.publish(record.rewritten(head, {LEDGER_FILE: text}, head))
    found = record.drifts()
    named(found, "ledger", 3, "line edited (source)")
    named(found, "parent", 3, "commit of its source", record.commit(2)[:12], record.commit(1)[:12])


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("go7", "unknown lineage 'go7'; there are: tiny"),
        ("tiny/gen-0009", "lineage tiny has no generation 9"),
        ("tiny/last", "'tiny/last' is no generation"),
    ],
)
def test_what_cannot_be_audited_is_told(record: Record, target: str, told: str) -> None:
    with pytest.raises(LineageError, match=told):
        record.audit(target)
