"""Generation 1 of the presets for a GPU, through all five stages on the CPU, with a tiny network and a few games."""

import json
import shutil
from pathlib import Path

import pytest

from tests.made_games import write_workspace
from tests.parameters import preset
from zero.config.params import Params
from zero.stages import gating, replay, selfplay, training, verification
from zero.stages.inputs import read_inputs
from zero.storage.files import read_manifest, write_manifest
from zero.storage.manifests import Champion, Checkpoint
from zero.storage.store import Store

PROJECT_DIR = Path(__file__).resolve().parents[2]
GAMES, STEPS = 2, 4
FEW = {"games_per_shard": GAMES, "num_slots": GAMES, "num_simulations": 2}
CHANGES = {
    "network": {"num_blocks": 2, "num_channels": 8, "value_hidden": 8},  # the second block has the pooling
    "selfplay": FEW | {"num_games": GAMES, "fast_simulations": 2},
    "gating": FEW | {"num_games": GAMES},
    "training": {"num_steps": STEPS, "batch_size": 8, "warmup_steps": STEPS, "log_interval": 2},
    "profile": {"device": "cpu", "precision": "fp32", "training_precision": "fp32", "training_threads": 1},
    "executor": {"num_processes": 1},
}


@pytest.mark.parametrize("name", ["go9-gpu", "go13-gpu", "go19-gpu-small"])
def test_the_first_generation_is_made(name, tmp_path):
    tree = preset(name).model_dump()
    params = Params.model_validate(tree | {section: tree[section] | fields for section, fields in CHANGES.items()})
    for path in ("zero", "constraints.txt"):
        (tmp_path / path).symlink_to(PROJECT_DIR / path)
    write_workspace(tmp_path, params)
    trainee = read_manifest(tmp_path / "state/trainee", Checkpoint)
    shutil.copytree(tmp_path / "state/trainee", tmp_path / "state/champion")
    champion = Champion(generation=0, network=params.network, weights=trainee.weights)
    write_manifest(tmp_path / "state/champion", champion)
    store = Store(str(tmp_path / "store"))
    games = selfplay.run(read_inputs(tmp_path), store)
    window = replay.run(read_inputs(tmp_path), store)
    assert window.num_games == GAMES and window.num_positions == games.num_positions > GAMES * params.game.size
    assert training.run(read_inputs(tmp_path)).step == STEPS
    metrics = json.loads((tmp_path / "metrics/training.json").read_text())
    assert metrics["ownership_loss"] > 0
    assert gating.run(read_inputs(tmp_path), store).match.unique_games > 1
    verified = verification.run(read_inputs(tmp_path), store)
    assert (verified.selfplay.num_games, verified.gating.num_games) == (1, 1)
