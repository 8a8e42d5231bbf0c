"""19x19 Go on one thread: simulations per second of self-play, compared with Leela Zero.

Leela Zero 0.17 (`leelaz`, Debian package leela-zero) plays against itself over GTP (version 2). Both sides reuse the
tree of the move before; its visits do not count again.
"""

import atexit
import re
import tempfile
from pathlib import Path

from benchmarks import selfplay
from benchmarks.harness import Child, Context, Measured, Sides, compare, not_measured, rate
from benchmarks.results import Sample
from benchmarks.setting import GO19, params_of, residual_tower
from zero.config.params import Params
from zero.errors import OpponentError
from zero.players.gtp_process import GtpEngine, program_path

OPTIONS = "-g -t 1 -m 0 -r 0 -s 1 --noponder --cpu-only --timemanage off"
"""GTP, one thread, no random moves, no resignation, seed 1."""
REPORT = re.compile(r"\d+ visits, \d+ nodes, (\d+) playouts, \d+ n/s")
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
    if program_path("leelaz") is None:
        return not_measured("leelaz is not installed (Debian package leela-zero)")
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


class Leelaz:
    """A leelaz process that plays one game after another."""

    def __init__(self, weights: Path, num_playouts: int) -> None:
        """Starts the process.

        Raises:
          OpponentError: leelaz is not installed, or cannot read the weights.
        """
        self._home = tempfile.TemporaryDirectory(prefix="leelaz-")  # it writes into its home folder
        command = ["leelaz", *OPTIONS.split(), "-p", str(num_playouts), "--weights", str(weights)]
        self._engine = GtpEngine(command, {"HOME": self._home.name})
        self._colours = "bw"  # the player to move comes first
        try:
            self._engine.request("boardsize 19")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process."""
        self._engine.close()
        self._home.cleanup()

    def search(self) -> int:
        """Searches and plays the next move, of a new game if the last one is over; returns the simulations.

        Raises:
          OpponentError: the process died, or its report has another format.
        """
        move = self._engine.request(f"genmove {self._colours[0]}")
        reports = REPORT.findall(self._engine.diagnostics)
        if not reports:
            raise OpponentError(f"leelaz played {move} without a report of its search; install version 0.17")
        self._colours = self._colours[::-1]
        if move in ("pass", "resign"):
            self._engine.request("clear_board")
            self._colours = "bw"
        return int(reports[-1])
