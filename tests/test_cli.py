"""The command `zero`: an error that a user can cause is one line."""

import errno
import os

import pytest

from zero import cli


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_cannot_be_written_is_one_line(code, monkeypatch, capsys):
    def write() -> None:
        raise OSError(code, os.strerror(code), "/there/file")

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"zero: cannot write /there/file: {os.strerror(code)}; {cli.NOT_WRITABLE[code]} and run the same command again"
    ]


def test_other_system_errors_are_raised(monkeypatch):
    def write() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(OSError, match="Input/output error"):
        cli.main()
