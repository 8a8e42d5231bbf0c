"""What an audit checks, needs and reports. The lineage is real and made once per session."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.audit.record import BRANCH, Record, tag_of
from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import git, zero
from zero.audit import Mark, audit
from zero.errors import LineageError
from zero.storage.layout import LEDGER_FILE


def test_an_unchanged_lineage_passes_without_a_network(recorded: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the audit opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    found = audit(recorded.home)
    assert [finding.line() for finding in found.findings] == []
    assert [row.tag for row in found.rows] == [tag_of(0), tag_of(1), tag_of(2)]
    assert set(found.rows[2].marks.values()) == {Mark.OK, Mark.NOT_CHECKED}


def test_a_workspace_is_not_needed(record: Record) -> None:
    shutil.rmtree(record.workspace)
    assert [finding.line() for finding in record.audit().findings] == []


def test_a_workspace_that_lags_behind_another_machine_is_not_a_mismatch(record: Record) -> None:
    git(record.workspace, "tag", "--delete", tag_of(2))
    git(record.workspace, "update-ref", f"refs/heads/{BRANCH}", record.commit(1))
    assert record.mismatches() == []


def test_a_lineage_with_only_its_tags_is_audited(record: Record) -> None:
    shutil.rmtree(record.workspace)
    git(record.home, "update-ref", "-d", f"refs/heads/{BRANCH}")
    found = record.audit("")
    assert [row.tag for row in found.rows] == [tag_of(0), tag_of(1), tag_of(2)]
    assert not found.has_mismatch and found.incomplete
    (finding,) = found.findings
    assert finding.line().startswith(f"{tag_of(2)} tag: {BRANCH}: branch: found only its tags")


def test_the_exit_status_shows_the_result(record: Record) -> None:
    passed = zero(record.home, "audit", "tiny")
    assert "no mismatches (MLflow not checked)" in passed.stdout
    git(record.home, "tag", "--force", tag_of(1), tag_of(2))
    drifted = zero(record.home, "audit", "tiny", check=False, COLUMNS="80")
    assert drifted.returncode == 1
    assert "tiny/gen-0001 │ decision │  10 of 12 │ MISMATCH: tag; not checked: registry " in drifted.stdout
    assert f"tiny/gen-0001 tag: {tag_of(1)} in the project: tag at another commit" in drifted.stdout
    shown = json.loads(zero(record.home, "audit", tag_of(1), "--json", check=False).stdout)
    assert shown["has_mismatch"] and shown["rows"][1]["marks"]["tag"] == "MISMATCH"


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


@pytest.mark.parametrize("target", ["", "tiny"])
def test_a_lineage_whose_ledger_is_destroyed_is_a_mismatch(tmp_path: Path, target: str) -> None:
    git(tmp_path, "init", "--quiet", f"--initial-branch={BRANCH}")
    (tmp_path / "record").mkdir()
    (tmp_path / LEDGER_FILE).write_text("garbage\n")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "-m", "destroyed")
    found = audit(tmp_path, target)
    assert found.rows == () and found.has_mismatch
    assert [finding.line() for finding in found.findings] == [
        f"tiny ledger: {LEDGER_FILE} of {BRANCH}: generations: found none, expected at least one; find the recorded "
        "commit with `git reflog`, and reset the branch to it"
    ]


@pytest.mark.parametrize("ledger", [b"garbage\n", None])
def test_a_lineage_whose_ledger_is_destroyed_does_not_hide_the_others(record: Record, ledger: bytes | None) -> None:
    root = git(record.workspace, "rev-list", "--max-parents=0", "HEAD").split()[0]  # has no ledger either
    made = record.rewritten(record.commit(0), {LEDGER_FILE: ledger}, root)
    git(record.home, "fetch", "--quiet", str(record.workspace), made)
    git(record.home, "update-ref", "refs/heads/lineage/lost", made)
    found = record.audit("")
    assert [row.tag for row in found.rows] == [tag_of(0), tag_of(1), tag_of(2)]
    assert [(finding.tag, finding.check) for finding in found.findings] == [("lost", "ledger")]


def test_an_unknown_generation_is_named(recorded: Lineage) -> None:
    with pytest.raises(LineageError, match="lineage tiny has no generation 9"):
        audit(recorded.home, "tiny/gen-0009")
