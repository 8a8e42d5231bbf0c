"""Every change in git (tags, branch, ledger, lock, parameters, code, packages) is detected and named."""

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.audit.record import BRANCH, Record, cells, chained, line_of, named, tag_of
from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import git, killed, zero
from zero.audit.record import _is_of_the_record, check_ledger
from zero.lineage.workspace import checkout_generation
from zero.record.history import open_history
from zero.record.objects import Change
from zero.storage.files import sha256_bytes
from zero.storage.layout import LEDGER_FILE

# Tags and branch


def test_tag_moved_in_the_project(record: Record) -> None:
    git(record.home, "tag", "--force", tag_of(1), tag_of(2))
    found = record.mismatches()
    assert cells(found) == {("tag", 1)}
    named(found, "tag", 1, "tag at another commit", record.commit(2)[:12], record.commit(1)[:12])


def test_tag_deleted_and_tag_moved_to_a_foreign_commit(record: Record) -> None:
    git(record.home, "tag", "--delete", tag_of(2))
    other = record.rewritten(record.commit(1), {"README": b"other"}, f"{record.commit(1)}^")
    git(record.home, "fetch", "--quiet", str(record.workspace), other)
    git(record.home, "tag", "--force", tag_of(1), other)
    found = record.mismatches()
    assert cells(found) == {("tag", 1), ("tag", 2)}
    assert "git -C" in named(found, "tag", 2, "no tag").remedy
    named(found, "tag", 1, "tag at a foreign commit", other[:12])


def test_recording_that_was_interrupted_before_its_push_is_not_a_mismatch(record: Record) -> None:
    git(record.workspace, "checkout", "HEAD", "--", "state")  # the state of the next generation comes last
    git(record.home, "update-ref", f"refs/heads/{BRANCH}", f"{record.commit(2)}^")
    for folder in (record.home, record.workspace):
        git(folder, "tag", "--delete", tag_of(2))
        found = record.audit()
        assert not found.has_mismatch and found.incomplete
        for finding in found.findings:
            assert (finding.tag, finding.what, finding.remedy) == (tag_of(2), "not pushed yet", "`zero prepare tiny`")
    zero(record.home, "prepare", "tiny")
    assert record.audit().findings == ()


def test_history_rewritten_in_the_project(record: Record) -> None:
    other = record.rewritten(record.commit(2), {"README": b"other"}, f"{record.commit(2)}^")
    git(record.home, "fetch", "--quiet", str(record.workspace), other)
    git(record.home, "update-ref", f"refs/heads/{BRANCH}", other)
    found = record.mismatches()
    assert cells(found) == {("tag", 2)}
    named(found, "tag", 2, "history rewritten", BRANCH, other[:12])


def test_newest_generation_removed_from_both_clones(record: Record) -> None:
    record.publish(record.commit(1))
    found = record.mismatches()
    named(found, "tag", 2, "tag without an entry in the ledger")
    named(found, "ledger", 2, "entry removed")


# The ledger


def test_ledger_line_removed_and_chained_again(record: Record) -> None:
    start, _, last = record.lines()
    record.commit_ledger(chained([start, last | {"generation": 1}]))
    found = record.mismatches()
    named(found, "ledger", 1, "entry edited")
    named(found, "ledger", 2, "entry removed")


def test_ledger_lines_reordered(record: Record) -> None:
    start, first, second = record.lines()
    record.commit_ledger([start, second, first])
    found = record.mismatches()
    named(found, "ledger", 1, "entries reordered")
    named(found, "ledger", 2, "SHA-256 of the line before")


def test_ledger_line_edited_and_chained_again(record: Record) -> None:
    start, first, second = record.lines()
    first["champion"] = second["trainee"]
    record.commit_ledger(chained([start, first, second]))
    found = record.mismatches()
    named(found, "ledger", 1, "entry edited (champion)")
    named(found, "match", 1, "champion after the decision")
    named(found, "parent", 2, "champion of the match")


