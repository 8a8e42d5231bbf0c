"""Imports at the start of a command: most of the run time of a short one."""

import os
import subprocess
import sys

import pytest

HEAVY = {
    *("boto3", "cryptography", "fsspec", "matplotlib", "mlflow", "numba", "onnx", "openvino", "pandas", "pyarrow"),
    *("pydantic_settings", "rich", "scipy", "securesystemslib", "sympy", "torch"),
}
KERNELS = {"numba", "scipy"}
"""Numba reads SciPy's version."""
GAMES = {"fsspec", "pyarrow"}
"""Needed by commands that read shards from the store."""
PROGRESS = {"rich"}
"""Estimates the time left."""


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("status", {"rich"}),
        ("prepare none", {"cryptography"}),
        ("advance none", {"cryptography", "rich"}),
        ("selfplay", KERNELS | GAMES | PROGRESS),
        ("replay", KERNELS | GAMES),
        ("gating", KERNELS | GAMES | PROGRESS),
        ("verification", KERNELS | GAMES | PROGRESS),
        ("worker", KERNELS | GAMES),
        ("train", set()),
    ],
)
def test_command_imports_no_large_library_that_it_does_not_need(tmp_path, command, needed):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "zero", *command.split()],
        cwd=tmp_path,  # an empty folder: each command imports its modules and then fails
        env=os.environ | {"ZERO_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if row.startswith("import time:")}
    assert "zero.cli" in imported
    assert "Traceback" not in done.stderr
    assert HEAVY & imported == needed
