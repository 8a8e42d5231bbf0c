"""Crash recovery removes the stale files of a killed git or DVC, and nothing else."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import zero.lineage.recovery
from tests.end_to_end.project import git
from zero.errors import LineageError
from zero.lineage.recovery import recover_from_crash

LOCK = """schema: '2.0'
stages:
  selfplay:
    cmd: python -m zero selfplay
    deps:
    - path: state/champion
      hash: md5
      md5: 0c41c80d6b2b3b3c0b1b6a4b0f1f5c0a.dir
      size: 10
      nfiles: 2
    outs:
    - path: data/games
      hash: md5
      md5: 5c41c80d6b2b3b3c0b1b6a4b0f1f5c0a.dir
      size: 20
      nfiles: 2
"""
OUT = "outs:\n- md5: 0c41c80d6b2b3b3c0b1b6a4b0f1f5c0a.dir\n  size: 1\n  hash: md5\n  path: champion\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lineage's workspace, cloned from a project."""
    monkeypatch.setattr(zero.lineage.recovery, "STALE_LOCK_SECONDS", 0.1)
    home, clone = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    git(home, "init", "--quiet")
    git(home, "commit", "--quiet", "--allow-empty", "-m", "project")
    git(tmp_path, "clone", "--quiet", str(home), str(clone))
    (clone / "state").mkdir()
    (clone / "dvc.lock").write_text(LOCK)
    (clone / "state/champion.dvc").write_text(OUT)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "generation")
    return clone


def status(workspace: Path) -> str:
    return git(workspace, "status", "--porcelain")


@pytest.mark.parametrize("name", ["index", "HEAD", "packed-refs", "refs/heads/lineage/go9", "refs/tags/go9/gen-0001"])
def test_a_lock_that_a_killed_git_left_is_removed(workspace: Path, name: str) -> None:
    lock = workspace / ".git" / f"{name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    recover_from_crash(workspace, "go9")
    assert not lock.exists()


def test_a_commit_whose_editor_is_open_keeps_its_lock(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero.lineage.recovery, "RUNNING_GIT_SECONDS", 0.1)
    (workspace / "dvc.lock").write_text(LOCK + "# edited\n")
    lock = workspace / ".git/index.lock"
    command = ["git", "-c", "core.editor=sleep 300 #", "commit", "--all"]
    with subprocess.Popen(command, cwd=workspace, start_new_session=True, stdin=subprocess.DEVNULL) as editing:
        while not lock.exists():
            assert editing.poll() is None
            time.sleep(0.01)
        with pytest.raises(LineageError, match=r"git is running in .* and holds .*index.lock; wait for it, or close"):
            recover_from_crash(workspace, "go9")
        assert lock.exists()
        os.killpg(editing.pid, signal.SIGKILL)
    recover_from_crash(workspace, "go9")
    assert not lock.exists()


@pytest.mark.parametrize("name", ["heads/lineage/go9", "tags/go9/gen-0001", "notes/zero-costs/go9"])
def test_a_lock_that_a_killed_push_left_in_the_project_is_removed(workspace: Path, name: str) -> None:
    lock = workspace.parent / "home/.git/refs" / f"{name}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    recover_from_crash(workspace, "go9")
    assert not lock.exists()


def test_the_draft_of_a_file_of_the_record_is_removed(workspace: Path) -> None:
    record = workspace / "record"
    record.mkdir()
    for name in (".signing-key.pub.abcd1234", "ledger.jsonl"):
        (record / name).touch()
    recover_from_crash(workspace, "go9")
    assert [path.name for path in record.iterdir()] == ["ledger.jsonl"]


def test_a_folder_of_another_program_stays(workspace: Path) -> None:
    folder = workspace / "record/.ipynb_checkpoints"
    folder.mkdir(parents=True)
    recover_from_crash(workspace, "go9")
    assert folder.is_dir()


def test_a_temporary_file_of_a_killed_dvc_is_removed(workspace: Path) -> None:
    drafts = [workspace / name for name in ("metrics/.14NmtqWBLb13Oy1W1acxRg.tmp", "state/trainee/.a_b-c.tmp")]
    for path in drafts:
        path.parent.mkdir(parents=True)
        path.touch()
    assert status(workspace) != ""
    recover_from_crash(workspace, "go9")
    assert not any(path.exists() for path in drafts) and status(workspace) == ""