def test_tag_moved_and_ledger_edited_in_the_workspace(record: Record) -> None:
    path = record.workspace / LEDGER_FILE
    path.write_text(path.read_text().replace('"promoted": true', '"promoted": false', 1))
    git(record.workspace, "tag", "--force", tag_of(1), tag_of(0))
    found = record.mismatches()
    assert named(found, "ledger", 2, "file in the workspace edited").where == LEDGER_FILE
    assert named(found, "tag", 1).where == f"{tag_of(1)} in the workspace"


def test_recording_that_was_killed_before_its_commit_is_not_a_mismatch(unrecorded: Lineage, tmp_path: Path) -> None:
    record = Record(copy_of(unrecorded, tmp_path).home)
    with open_history(record.home, "tiny") as read_before:
        killed(record.home, "commit --quiet", "advance", "tiny")
        found = record.audit()
        assert not found.has_mismatch
        (finding,) = found.findings
        line = (
            "record/ledger.jsonl: entry of tiny/gen-0001 in the workspace: found not committed yet; `zero advance tiny`"
        )
        assert finding.line() == f"{tag_of(0)} ledger: {line}"
        text = (record.workspace / LEDGER_FILE).read_bytes()
        zero(record.home, "advance", "tiny")
        # an audit beside that command: it has read the commits before, and the ledger after
        assert not [*check_ledger(read_before._replace(draft=text))]
    assert record.audit().findings == ()


def test_rollback_that_was_killed_before_its_commit_is_not_a_mismatch(record: Record) -> None:
    killed(record.home, "commit --quiet", "rollback", "tiny", tag_of(1))
    found = record.audit()
    assert not found.has_mismatch
    assert [finding.remedy for finding in found.findings] == [f"`zero rollback tiny {tag_of(1)}`"]


def test_ledger_emptied(record: Record) -> None:
    record.commit_ledger(b"")
    found = record.mismatches()
    for number in range(3):
        named(found, "ledger", number, "entry removed")


def test_line_that_is_not_an_entry(record: Record) -> None:
    lines = record.lines()
    record.commit_ledger(b"".join(map(line_of, lines[:2])) + b"generation 2 was promoted\n")
    named(record.mismatches(), "ledger", 2, "not an entry", "generation 2 was promoted")


def test_text_after_the_last_entry(record: Record) -> None:
    record.commit_ledger(b"".join(map(line_of, record.lines())) + b"generation 3 was promoted\n")
    named(record.mismatches(), "ledger", 2, "line 4: not an entry", "generation 3 was promoted")


def test_entry_of_another_lineage_does_not_hide_a_rewritten_history(record: Record) -> None:
    lines = record.lines()
    record.commit_ledger(chained([*lines, lines[-1] | {"lineage": "other", "generation": 99}]))
    other = record.rewritten(record.commit(2), {"README": b"other"}, f"{record.commit(2)}^")
    git(record.home, "fetch", "--quiet", str(record.workspace), other)
    git(record.home, "update-ref", f"refs/heads/{BRANCH}", other)
    found = record.mismatches()
    named(found, "ledger", 2, "line 4: lineage: found other, expected tiny")
    named(found, "tag", 2, "history rewritten", other[:12])


def test_source_of_a_rollback_edited(gone_on: Lineage, tmp_path: Path) -> None:
    record = Record(copy_of(gone_on, tmp_path).home)
    lines = [json.loads(line) for line in (record.workspace / LEDGER_FILE).read_bytes().splitlines()]
    lines[3]["source"]["commit"] = record.commit(2)
    head = git(record.workspace, "rev-parse", BRANCH).strip()
    text = b"".join(map(line_of, chained(lines)))
    record.publish(record.rewritten(head, {LEDGER_FILE: text}, head))
    found = record.mismatches()
    named(found, "ledger", 3, "entry edited (source)")
    named(found, "parent", 3, "commit of its source", record.commit(2)[:12], record.commit(1)[:12])


# dvc.lock, parameters, code, packages


