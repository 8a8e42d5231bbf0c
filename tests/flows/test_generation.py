"""The flows on real servers, as a user runs them: a generation of the `smoke` preset, killed, cancelled, refused."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.project import edit_params, git, zero
from tests.infra.servers import Servers
from zero.lineage import workspace_dir, writer_lock
from zero.params import preset_text
from zero.record import read_ledger
from zero.shards.spec import ShardSpec
from zero.storage import Store

RUN = ("prefect", "deployment", "run")
PATIENCE_SECONDS = 180


@pytest.fixture(scope="module")
def workspace(servers: Servers) -> Path:
    """The workspace of a smoke lineage."""
    zero(servers.home, "new", "tiny", "--preset", "smoke")
    return workspace_dir(servers.home, "tiny")


@pytest.fixture(scope="module")
def first_run(servers: Servers, workspace: Path) -> dict[str, Any]:
    """The run of its next generation, by the words of the README."""
    servers.typed(*RUN, "zero-generation", "--param", "lineage=tiny", "--watch")
    return last_run(servers, "zero-generation")


def last_run(servers: Servers, flow: str) -> dict[str, Any]:
    wanted = {"sort": "EXPECTED_START_TIME_DESC", "limit": 1, "flows": {"name": {"any_": [flow]}}}
    run: dict[str, Any] = servers.api("/flow_runs/filter", wanted)[0]
    return run


def task_runs(servers: Servers, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = servers.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    return {task["name"]: task for task in found}


def artifacts(servers: Servers, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = servers.api("/artifacts/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    return {artifact["key"]: artifact for artifact in found if artifact["key"]}


def log_of(servers: Servers, run: dict[str, Any]) -> str:
    lines = servers.api("/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}})
    return "\n".join(line["message"] for line in lines)


def players(servers: Servers) -> list[psutil.Process]:
    """Processes of the project that run a command of `zero`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ZERO_HOME") == str(servers.home) and process.cmdline()[1:3] == ["-m", "zero"]:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)
    return value


def a_player(servers: Servers) -> Iterator[psutil.Process]:
    return (process for process in players(servers) if process.cmdline()[3:] == ["worker"])


def test_a_generation_is_completed_and_tagged(servers: Servers, first_run: dict[str, Any], workspace: Path) -> None:
    assert first_run["state_type"] == "COMPLETED"
    tag = first_run["name"]
    assert tag.startswith("tiny/gen-") and tag in git(servers.home, "tag").split()
    assert read_ledger(workspace)[int(tag[-4:])].kind == "decision"


def test_each_step_and_each_shard_is_a_task(servers: Servers, first_run: dict[str, Any]) -> None:
    steps = ["prepare", "selfplay", "replay", "training", "gating", "registry", "plan-selfplay", "plan-gating"]
    shards = ["selfplay-0000", "selfplay-0001", "gating-0000", "gating-0001"]
    tasks = task_runs(servers, first_run)
    assert set(tasks) >= set(steps)
    assert set(tasks) - set(steps) <= set(shards) and "gating-0001" in tasks
    assert {task["state_type"] for task in tasks.values()} == {"COMPLETED"}


def test_match_decision_progress_and_link_are_shown(servers: Servers, first_run: dict[str, Any]) -> None:
    shown = artifacts(servers, first_run)
    rows = json.loads(shown["tiny-match"]["data"])
    assert [row["games"] for row in rows] == [8, 8, 16]
    assert first_run["name"] in shown["tiny-decision"]["data"]
    assert shown["tiny-gating-progress"]["data"] == 100.0 and shown["tiny-training-progress"]["data"] == 100.0
    assert servers.mlflow in shown["tiny-mlflow"]["data"]


def test_results_are_json(servers: Servers, first_run: dict[str, Any]) -> None:
    results = [path.read_text() for path in (servers.home / ".zero/prefect/storage").iterdir() if path.is_file()]
    assert all(json.loads(text) for text in results)
    assert any("ShardReceipt" in text for text in results) and any("PromotionDecision" in text for text in results)


def test_a_campaign_goes_on_when_a_player_is_killed(
    servers: Servers, first_run: dict[str, Any], workspace: Path
) -> None:
    before = len(read_ledger(workspace))
    servers.typed(*RUN, "zero-campaign", "--param", "lineage=tiny", "--param", "num_generations=1")
    killed = wait_until(lambda: next(a_player(servers), None))
    time.sleep(1.0)  # so that it has begun to play
    killed.kill()
    run = wait_until(lambda: found if (found := last_run(servers, "zero-campaign"))["end_time"] else None)
    assert run["state_type"] == "COMPLETED"
    assert len(read_ledger(workspace)) == before + 1
    made = last_run(servers, "zero-generation")
    assert made["name"] == f"tiny/gen-{before:04d}"
    assert [name for name, task in task_runs(servers, made).items() if task["run_count"] > 1] in (
        ["selfplay-0000"],
        ["selfplay-0001"],
    )


def test_a_cancelled_generation_leaves_no_process_and_can_be_made_again(servers: Servers, workspace: Path) -> None:
    servers.typed(*RUN, "zero-generation", "--param", "lineage=tiny")
    wait_until(lambda: next(a_player(servers), None))
    run = last_run(servers, "zero-generation")
    servers.typed("prefect", "flow-run", "cancel", run["id"])
    assert wait_until(lambda: found if (found := last_run(servers, "zero-generation"))["end_time"] else None)
    assert last_run(servers, "zero-generation")["state_type"] == "CANCELLED"
    wait_until(lambda: not players(servers))
    zero(servers.home, "prepare", "tiny")


def test_a_second_writer_fails_with_the_remedy(servers: Servers, workspace: Path) -> None:
    with writer_lock(workspace):
        done = servers.typed(*RUN, "zero-generation", "--param", "lineage=tiny", "--watch", check=False)
    assert done.returncode == 1
    assert f"{workspace} is being written by process" in log_of(servers, last_run(servers, "zero-generation"))


def test_an_unknown_lineage_fails_with_those_there_are(servers: Servers, workspace: Path) -> None:
    done = servers.typed(*RUN, "zero-generation", "--param", "lineage=go7", "--watch", check=False)
    assert done.returncode == 1
    assert "unknown lineage 'go7'; there are: " in log_of(servers, last_run(servers, "zero-generation"))


def test_a_shard_is_played_into_the_store_by_its_deployment(servers: Servers, workspace: Path) -> None:
    planned = zero(workspace, "plan", "selfplay").stdout.splitlines()[0]
    spec = ShardSpec.model_validate_json(planned).model_copy(update={"seed": 99})
    servers.typed(*RUN, "zero-shard", "--params", json.dumps({"spec": spec.model_dump(mode="json")}), "--watch")
    assert Store(str(servers.home / ".zero/store")).get_shard(spec.key()) is not None


def test_a_generation_on_the_pool_has_a_run_for_each_shard(servers: Servers) -> None:
    params = edit_params(
        preset_text("smoke"), executor__kind="pool", selfplay__games_per_shard=24, gating__games_per_shard=16
    )
    (servers.home / "pooled.yaml").write_text(params)
    zero(servers.home, "new", "pooled", "--params", "pooled.yaml")
    servers.typed(*RUN, "zero-generation", "--param", "lineage=pooled", "--watch")
    assert "pooled/gen-0001" in git(servers.home, "tag").split()
    runs = servers.api("/flow_runs/filter", {"flows": {"name": {"any_": ["zero-shard"]}}})
    assert {run["name"]: run["state_type"] for run in runs if run["parent_task_run_id"]} == {
        "selfplay-0": "COMPLETED",
        "gating-0": "COMPLETED",
    }
