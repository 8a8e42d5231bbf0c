"""A program that speaks the Go Text Protocol (version 2), over its standard input and output."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

WRITTEN_AHEAD = 100
"""Commands of a batch: so few that a pipe holds them all while the program waits for its answers to be read."""


def program_path(name: str) -> str | None:
    """Path of a program, also where Debian keeps games; None where it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"]))


class GtpProgram:
    """A running program; close it, or use it in a `with`."""

    def __init__(self, command: Sequence[str], hears_stderr: bool = False) -> None:
        """Starts it; `hears_stderr`: its diagnostics come in between, and `told` has them."""
        self.told: list[str] = []
        stderr = subprocess.STDOUT if hears_stderr else None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def ask(self, command: str) -> str:
        """The answer to one command; what was said before it is in `told`.

        Raises:
          RuntimeError: the program refused it, or has ended.
        """
        return next(self.ask_all([command]))

    def ask_all(self, commands: Sequence[str]) -> Iterator[str]:
        """The answers to many commands, one by one, with few waits: commands are written ahead of the answers.

        Raises:
          RuntimeError: the program refused one, or has ended.
        """
        assert self._process.stdin
        for first in range(0, len(commands), WRITTEN_AHEAD):
            batch = commands[first : first + WRITTEN_AHEAD]
            self._process.stdin.write("".join(f"{command}\n" for command in batch))
            self._process.stdin.flush()
            yield from map(self._answer, batch)

    def _answer(self, command: str) -> str:
        assert self._process.stdout
        self.told = []
        while (line := self._process.stdout.readline()) and line[0] not in "=?":
            self.told.append(line.rstrip())
        answer = [line[1:].strip()]
        while rest := self._process.stdout.readline().rstrip("\r\n"):
            answer.append(rest)
        if not line.startswith("="):
            raise RuntimeError(f"on {command!r}: {' '.join(answer) if line else self.told}")
        return "\n".join(answer)

    def close(self) -> None:
        """Ends the program."""
        self._process.communicate("quit\n", timeout=10)
