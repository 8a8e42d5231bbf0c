"""GNU Go 3.8 as an oracle, over the Go Text Protocol (GTP version 2)."""

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

import pytest

MISSING = "GNU Go is not installed (Debian package gnugo), so the comparison with it is left out"


def gnugo_path() -> str | None:
    """Path of the program, which Debian keeps in /usr/games; None where it is not installed."""
    return shutil.which("gnugo", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"]))


needs_gnugo = pytest.mark.skipif(gnugo_path() is None, reason=MISSING)
"""Mark of a test that talks to GNU Go."""


def suicide_option(allow_suicide: bool) -> str:
    return "--allow-all-suicide" if allow_suicide else "--forbid-suicide"


class GnuGo:
    """A running GNU Go; close it, or use it in a `with`."""

    def __init__(self, *options: str) -> None:
        path = gnugo_path()
        assert path, MISSING
        command = [path, "--mode", "gtp", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def ask(self, command: str) -> str:
        """The answer to one command.

        Raises:
          RuntimeError: GNU Go refused it.
        """
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        lines = []
        while line := self._process.stdout.readline().rstrip("\r\n"):
            lines.append(line)
        if not lines or not lines[0].startswith("="):
            raise RuntimeError(f"GNU Go on {command!r}: {' '.join(lines) or 'no answer'}")
        return "\n".join([lines[0][1:].strip(), *lines[1:]])

    def close(self) -> None:
        """Ends the program."""
        self._process.communicate("quit\n", timeout=10)
