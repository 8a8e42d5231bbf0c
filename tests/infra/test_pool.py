"""A generation played and trained by a worker of the pool, while the games of the next one are played ahead."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra.cluster_parts import environment_of
from tests.end_to_end.project import edit_params, make_project
from tests.infra.cluster import Stack, needs_cluster
from zero.presets import preset_text

pytestmark = needs_cluster


def as_trainer(stack: Stack, *words: str, folder: Path | None = None) -> str:
    """What a command says that has the trainer's environment."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder or stack.cluster.home.state.parent.parent,
        env=environment_of(stack.cluster, "trainer") | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def workspace(stack: Stack) -> Path:
    """A lineage with overlap whose first generation was made by the pool."""
    home = make_project(stack.cluster.home.state.parent.parent)
    few = {"selfplay__num_games": 12, "gating__num_games": 8, "verification__game_fraction": 0.1}
    params = yaml.safe_load(edit_params(preset_text("smoke"), gating__threshold=0.0, **few))
    params["selfplay"]["overlap"] = True
    (home / "overlap.yaml").write_text(json.dumps(params))
    as_trainer(stack, "zero", "new", "tiny", "--params", "overlap.yaml")
    run = ("prefect", "deployment", "run", "zero-generation/zero-generation", "--watch")
    as_trainer(stack, *run, "--param", "lineage=tiny", "--param", "executor=pool")
    return home / ".zero/workspaces/tiny"


def test_shards_and_training_are_runs_on_the_worker(stack: Stack, workspace: Path) -> None:
    runs = stack.prefect("/flow_runs/filter", {"flows": {"name": {"any_": ["zero-shard", "zero-train"]}}})
    assert {run["work_queue_name"] for run in runs} == {"gate", "train", "selfplay"}
    assert {run["state"]["type"] for run in runs} == {"COMPLETED"}
    assert len({run["idempotency_key"] for run in runs}) == len(runs)


def test_the_next_generation_has_its_games_already_from_the_worker(stack: Stack, workspace: Path) -> None:
    assert json.loads((workspace / "state/generation.json").read_text())["number"] == 2
    assert as_trainer(stack, "zero", "plan", "selfplay", "--missing", folder=workspace) == ""
    planned = as_trainer(stack, "zero", "plan", "selfplay", folder=workspace).splitlines()
    assert len(planned) == 1
    code = """
import sys
from pathlib import Path
from zero.settings import open_store
from zero.shards.spec import ShardReceipt, ShardSpec
with open_store(Path.cwd()) as store:
    for line in sys.argv[1:]:
        for data in store.get_receipts(ShardSpec.model_validate_json(line).key()):
            print(ShardReceipt.model_validate_json(data).worker)
"""
    env = environment_of(stack.cluster, "trainer")
    said = subprocess.run(
        [sys.executable, "-c", code, *planned], cwd=workspace, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert said.split() == [environment_of(stack.cluster, "worker-1")["ZERO_WORKER"]]
