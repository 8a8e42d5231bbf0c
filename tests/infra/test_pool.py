"""Shards and a training as runs on a worker of the pool; more workers and faults: `python -m infra.cluster_drill`."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.cluster_parts import environment_of
from tests.end_to_end.project import make_project
from tests.infra.cluster import Stack, needs_cluster
from zero.presets import preset_text

pytestmark = needs_cluster

ASK_TWICE = """
import sys
from pathlib import Path
from flows.players import PoolPlayers
from flows.pool import Runs, num_workers
from zero.settings import open_store
from zero.shards.spec import ShardSpec
specs = [ShardSpec.model_validate_json(line) for line in sys.argv[1:]]
with open_store(Path.cwd()) as store, Runs() as runs:
    for _ in range(2):
        print(*(receipt.worker for receipt in PoolPlayers(store, runs).play(specs, "asked-twice")))
    print(num_workers())
"""


def as_trainer(stack: Stack, folder: Path, *words: str) -> str:
    """What Python says that has the trainer's environment."""
    env = environment_of(stack.cluster, "trainer")
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What a condition says as soon as it says something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} after {seconds:.0f} s"
        time.sleep(0.3)
    return found


def runs_of(stack: Stack, flow: str, *states: str) -> list[Any]:
    """Runs of a flow, in these states or all."""
    wanted: dict[str, Any] = {"flows": {"name": {"any_": [flow]}}}
    if states:
        wanted["flow_runs"] = {"state": {"type": {"any_": states}}}
    return list(stack.prefect("/flow_runs/filter", wanted))


@pytest.fixture(scope="module")
def home(stack: Stack) -> Path:
    """A project for the lineages of the cluster."""
    return make_project(stack.cluster.home.state.parent.parent)


@pytest.fixture(scope="module")
def said(stack: Stack, home: Path) -> list[str]:
    """What the code above says of the shards of a lineage's first generation."""
    as_trainer(stack, home, "-m", "zero", "new", "tiny", "--preset", "smoke")
    workspace = home / ".zero/workspaces/tiny"
    planned = as_trainer(stack, workspace, "-m", "zero", "plan", "selfplay").splitlines()
    lines = as_trainer(stack, workspace, "-c", ASK_TWICE, *planned).splitlines()
    assert as_trainer(stack, workspace, "-m", "zero", "plan", "selfplay", "--missing") == ""
    return lines


def test_all_shards_of_a_run_are_played_by_its_worker(stack: Stack, said: list[str]) -> None:
    worker = environment_of(stack.cluster, "worker-1")["ZERO_WORKER"]
    assert said == [f"{worker} {worker}", f"{worker} {worker}", "1"]


def test_a_run_asked_for_twice_by_one_key_is_one(stack: Stack, said: list[str]) -> None:
    (run,) = (run for run in runs_of(stack, "zero-shard") if run["idempotency_key"] == "asked-twice")
    assert (run["state"]["type"], run["work_queue_name"]) == ("COMPLETED", "selfplay")


def test_a_generation_whose_worker_is_told_to_end_is_played_trained_and_made_again(stack: Stack, home: Path) -> None:
    """With overlap: the next generation's games are on the pool at the same time as the training."""
    params = yaml.safe_load(preset_text("smoke"))
    params["seed"], params["selfplay"]["overlap"] = 2, True
    (home / "over.yaml").write_text(yaml.safe_dump(params))
    as_trainer(stack, home, "-m", "zero", "new", "over", "--params", "over.yaml")
    words = ("zero-generation/zero-generation", "--param", 'lineage="over"', "--param", 'executor="pool"')
    as_trainer(stack, home, "-m", "prefect", "deployment", "run", *words)
    before = stack.process("worker-1").pid
    until(lambda: runs_of(stack, "zero-shard", "RUNNING"), 120, "no shard is played")
    stack.command("restart", "worker-1")  # SIGTERM
    assert stack.process("worker-1").pid != before

    ended = until(lambda: runs_of(stack, "zero-generation", "COMPLETED", "FAILED", "CRASHED"), 600, "it goes on")
    assert [run["state"]["type"] for run in ended] == ["COMPLETED"], ended[0]["state"]
    assert [run["state"]["type"] for run in runs_of(stack, "zero-train")] == ["COMPLETED"]
    ahead = stack.prefect("/task_runs/filter", {"task_runs": {"name": {"any_": ["selfplay-ahead"]}}})
    assert [run["state"]["type"] for run in ahead] == ["COMPLETED"]
    compared = as_trainer(stack, home, "-m", "zero", "reproduce", "over/gen-0001", "--sample", "1")
    assert "equal" in compared
