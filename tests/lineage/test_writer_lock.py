"""A workspace has one writer; a disk that cannot be written is reported in one line."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from zero.errors import LineageError
from zero.lineage.workspace import WRITER_LOCK_FILE, writer_lock, writer_of


def test_a_lock_that_cannot_be_written_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / ".git" / WRITER_LOCK_FILE).mkdir(parents=True)
    with (
        pytest.raises(LineageError, match=rf"cannot write .*/\.git/{WRITER_LOCK_FILE}: Is a directory"),
        writer_lock(tmp_path),
    ):
        pass


def test_a_file_system_without_locks_is_not_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(LineageError, match=r"cannot lock .*: No locks available; use a folder on a local disk"),
        writer_lock(tmp_path),
    ):
        pass


def test_the_lock_is_free_again_after_its_holder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for _ in range(2):
        with writer_lock(tmp_path):
            assert (tmp_path / ".git" / WRITER_LOCK_FILE).read_text()
    assert (tmp_path / ".git" / WRITER_LOCK_FILE).read_text() == ""


def test_a_process_that_got_the_number_of_a_killed_writer_is_not_the_writer(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    lock = tmp_path / ".git" / WRITER_LOCK_FILE
    assert writer_of(tmp_path) is None
    with writer_lock(tmp_path):
        assert writer_of(tmp_path) == os.getpid()
    assert writer_of(tmp_path) is None
    lock.write_text(str(os.getpid()))
    os.utime(lock, (1.0, 1.0))  # from before this process
    assert writer_of(tmp_path) is None
