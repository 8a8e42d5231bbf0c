"""Leela Zero 0.17 (`leelaz`, Debian package leela-zero) on one thread, as a rival of self-play on 19x19.

It plays against itself over GTP (version 2), one game after another.
"""

import itertools
import re
import tempfile
from collections.abc import Generator
from pathlib import Path

from benchmarks.harness import Work, rate
from zero.config.params import Params
from zero.errors import OpponentError
from zero.players.gtp_process import GtpEngine

OPTIONS = "-g -t 1 -m 0 -r 0 -s 1 --noponder --cpu-only --timemanage off"
"""GTP, one thread, no random moves, no resignation, seed 1."""
REPORT = re.compile(r"\d+ visits, \d+ nodes, (\d+) playouts, \d+ n/s")
"""Its report of a search. Visits that the tree had before are not playouts."""


def leelaz(params: Params) -> Work:
    """Simulations per second, with the first network of the seed."""
    from zero.interop.leela_zero import leela_zero_weights
    from zero.network.weights import new_network

    weights = leela_zero_weights(new_network(params.network, params.game, params.seed))
    done = searches(weights, params.selfplay.num_simulations)
    next(done)
    return lambda seconds: rate(lambda: next(done), seconds)


def searches(weights: bytes, num_playouts: int) -> Generator[int, None, None]:
    """Searches and plays moves without end; yields the simulations of each search.

    Raises:
      OpponentError: leelaz is not installed, cannot read the weights, or died; or its report has another format.
    """
    with tempfile.TemporaryDirectory(prefix="leelaz-") as home:  # it writes into its home folder
        path = Path(home) / "weights.txt"
        path.write_bytes(weights)
        command = ["leelaz", *OPTIONS.split(), "-p", str(num_playouts), "--weights", str(path)]
        with GtpEngine(command, {"HOME": home}) as engine:
            engine.request("boardsize 19")
            while True:
                engine.request("clear_board")
                for colour in itertools.cycle("bw"):
                    move = engine.request(f"genmove {colour}")
                    reports = REPORT.findall(engine.diagnostics)
                    if not reports:
                        raise OpponentError(
                            f"leelaz played {move} without a report of its search; install version 0.17"
                        )
                    yield int(reports[-1])
                    if move in ("pass", "resign"):
                        break
