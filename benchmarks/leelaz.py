"""Leela Zero 0.17 (`leelaz`, Debian package leela-zero) on one thread, playing against itself over GTP (version 2)."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from zero.errors import ZeroError

MISSING = "leelaz is not installed (Debian package leela-zero)"
REPORT = re.compile(r"(\d+) visits, \d+ nodes, (\d+) playouts, \d+ n/s")
"""What it says of a search. Visits of the tree that it had before are no playouts."""
GAME_END = ("pass", "resign")


class Search(NamedTuple):
    """One search for a move."""

    move: str  # "D4", "pass" or "resign"
    playouts: int  # simulations of this search
    seconds: float


def leelaz_path() -> str | None:
    """Path of the program, which Debian keeps in /usr/games; None where it is not installed."""
    return shutil.which("leelaz", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"]))


class Leelaz:
    """leelaz, one game after another; use it in a `with`."""

    def __init__(self, weights: Path, num_playouts: int) -> None:
        """Starts it; every search makes `num_playouts` simulations.

        Raises:
          ZeroError: it is not installed, or cannot read the weights.
        """
        path = leelaz_path()
        if path is None:
            raise ZeroError(f"{MISSING}; leave its row out, or install it")
        options = [
            "-g",
            "-t",
            "1",
            "-p",
            str(num_playouts),
            "-m",
            "0",
            "-r",
            "0",
            "-s",
            "1",
            "--noponder",
            "--cpu-only",
        ]
        self._home = tempfile.TemporaryDirectory(prefix="leelaz-")  # so that it neither reads nor writes in the user's
        self._process = subprocess.Popen(
            [path, *options, "--timemanage", "off", "--weights", str(weights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HOME": self._home.name},
            text=True,
        )
        self._to_play = "b"
        try:
            self._ask("boardsize 19")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()
        self._home.cleanup()

    def search(self) -> Search:
        """Searches and plays the next move; after the end of a game a new one begins.

        Raises:
          ZeroError: it died, or its report is not as expected.
        """
        started = time.perf_counter()
        lines = self._ask(f"genmove {self._to_play}")
        seconds = time.perf_counter() - started
        move = lines[-1].removeprefix("=").strip()
        found = [match for line in lines if (match := REPORT.search(line))]
        if not found:
            raise ZeroError(f"leelaz played {move} without a report of its search; is it version 0.17?")
        if move in GAME_END:
            self._ask("clear_board")
            self._to_play = "b"
        else:
            self._to_play = "w" if self._to_play == "b" else "b"
        return Search(move, int(found[-1].group(2)), seconds)

    def _ask(self, command: str) -> list[str]:
        """All lines up to the answer; the empty line after it is skipped by the next call."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line.rstrip())
            if line.startswith("="):
                return lines
            if line.startswith("?"):
                break
        said = [line for line in lines if line]
        raise ZeroError(f"leelaz failed at `{command}`: {said[-1] if said else 'it said nothing'}")
