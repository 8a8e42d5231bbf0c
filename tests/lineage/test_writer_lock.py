"""A workspace has one writer; a disk that cannot be written is reported in one line."""

from pathlib import Path

import pytest

from zero.errors import LineageError
from zero.lineage.workspace import WRITER_LOCK_FILE, writer_lock


def test_a_lock_that_cannot_be_written_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / ".git" / WRITER_LOCK_FILE).mkdir(parents=True)
    with (
        pytest.raises(LineageError, match=rf"cannot write .*/\.git/{WRITER_LOCK_FILE}: Is a directory"),
        writer_lock(tmp_path),
    ):
        pass


def test_the_lock_is_free_again_after_its_holder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for _ in range(2):
        with writer_lock(tmp_path):
            assert (tmp_path / ".git" / WRITER_LOCK_FILE).read_text()
    assert (tmp_path / ".git" / WRITER_LOCK_FILE).read_text() == ""