@pytest.fixture
def runs(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """DVC's run cache, in which three entries are unfinished."""
    monkeypatch.setattr(zero.lineage.recovery, "STALE_RUN_SECONDS", 0.3)
    (workspace / ".dvc").mkdir()
    (workspace / ".dvc/config.local").write_text(f"[cache]\n    dir = {workspace.parent}/home/.zero/dvc-cache\n")
    runs = workspace.parent / "home/.zero/dvc-cache/runs"
    for path in ("12/empty", "34/drafted", "56/finished"):
        (runs / path).mkdir(parents=True)
    for path in ("34/drafted/.p9eTE0x1r5mG.tmp", "34/drafted/def0.a_b-c.tmp", "56/finished/.q.tmp", "56/finished/def0"):
        (runs / path).write_text("cmd: python -m zero replay\n")
    return runs


def test_unfinished_entries_of_the_run_cache_are_removed(workspace: Path, runs: Path) -> None:
    recover_from_crash(workspace, "go9")
    assert sorted(str(path.relative_to(runs)) for path in runs.rglob("*/*/*")) == ["56/finished/def0"]
    assert not (runs / "12/empty").exists() and not (runs / "34/drafted").exists()


def test_an_entry_of_the_run_cache_that_is_being_written_stays(
    workspace: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_: float) -> None:
        (runs / "12/empty/def0").touch()
        for path in runs.rglob("*.tmp"):
            path.rename(path.with_name("abc1"))

    monkeypatch.setattr(time, "sleep", write)
    recover_from_crash(workspace, "go9")
    found = sorted(str(path.relative_to(runs)) for path in runs.rglob("*/*/*"))
    assert found == ["12/empty/def0", "34/drafted/abc1", "56/finished/abc1", "56/finished/def0"]


def test_a_draft_that_was_begun_during_the_wait_stays(
    workspace: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = runs / "12/empty/.begun.tmp"
    sleep = time.sleep

    def write(seconds: float) -> None:
        begun.touch()  # again and again, so that it is young when the wait ends
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", write)
    recover_from_crash(workspace, "go9")
    assert begun.exists() and not (runs / "34/drafted").exists()


def test_a_stale_entry_of_the_run_cache_is_not_waited_for(
    workspace: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in runs.rglob("*"):
        os.utime(path, (0, 0))
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))
    recover_from_crash(workspace, "go9")
    assert not (runs / "12/empty").exists()


@pytest.mark.parametrize("name", ["index", "refs/heads/lineage/other", "refs/tags/other/gen-0001", "refs/heads/main"])
def test_locks_of_others_in_the_project_stay(workspace: Path, name: str) -> None:
    lock = workspace.parent / "home/.git" / f"{name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    recover_from_crash(workspace, "go9")
    assert lock.exists()


@pytest.mark.parametrize("length", [0, 1, 40, 150, 250, len(LOCK) - 1])
def test_a_lock_file_of_dvc_that_was_truncated_is_restored(workspace: Path, length: int) -> None:
    (workspace / "dvc.lock").write_text(LOCK[:length])
    recover_from_crash(workspace, "go9")
    assert (workspace / "dvc.lock").read_text() == LOCK


@pytest.mark.parametrize("length", [0, 5, 30, len(OUT) - 1])
def test_an_out_file_that_was_truncated_is_restored(workspace: Path, length: int) -> None:
    (workspace / "state/champion.dvc").write_text(OUT[:length])
    recover_from_crash(workspace, "go9")
    assert (workspace / "state/champion.dvc").read_text() == OUT


def test_a_truncated_file_that_was_never_committed_is_removed(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (workspace / "state/trainee.dvc").write_text("outs:")
    recover_from_crash(workspace, "go9")
    assert not (workspace / "state/trainee.dvc").exists() and status(workspace) == ""
    assert caplog.messages == [f"{workspace / 'state/trainee.dvc'} was truncated by a killed DVC; removed it"]


def test_complete_files_are_unchanged(workspace: Path) -> None:
    (workspace / "dvc.lock").write_text(LOCK.replace("size: 20", "size: 21"))
    (workspace / "state/champion.dvc").write_text(OUT.replace("size: 1", "size: 2"))
    before = status(workspace)
    recover_from_crash(workspace, "go9")
    assert status(workspace) == before != ""


@pytest.mark.parametrize(
    ("text", "stays"), [("", False), ('{"write": {"a', False), ('{"write": {}, "read": {}}', True)]
)
def test_the_read_write_lock_of_dvc_that_was_truncated_is_removed(workspace: Path, text: str, stays: bool) -> None:
    table = workspace / ".dvc/tmp/rwlock"
    table.parent.mkdir(parents=True)
    table.write_text(text)
    recover_from_crash(workspace, "go9")
    assert table.exists() == stays


def test_the_read_write_lock_of_dvc_stays_only_while_its_process_works_in_the_workspace(workspace: Path) -> None:
    table = workspace / ".dvc/tmp/rwlock"
    table.parent.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"], cwd=workspace / "state") as writer:
        table.write_text(json.dumps({"read": {}, "write": {"data": {"pid": writer.pid, "cmd": "dvc repro"}}}))
        recover_from_crash(workspace, "go9")
        assert table.exists()
        writer.kill()
    recover_from_crash(workspace, "go9")
    assert not table.exists()
    foreign = {"pid": os.getpid(), "cmd": "dvc repro"}  # this process has the number of a DVC that was killed
    table.write_text(json.dumps({"read": {"data": [foreign]}}))
    recover_from_crash(workspace, "go9")
    assert not table.exists()
