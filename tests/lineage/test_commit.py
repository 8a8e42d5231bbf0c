"""The commit of a generation has what the generation changed, and nothing else."""

from pathlib import Path

from tests.end_to_end.project import git
from zero.lineage.registry import commit_record
from zero.lineage.workspace import GENERATED


def test_a_file_that_changed_after_the_check_of_the_workspace_is_not_committed(tmp_path: Path) -> None:
    files = ("params.yaml", "record/ledger.jsonl", "state/generation.json", "metrics/old", "plots/curve", "dvc.lock")
    git(tmp_path, "init", "--quiet")
    for text in ("before", "after"):
        for name in files:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        if text == "before":
            git(tmp_path, "add", "--all")
            git(tmp_path, "commit", "--quiet", "-m", "before")
    (tmp_path / "metrics/old").rename(tmp_path / "metrics/new")
    (tmp_path / "mine").write_text("after")
    git(tmp_path, "add", "params.yaml")
    commit_record(tmp_path, "generation", *GENERATED, "record")
    changed = git(tmp_path, "show", "--name-only", "--format=", "--no-renames", "HEAD").split()
    assert changed == ["dvc.lock", "metrics/new", "metrics/old", "plots/curve", *files[1:3]]
    assert git(tmp_path, "status", "--porcelain").splitlines() == [" M params.yaml", "?? mine"]