def test_lock_parameters_code_and_packages_edited(record: Record) -> None:
    tree: dict[str, Any] = json.loads(record.read(2, "params.yaml"))
    tree["search"]["c_puct"] = 9.0
    packages = record.read(2, "constraints.txt").replace(b"numpy==", b"numpy==9", 1)
    files = {
        "dvc.lock": record.read(2, "dvc.lock").replace(b"size: ", b"size: 1", 1),
        "params.yaml": json.dumps(tree).encode(),
        "zero/stages/gating.py": record.read(2, "zero/stages/gating.py") + b"\n# other\n",
        "constraints.txt": packages,
    }
    record.rewrite_newest(files)
    found = record.mismatches()
    named(found, "lock", 2, "dvc.lock: SHA-256 against the ledger")
    named(found, "lock", 2, "dvc.lock: SHA-256 against the attestation")
    named(found, "params", 2, "digest against the ledger")
    named(found, "params", 2, "search against the attestation", "'c_puct': 9.0")
    named(found, "params", 2, "digest of selfplay's parameters against its manifest")
    named(found, "code", 2, "params.yaml: changed by the commit that recorded the generation")
    named(found, "code", 2, "zero/stages/gating.py: changed by the commit that recorded the generation")
    named(found, "constraints", 2, "SHA-256 against the attestation", sha256_bytes(packages)[:12])
    named(found, "constraints", 2, "numpy against the signed execution profile", f"expected {version('numpy')}")


def test_lock_truncated(record: Record) -> None:
    lock = record.read(2, "dvc.lock")
    for end in (b"    outs:\n", b"    outs:\n    - pa", b"  replay:\n"):
        record.rewrite_newest({"dvc.lock": lock[: lock.index(end) + len(end)]})
        named(record.mismatches(), "lock", 2, "dvc.lock: SHA-256 against the ledger")


def test_foreign_files_in_the_newest_commit(record: Record) -> None:
    """Only the newest one can hide them: the next attestation names the hash of the commit before it."""
    refused = ("safetensors.py", "metrics/more.dvc", "plots/dvc.yaml", "state/more.dvc", "metrics/more/.gitignore")
    allowed = ("metrics/more.json", "state/notes.md", "plots/.ipynb_checkpoints/a.json")  # nothing reads them
    record.rewrite_newest(dict.fromkeys((*refused, *allowed), b"x\n"))
    found = record.mismatches()
    assert cells(found) == {("code", 2)} and {each.where for each in found} == {*refused}
    named(found, "code", 2, "safetensors.py: changed by the commit that recorded", "expected nothing; see `git diff")


@pytest.mark.parametrize("path", ["state/generation.json", "state/champion.dvc", "record/ledger.jsonl", "dvc.lock"])
def test_a_link_in_the_place_of_a_file_of_the_record(path: str) -> None:
    generation: Any = SimpleNamespace(entry=None, params=None)
    assert _is_of_the_record(generation, path, Change("100644 a", "100644 b"))
    assert not _is_of_the_record(generation, path, Change("100644 a", "120000 b"))
    assert not _is_of_the_record(generation, "state/champion/weights.safetensors", Change("", "100644 b"))


def test_a_branch_with_the_name_of_a_tag_is_not_checked_out(record: Record, tmp_path: Path) -> None:
    git(record.home, "branch", tag_of(1), record.commit(2))
    checkout_generation(record.home, tag_of(1), tmp_path / "copy", ["state/champion"])
    assert git(tmp_path / "copy", "rev-parse", "HEAD").strip() == record.commit(1)


def test_code_changed_under_the_generation(record: Record) -> None:
    other = {"zero/stages/gating.py": record.read(2, "zero/stages/gating.py") + b"\n# other\n"}
    below = record.rewritten(f"{record.commit(2)}^", other, record.commit(1))
    made = record.rewritten(record.commit(2), other, below)
    record.publish(made, gen_0002=made)
    found = record.mismatches()
    named(found, "code", 2, f"sources of gating at {below[:12]}: code digest against the manifest")
    named(found, "code", 2, f"sources of gating at {below[:12]}: code digest against the attestation")
    named(found, "attestation", 2, "commit of the sources", below[:12])
    assert not any("sources of training" in finding.where for finding in found)
