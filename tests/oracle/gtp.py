"""A program that speaks the Go Text Protocol (version 2), over its standard input and output."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

BATCH_COMMANDS = 100
"""Commands per batch, few enough for the pipe while the program waits until its responses are read."""


def program_path(name: str) -> str | None:
    """Path of a program, also in Debian's folder of games; None if it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"]))


class GtpProgram:
    """A process that speaks GTP; close it, or use it as a context manager."""

    def __init__(self, command: Sequence[str], merge_stderr: bool = False) -> None:
        """Starts the program; with `merge_stderr` its diagnostics go to `diagnostics`."""
        self.diagnostics: list[str] = []
        stderr = subprocess.STDOUT if merge_stderr else None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def ask(self, command: str) -> str:
        """The response to one command; lines before it go to `diagnostics`.

        Raises:
          RuntimeError: the program rejected the command or has ended.
        """
        return next(self.ask_all([command]))

    def ask_all(self, commands: Sequence[str]) -> Iterator[str]:
        """The responses to many commands, one by one; writes commands in batches to wait less.

        Raises:
          RuntimeError: the program rejected a command or has ended.
        """
        assert self._process.stdin
        for first in range(0, len(commands), BATCH_COMMANDS):
            batch = commands[first : first + BATCH_COMMANDS]
            self._process.stdin.write("".join(f"{command}\n" for command in batch))
            self._process.stdin.flush()
            yield from map(self._response, batch)

    def _response(self, command: str) -> str:
        assert self._process.stdout
        self.diagnostics = []
        while (line := self._process.stdout.readline()) and line[0] not in "=?":
            self.diagnostics.append(line.rstrip())
        response = [line[1:].strip()]
        while rest := self._process.stdout.readline().rstrip("\r\n"):
            response.append(rest)
        if not line.startswith("="):
            raise RuntimeError(f"on {command!r}: {' '.join(response) if line else self.diagnostics}")
        return "\n".join(response)

    def close(self) -> None:
        """Ends the program."""
        self._process.communicate("quit\n", timeout=120)
