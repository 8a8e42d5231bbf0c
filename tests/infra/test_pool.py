"""Shards as runs of `zero-shard` on a worker of the pool, and what a pod on Kubernetes runs, as a process here.

Whole generations are for `python -m infra.cluster_drill`.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra.cluster_parts import environment_of
from tests.end_to_end.project import make_project
from tests.infra.cluster import Stack, needs_cluster
from tests.infra.test_kubernetes import job

pytestmark = needs_cluster

ASK_TWICE = """
import sys
from pathlib import Path
from flows.players import PoolPlayers
from flows.pool import Runs, num_workers
from zero.storage.store import open_store
from zero.shards.spec import ShardSpec
specs = [ShardSpec.model_validate_json(line) for line in sys.argv[1:]]
with open_store(Path.cwd()) as store, Runs("asked by hand") as runs:
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


@pytest.fixture(scope="module")
def said(stack: Stack) -> list[str]:
    """What the code above says of the shards of a lineage's first generation."""
    home = make_project(stack.cluster.home.state.parent.parent)
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
    runs = stack.prefect("/flow_runs/filter", {"flows": {"name": {"any_": ["zero-shard"]}}})
    (run,) = (run for run in runs if run["idempotency_key"] == "asked-twice")
    assert (run["state"]["type"], run["work_queue_name"]) == ("COMPLETED", "selfplay")


SLEEPER = """
import time
from prefect import flow

@flow
def sleeper():
    while True:
        time.sleep(0.1)
"""


def state_in_time(stack: Stack, run: str, wanted: str) -> str:
    """The type of the run's state, once it is that or has not become it in a minute."""
    deadline = time.monotonic() + 60
    while True:
        found: str = stack.prefect(f"/flow_runs/{run}")["state"]["type"]
        if found == wanted or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def test_a_run_that_is_cancelled_ends_its_pod(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    there: dict[str, Any] = {"entrypoint": "sleeper.py:sleeper", "path": str(tmp_path)}
    there["pull_steps"] = [{"prefect.deployments.steps.set_working_directory": {"directory": str(tmp_path)}}]
    flow = stack.prefect("/flows/", {"name": "sleeper"})["id"]
    deployment = stack.prefect("/deployments/", {"name": "sleeper", "flow_id": flow, **there})["id"]
    run = stack.prefect(f"/deployments/{deployment}/create_flow_run", {})["id"]
    (container,) = job(command="python -m prefect.engine")["spec"]["template"]["spec"]["containers"]
    # as prefect-kubernetes sets them where backoffLimit is 0
    given = {"PREFECT__FLOW_RUN_ID": run, "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule"}
    env = environment_of(stack.cluster, "worker-1") | given
    pod = subprocess.Popen(container["args"], cwd=tmp_path, env=env)
    try:
        assert state_in_time(stack, run, "RUNNING") == "RUNNING"
        stack.prefect(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
        pod.wait(60)
        assert state_in_time(stack, run, "CANCELLED") == "CANCELLED"
    finally:
        pod.kill()
        pod.wait()
