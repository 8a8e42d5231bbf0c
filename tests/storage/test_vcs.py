"""Output of git and DVC."""

from pathlib import Path

from tests.end_to_end.project import git as run_git
from zero.storage.vcs import git


def test_a_damaged_file_is_shown_with_replaced_characters(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "--quiet")
    (tmp_path / "ledger.jsonl").write_bytes(b'{"generation": \xff}\n')
    run_git(tmp_path, "add", "--all")
    run_git(tmp_path, "commit", "--quiet", "-m", "damaged")
    assert git(tmp_path, "show", "HEAD:ledger.jsonl") == '{"generation": \ufffd}\n'
