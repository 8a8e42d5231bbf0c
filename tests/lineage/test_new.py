"""A new lineage: of two commands with one name at once one makes it, and the folder has the usual modes."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.end_to_end.project import git, make_project
from tests.parameters import smoke_text
from zero.errors import LineageError, ZeroError
from zero.lineage.workspace import new_folder, new_lineage
from zero.storage.layout import LEDGER_FILE


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


def test_a_folder_that_a_killed_process_left_is_replaced_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "twin"
    (tmp_path / ".twin/twin/state").mkdir(parents=True)
    with new_folder(target) as building:
        assert not building.exists()
        building.mkdir()
    with pytest.raises(LineageError, match=r"another process made .*/twin just now; use it"), new_folder(target):
        pass
    assert list(tmp_path.iterdir()) == [target]
