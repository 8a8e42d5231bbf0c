"""Imports at the start of a command: most of the run time of a short one."""

import os
import subprocess
import sys

import pytest

from zero.config.params import preset_text
from zero.storage.files import write_manifest
from zero.storage.layout import GENERATION_FILE
from zero.storage.manifests import GenerationId

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
        ("rollback none none/gen-0001", {"cryptography"}),
        ("branch none none/gen-0001 new", {"cryptography"}),
        ("selfplay", KERNELS | GAMES | PROGRESS),
        ("replay", KERNELS | GAMES),
        ("gating", KERNELS | GAMES | PROGRESS),
        ("verification", KERNELS | GAMES | PROGRESS),
        ("worker", KERNELS | GAMES),
        ("train", set()),
    ],
)
def test_command_imports_no_large_library_that_it_does_not_need(tmp_path, command, needed):
    # A workspace without data: each command imports its modules and then fails.
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    write_manifest(tmp_path, GenerationId(lineage="go9", number=1, resign_threshold=-1.0), GENERATION_FILE)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "zero", *command.split()],
        cwd=tmp_path,
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


PLAYER = """
import sys
from pathlib import Path

from zero.players.build import resolve_player
from zero.players.spec import parse_player

home = Path(sys.argv[1])
player = resolve_player(home, parse_player("shipped:go9,simulations=4"))
"""
SELF_PLAY = """
from zero.stages.spec import plan_shards
from zero.stages.worker import play_into_store
from zero.storage.store import Store

params = player.network.params
profile = params.profile.model_copy(update={"precision": "fp32"})  # every machine has it
selfplay = params.selfplay.model_copy(update={"num_games": 1, "num_slots": 1, "num_simulations": 12})
params = params.model_copy(update={"profile": profile, "selfplay": selfplay})
store = Store(str(home))
(spec,) = plan_shards(params, "selfplay", 1, (store.put_weights(player.network.weights),))
assert play_into_store(spec, store).num_evaluations > 0
"""
WEB_GAME = """
from zero.games.rules import rules_of
from zero.web.engines import Engines

engines = Engines(home)
rules = rules_of(engines.game_of([player], None))
assert 0 <= engines.open(player, rules).choose(None) < rules.num_actions
assert engines.ownership(player).predict(rules, (40,)).shape == (81,)
"""


@pytest.mark.parametrize("program", [SELF_PLAY, WEB_GAME], ids=["self-play", "game on the web page"])
def test_openvino_plays_without_torch(tmp_path, program):
    loaded = f"{PLAYER}{program}print('openvino' in sys.modules, 'torch' in sys.modules)"
    command = [sys.executable, "-c", loaded, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True False\n", done.stderr
