"""A new lineage: of two commands with one name at once one makes it, and the folder has the usual modes."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.end_to_end.project import git, make_project, run
from tests.parameters import smoke_text
from zero.errors import LineageError, ZeroError
from zero.lineage.workspace import check_workspace, new_folder, new_lineage
from zero.storage.layout import DVC_CACHE_DIR, DVC_LOCK, LEDGER_FILE, workspace_dir
from zero.storage.vcs import dvc_cache_dir


def test_two_commands_with_one_name_make_one_lineage(tmp_path: Path) -> None:
    home = make_project(tmp_path / "home")
    before = os.umask(0o027)
    both = Barrier(2)

    def new(_: int) -> Path | ZeroError:
        both.wait()
        try:
            return new_lineage(home, "twin", smoke_text(), "smoke")
        except ZeroError as error:
            return error

    try:
        with ThreadPoolExecutor(2) as threads:
            (refused, workspace) = sorted(threads.map(new, range(2)), key=lambda made: isinstance(made, Path))
    finally:
        os.umask(before)
    assert isinstance(workspace, Path) and isinstance(refused, ZeroError)
    assert str(refused) == f"another process is making {workspace}; wait for its end"
    assert [path.name for path in workspace.parent.iterdir()] == ["twin"]
    assert (workspace / LEDGER_FILE).exists()
    assert {oct(path.stat().st_mode & 0o777) for path in (workspace, workspace / "state")} == {oct(0o750)}
    assert git(home, "tag").split() == ["twin/gen-0000"]


def remote_of(workspace: Path) -> str:
    """Address of DVC's remote."""
    return run([sys.executable, "-m", "dvc", "config", "remote.record.url"], workspace).stdout.strip()


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_workspace_follows_its_project(tmp_path: Path, is_copy: bool) -> None:
    """Before, a copy wrote into the project that it was copied from."""
    home = make_project(tmp_path / "home")
    new_lineage(home, "twin", smoke_text(), "smoke")
    moved = tmp_path / "moved"
    if is_copy:
        shutil.copytree(home, moved, symlinks=True)
    else:
        home.rename(moved)
    workspace = workspace_dir(moved, "twin")
    check_workspace(workspace)
    assert git(workspace, "config", "remote.origin.url").strip() == str(moved)
    assert dvc_cache_dir(workspace) == moved / DVC_CACHE_DIR
    assert remote_of(workspace) == str(moved / DVC_CACHE_DIR)
    if not is_copy:
        moved.rename(home)
        check_workspace(workspace_dir(home, "twin"))
        assert remote_of(workspace_dir(home, "twin")) == str(home / DVC_CACHE_DIR)


def test_an_origin_that_a_person_has_set_stays(tmp_path: Path) -> None:
    home = make_project(tmp_path / "home")
    workspace = new_lineage(home, "twin", smoke_text(), "smoke")
    git(tmp_path, "clone", "--quiet", "--bare", str(home), "bare.git")
    git(workspace, "remote", "set-url", "origin", str(tmp_path / "bare.git"))
    check_workspace(workspace)
    assert git(workspace, "config", "remote.origin.url").strip() == str(tmp_path / "bare.git")


def test_a_lineage_from_a_tag_of_another_one_has_none_of_its_results(tmp_path: Path) -> None:
    home = make_project(tmp_path / "home")
    (home / "metrics").mkdir()
    for name in (DVC_LOCK, "metrics/gating.json"):
        (home / name).write_text("{}\n")
    git(home, "add", "--force", DVC_LOCK, "metrics")
    git(home, "commit", "--quiet", "-m", "as at a tag")
    workspace = new_lineage(home, "twin", smoke_text(), "smoke")
    committed = git(workspace, "ls-tree", "-r", "--name-only", "HEAD").split()
    assert DVC_LOCK not in committed and not [name for name in committed if name.startswith("metrics/")]


def test_a_project_without_a_commit_and_a_link_for_zero_are_errors(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(LineageError, match=r"has no committed \.dvc/config and dvc\.yaml; commit the project first"):
        new_lineage(tmp_path / "empty", "twin", smoke_text(), "smoke")
    home = make_project(tmp_path / "home")
    (tmp_path / "large").mkdir()
    (home / ".zero").symlink_to(tmp_path / "large")
    with pytest.raises(LineageError, match=r"is a symbolic link, so .* would not find its project; set ZERO_HOME="):
        new_lineage(home, "twin", smoke_text(), "smoke")


def test_a_folder_that_a_killed_process_left_is_replaced_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "twin"
    (tmp_path / ".twin/twin/state").mkdir(parents=True)
    with new_folder(target) as building:
        assert not building.exists()
        building.mkdir()
    with pytest.raises(LineageError, match=r"another process made .*/twin just now; use it"), new_folder(target):
        pass
    assert list(tmp_path.iterdir()) == [target]
