"""The kernels once more, compiled so that an index out of bounds is an error instead of somebody else's memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT_DIR = Path(__file__).resolve().parents[2]

SAMPLES = {
    "games": ["tests/games/test_conformance.py", "tests/games/test_go.py", "tests/games/test_gomoku.py"],
    # The two that are left out have kernels that the others run, beside JAX and beside networks.
    "search": ["tests/search", "--ignore=tests/search/test_gumbel_mctx.py"],
    "play": ["tests/play", "--ignore=tests/play/test_shard.py"],
}
BOARDS_OF_SAMPLE = "not 19x19 and not 15x15"
"""Chooses tests by name: the largest boards take longest and show nothing new."""
OPTIONS = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]

SCRIPT = """
import sys

import numpy as np
import pytest

from zero.games.gomoku import makes_line
from zero.games.rules import gomoku_rules

try:
    makes_line(gomoku_rules(9, 9, 5), np.zeros(9, np.int8), 80)
except IndexError:
    sys.exit(pytest.main(sys.argv[1:]))
sys.exit("no bounds check: a read beyond the board went unseen")
"""


@pytest.mark.parametrize("sample", SAMPLES)
def test_kernels_stay_within_bounds(sample):
    # Checked kernels have a cache folder of their own, see zero/_jit.py.
    checked = subprocess.run(
        [sys.executable, "-c", SCRIPT, *OPTIONS, "-k", BOARDS_OF_SAMPLE, *SAMPLES[sample]],
        cwd=PROJECT_DIR,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr[-3000:]
    assert " passed" in checked.stdout
