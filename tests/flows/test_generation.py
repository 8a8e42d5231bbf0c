"""The flows on real servers, as a user runs them: a generation of the `smoke` preset, killed, cancelled, refused."""

import contextlib
import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.lineages import QUICKLY
from tests.end_to_end.project import edit_params, git, zero
from tests.infra.servers import Servers
from tests.parameters import smoke_text
from zero.evaluation.held_out import evaluation_dir, read_evaluation
from zero.lineage.workspace import writer_lock
from zero.record.costs import read_note
from zero.record.ledger import read_ledger
from zero.storage.layout import workspace_dir

RUN = ("prefect", "deployment", "run")
PATIENCE_SECONDS = 600


@pytest.fixture(scope="module")
def workspace(servers: Servers) -> Path:
    """The workspace of a smoke lineage, without the re-execution check, which starts another worker."""
    params = edit_params(smoke_text(), **QUICKLY, verification__shard_fraction=0.0)
    (servers.home / "smoke.yaml").write_text(params)
    zero(servers.home, "new", "tiny", "--params", "smoke.yaml")
    return workspace_dir(servers.home, "tiny")


@pytest.fixture(scope="module")
def finished(servers: Servers, workspace: Path) -> dict[str, Any]:
    """The run of its next generation, by the words of the README; a process that plays for it is killed."""
    with ThreadPoolExecutor() as threads:
        killing = threads.submit(kill_a_player, servers)
        servers.typed(*RUN, "zero-generation", "--param", "lineage=tiny", "--tag", "mine", "--watch")
        killing.result()
    return last_run(servers, "zero-generation")


def kill_a_player(servers: Servers) -> None:
    # At once: it was started for a shard, which may be played in a second.
    wait_until(lambda: next(workers_of(servers), None)).kill()


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


def metrics_in_mlflow(servers: Servers, tag: str) -> dict[str, float]:
    """Metrics of the run of a generation."""

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        address = f"{servers.mlflow}/api/2.0/mlflow/{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    experiment = ask("experiments/get-by-name?experiment_name=tiny")["experiment"]["experiment_id"]
    wanted = f"tags.`zero.tag` = '{tag}' and tags.`zero.stage` = 'generation'"
    (run,) = ask("runs/search", {"experiment_ids": [experiment], "filter": wanted})["runs"]
    return {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}


