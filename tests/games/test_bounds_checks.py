"""Kernels compiled with bounds checks: an index out of bounds raises an error instead of reading other memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zero.config.params import GAMES

PROJECT_DIR = Path(__file__).resolve().parents[2]

SAMPLES = {
    "games": [f"games/test_{name}.py" for name in ("conformance", "go_traps", *map(str, GAMES))],
    "search": [f"search/test_{name}.py" for name in ("tree", "mcts", "virtual_loss", "forced", "gumbel", "cache")],
    "players": ["players/test_rollout.py"],
    "play": ["play/test_lockstep_games.py", "data/test_samples.py"],
}
"""Files in tests/ that run every kernel, and use neither JAX nor a network."""
CHOSEN = SAMPLES if os.environ.get("ZERO_BOUNDS_CHECKS") == "all" else ("games",)
"""The others compile for minutes; `make bounds` runs all of them."""
BOARDS = "not 19x19 and not 15x15"
BOARDS_OF_SAMPLE = {"players": f"{BOARDS} and not 9x9"}
"""Selects tests by name: the largest boards take longest and cover nothing else."""
OPTIONS = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]

SCRIPT = """
import sys

import numpy as np
import pytest

from zero.games.gomoku import makes_line
from zero.games.rules import gomoku_rules

try:
    makes_line(gomoku_rules(9, 9, 5), np.zeros(9, np.int8), 80)
    sys.exit("no bounds check: a read beyond the board was not detected")
except IndexError:
    pass
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("sample", CHOSEN)
def test_kernels_stay_within_bounds(sample):
    # Checked kernels have their own cache folder, see zero/kernels.py.
    checked = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            *OPTIONS,
            "-k",
            BOARDS_OF_SAMPLE.get(sample, BOARDS),
            *(f"tests/{file}" for file in SAMPLES[sample]),
        ],
        cwd=PROJECT_DIR,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr[-3000:]
    assert " passed" in checked.stdout
