"""19x19 Go on one thread: simulations per second of self-play, compared with Leela Zero.

Leela Zero 0.17 (`leelaz`, Debian package leela-zero) plays against itself over GTP (version 2). Both sides reuse the
tree of the move before; its visits do not count again.
"""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks import selfplay
from benchmarks.harness import Child, Context, Measured, Sides, compare, not_measured, rate
from benchmarks.results import Sample
from benchmarks.setting import GO19, params_of, residual_tower
from zero.config.params import Params
from zero.errors import ZeroError

MISSING = "leelaz is not installed (Debian package leela-zero)"
OPTIONS = "-g -t 1 -m 0 -r 0 -s 1 --noponder --cpu-only --timemanage off"
"""GTP, one thread, no random moves, no resignation, seed 1."""
REPORT = re.compile(r"(\d+) visits, \d+ nodes, (\d+) playouts, \d+ n/s")
"""Its report of a search. Visits that the tree had before are not playouts."""


def prepare(params: Params) -> Sides:
    """Side `leelaz`: simulations per second."""
    from zero.interop.leela_zero import leela_zero_weights
    from zero.network.weights import new_network

    with tempfile.TemporaryDirectory(prefix="zero-bench-") as folder:
        weights = Path(folder) / "weights.txt"
        weights.write_bytes(leela_zero_weights(new_network(params.network, params.game, params.seed)))
        program = Leelaz(weights, params.selfplay.num_simulations)
    atexit.register(program.close)
    program.search()
    return {"leelaz": lambda seconds: Sample(rate(program.search, seconds))}


def against_leelaz(context: Context) -> Measured:
    """Our self-play of 32 games in lock-step against leelaz with one game."""
    if not leelaz_path():
        return not_measured(MISSING)
    params, core = leela_params(context), context.cores[-1:]
    with Child(selfplay.prepare, params, cores=core) as ours, Child(prepare, params, cores=core) as rival:
        return compare(context, ours.side("simulations"), rival.side("leelaz"))


def leela_params(context: Context) -> Params:
    """6x64 on 19x19, with the first network of the seed. Leela Zero supports value heads of width 256 only."""
    return params_of(
        GO19,
        context.profile,
        network=residual_tower(6, 64, value_hidden=256),
        search={"max_nodes": 600},
        selfplay={"num_simulations": 200, "fast_simulations": 1, "num_slots": 32},
        gating={"num_simulations": 1},
    )


def leelaz_path() -> str | None:
    """Path of the program, which Debian installs in /usr/games; None if it is not installed."""
    return shutil.which("leelaz", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/games"]))


class Leelaz:
    """A leelaz process that plays one game after another."""

    def __init__(self, weights: Path, num_playouts: int) -> None:
        """Starts the process.

        Raises:
          ZeroError: leelaz is not installed, or cannot read the weights.
        """
        path = leelaz_path()
        if path is None:
            raise ZeroError(f"{MISSING}; install it, or omit its row")
        self._home = tempfile.TemporaryDirectory(prefix="leelaz-")  # it writes into its home folder
        self._process = subprocess.Popen(
            [path, *OPTIONS.split(), "-p", str(num_playouts), "--weights", str(weights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HOME": self._home.name},
            text=True,
        )
        self._to_play = "b"
        try:
            self._send("boardsize 19")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._home.cleanup()

    def search(self) -> int:
        """Searches and plays the next move, of a new game if the last one is over; returns the simulations.

        Raises:
          ZeroError: the process died, or its report has another format.
        """
        lines = self._send(f"genmove {self._to_play}")
        move = lines[-1].removeprefix("=").strip()
        reports = [match for line in lines if (match := REPORT.search(line))]
        if not reports:
            raise ZeroError(f"leelaz played {move} without a report of its search; install version 0.17")
        if move in ("pass", "resign"):
            self._send("clear_board")
            self._to_play = "b"
        else:
            self._to_play = "w" if self._to_play == "b" else "b"
        return int(reports[-1].group(2))

    def _send(self, command: str) -> list[str]:
        """All lines up to the response. The empty line after it is skipped by the next call."""
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
        output = [line for line in lines if line]
        raise ZeroError(f"leelaz failed at `{command}`: {output[-1] if output else '(no output)'}")