def log_of(servers: Servers, run: dict[str, Any]) -> str:
    lines = servers.api("/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}})
    return "\n".join(line["message"] for line in lines)


def ended_run(servers: Servers, flow: str) -> dict[str, Any] | None:
    run = last_run(servers, flow)
    return run if run["end_time"] else None


def commands_of(servers: Servers) -> list[psutil.Process]:
    """Processes of the project that run a command of `zero`, except the web page of `make up`."""
    found = []
    for process in psutil.process_iter():
        try:
            is_here = process.environ().get("ZERO_HOME") == str(servers.home)
            if is_here and process.cmdline()[1:3] == ["-m", "zero"] and process.cmdline()[3:4] != ["web"]:
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


def workers_of(servers: Servers) -> Iterator[psutil.Process]:
    for process in commands_of(servers):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if process.cmdline()[3:] == ["worker"]:
                yield process


def test_a_generation_is_completed_and_tagged(servers: Servers, finished: dict[str, Any], workspace: Path) -> None:
    assert finished["state_type"] == "COMPLETED"
    tag = finished["name"]
    assert tag.startswith("tiny/gen-") and tag in git(servers.home, "tag").split()
    assert read_ledger(workspace)[int(tag[-4:])].kind == "decision"


def test_each_step_and_each_shard_is_a_task(servers: Servers, finished: dict[str, Any]) -> None:
    stages = ["selfplay", "replay", "training", "gating", "verification"]
    steps = ["prepare", *stages, "registry", "evaluate", "plan-selfplay", "plan-gating"]
    shards = ["selfplay-0000", "selfplay-0001", "gating-0000", "gating-0001"]
    tasks = task_runs(servers, finished)
    assert set(tasks) >= set(steps)
    assert set(tasks) - set(steps) <= set(shards) and "gating-0001" in tasks
    assert {task["state_type"] for task in tasks.values()} == {"COMPLETED"}


def test_the_graph_is_the_way_of_the_data(servers: Servers, finished: dict[str, Any]) -> None:
    found = {node["id"]: node for _, node in servers.api(f"/flow_runs/{finished['id']}/graph-v2")["nodes"]}
    before = {
        node["label"]: {found[parent["id"]]["label"] for parent in node["parents"]}
        for node in found.values()
        if node["kind"] == "task-run"
    }
    shards = {stage: {name for name in before if name.startswith(f"{stage}-")} for stage in ("selfplay", "gating")}
    stages = ["selfplay", "replay", "training", "gating", "verification", "registry", "evaluate"]
    expected = dict(zip(stages[1:], ({stage} for stage in stages), strict=False))
    expected |= {"prepare": set(), "plan-selfplay": {"prepare"}, "plan-gating": {"training"}}
    for stage, names in shards.items():
        expected |= {name: {f"plan-{stage}"} for name in names} | {stage: names}
    assert shards["gating"] == {"gating-0000", "gating-0001"} and before == expected


def test_a_run_has_tags_one_table_of_progress_and_one_report(servers: Servers, finished: dict[str, Any]) -> None:
    shown = artifacts(servers, finished)
    assert set(shown) == {"tiny-progress", "tiny-report"}
    rows = json.loads(shown["tiny-progress"]["data"])
    assert {row["state"] for row in rows} == {"done"}
    done = {row["stage"]: row["done"] for row in rows}
    assert done["3 training"] == "12 of 12 steps" and done["4 gating"] == "16 of 16 games"
    report = shown["tiny-report"]["data"]
    assert finished["name"] in report and " in 16 games, 55% was needed" in report and servers.mlflow in report
    assert re.search(r"^\d+ won, \d+ lost, \d+ drawn \(as Black \+\d+ -\d+ =\d+, as White", report, re.M)
    assert set(finished["tags"]) in ({"mine", "tiny", "promoted"}, {"mine", "tiny", "refused"})


def test_what_it_cost_is_noted_in_git_and_shown_in_mlflow(
    servers: Servers, finished: dict[str, Any], workspace: Path
) -> None:
    costs = read_note(servers.home, "tiny", finished["name"])
    assert costs is not None and set(costs.stages) == {"selfplay", "replay", "training", "gating", "verification"}
    assert costs.total().shards_without_receipt == 0 and costs.total().evaluations > 1000
    shown = metrics_in_mlflow(servers, finished["name"])
    assert shown["6-cost/evaluations"] == costs.total().evaluations
    assert shown["6-cost/3-training/cpu_seconds"] == costs.stages["training"].cpu_seconds > 0.0


def test_its_networks_are_evaluated(servers: Servers, finished: dict[str, Any]) -> None:
    number = int(finished["name"][-4:])
    result = read_evaluation(evaluation_dir(servers.home, "tiny"), number)
    assert result is not None and {each.games for each in result.evaluations} == {"own"}
    assert "new evaluations; `zero evaluate tiny` shows them" in log_of(servers, finished)


def test_results_are_json(servers: Servers, finished: dict[str, Any]) -> None:
    results = [path.read_text() for path in (servers.home / ".zero/prefect/storage").iterdir() if path.is_file()]
    assert all(json.loads(text) for text in results)
    assert any("PromotionDecision" in text for text in results)


def test_the_shards_of_a_worker_are_played_by_one_process(servers: Servers, finished: dict[str, Any]) -> None:
    began, ended = (datetime.fromisoformat(finished[name]).timestamp() for name in ("start_time", "end_time"))
    receipts = [json.loads(path.read_bytes()) for path in (servers.home / ".zero/store/receipts").rglob("*.json")]
    players = [receipt["pid"] for receipt in receipts if began < receipt["begun"] < ended]
    assert len(players) >= 3
    assert len({*players}) <= 2, "the process that was killed, and the one that replaced it"


def test_a_killed_player_is_replaced(servers: Servers, finished: dict[str, Any]) -> None:
    again = [name for name, task in task_runs(servers, finished).items() if task["run_count"] > 1]
    assert len(again) == 1 and re.fullmatch(r"(selfplay|gating)-000[01]", again[0])


def test_a_cancelled_campaign_leaves_no_process_and_no_run(servers: Servers, finished: dict[str, Any]) -> None:
    """After the finished generation, which would find shards of the cancelled one in the store."""
    servers.typed(*RUN, "zero-campaign", "--param", "lineage=tiny", "--param", "num_generations=2")
    wait_until(lambda: next(workers_of(servers), None))
    servers.typed("prefect", "flow-run", "cancel", last_run(servers, "zero-campaign")["id"])
    for flow in ("zero-campaign", "zero-generation"):
        assert wait_until(partial(ended_run, servers, flow))["state_type"] == "CANCELLED"
    wait_until(lambda: not commands_of(servers))
    zero(servers.home, "prepare", "tiny")


def test_a_campaign_ends_if_its_generation_is_cancelled(servers: Servers, finished: dict[str, Any]) -> None:
    before = len(git(servers.home, "tag").split())
    servers.typed(*RUN, "zero-campaign", "--param", "lineage=tiny", "--param", "num_generations=2")
    wait_until(lambda: next(workers_of(servers), None))
    run = last_run(servers, "zero-generation")
    servers.typed("prefect", "flow-run", "cancel", run["id"])
    campaign = wait_until(partial(ended_run, servers, "zero-campaign"))
    cancelled = last_run(servers, "zero-generation")
    assert cancelled["id"] == run["id"], "no other generation began"
    for ended in (campaign, cancelled):
        assert ended["state_type"] == "FAILED" and "was cancelled in Prefect" in ended["state"]["message"]
    assert len(git(servers.home, "tag").split()) == before


def test_a_second_writer_fails_with_the_remedy(servers: Servers, workspace: Path) -> None:
    with writer_lock(workspace):
        done = servers.typed(*RUN, "zero-generation", "--param", "lineage=tiny", "--watch", check=False)
    assert done.returncode == 1
    assert f"{workspace} is being written by process" in log_of(servers, last_run(servers, "zero-generation"))
