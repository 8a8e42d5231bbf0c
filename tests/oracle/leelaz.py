"""Leela Zero 0.17 as an oracle: its evaluation of a network in its text format."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.oracle.gtp import GtpProgram, program_path

MISSING = "Leela Zero is not installed (Debian package leela-zero), so the comparison with it is left out"
needs_leelaz = pytest.mark.skipif(program_path("leelaz") is None, reason=MISSING)
"""Mark of a test that needs Leela Zero."""

SIZE = 19


class Heatmap(NamedTuple):
    """Result of `heatmap`: the evaluation without a symmetry and without a search."""

    policy: np.ndarray  # [362] int, per mille, rounded down; row 19 first, the pass last; 0 on stones
    winrate: float  # of the player to move, 0 to 1


class Leelaz(GtpProgram):
    """A Leela Zero process on one thread of the CPU."""

    def __init__(self, weights: Path) -> None:
        path = program_path("leelaz")
        assert path, MISSING
        super().__init__(
            [path, "--gtp", "--cpu-only", "--threads", "1", "--noponder", "--weights", str(weights)], merge_stderr=True
        )

    def heatmap(self) -> Heatmap:
        self.ask("heatmap")
        words = [line.split() for line in self.diagnostics]
        rows = [row for row in words if len(row) == SIZE and all(word.isdecimal() for word in row)]
        last = {row[0]: row[1] for row in words if row and row[0] in ("pass:", "winrate:")}
        policy = np.array([*(word for row in rows for word in row), last["pass:"]], np.int64)
        assert policy.shape == (SIZE * SIZE + 1,), self.diagnostics
        return Heatmap(policy, float(last["winrate:"]))
