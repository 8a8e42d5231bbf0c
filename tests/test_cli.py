"""The command as a whole: what a user can cause is one line."""

import errno
import os

import pytest

from zero import cli


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_one_line(code, monkeypatch, capsys):
    def write() -> None:
        raise OSError(code, os.strerror(code), "/there/file")

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"zero: cannot write /there/file: {os.strerror(code)}; {cli.NO_ROOM[code]} and run the same command again"
    ]


def test_another_error_of_the_system_is_not_hidden(monkeypatch):
    def write() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(OSError, match="Input/output error"):
        cli.main()
