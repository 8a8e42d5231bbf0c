"""Who gets in where, on a real cluster: passwords, hosts, names, and what a part is told."""

import json
import re
import shutil
import time
import uuid
from datetime import UTC, datetime

import psutil
import pytest

from flows.workers import STAGES, code_resource
from infra import pools
from tests.cluster.parts import known_workers
from tests.cluster.stack import Stack, needs_cluster
from tests.end_to_end.project import SOURCE_DIR, run
from zero.stages.spec import code_digest, lock_file_digest

pytestmark = needs_cluster

EXPERIMENT = "/api/2.0/mlflow/experiments/get?experiment_id=0"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


def mlflow_user(stack: Stack) -> str:
    return f"zero:{stack.cluster.secret('mlflow-password')}"


@pytest.mark.parametrize("user", ["", "zero:wrong", "zero:", "wrong"])
@pytest.mark.parametrize("path", ["/admin/version", "/work_pools/zero", "/variables/name/health"])
def test_prefect_refuses_who_has_no_password(stack: Stack, user: str, path: str) -> None:
    assert stack.ask("prefect", f"/api{path}", user).status == 401


def test_nobody_starts_a_run_without_a_password(stack: Stack) -> None:
    deployment = stack.prefect("/deployments/name/zero-generation/zero-generation")["id"]
    path = f"/api/deployments/{deployment}/create_flow_run"
    for user in ("", "zero:wrong", mlflow_user(stack)):
        assert stack.ask("prefect", path, user, "POST", b"{}").status == 401


@pytest.mark.parametrize("user", ["", "zero:wrong", "admin:password1234"])  # the last is MLflow's own default
def test_mlflow_refuses_who_has_no_password(stack: Stack, user: str) -> None:
    assert stack.ask("mlflow", EXPERIMENT, user).status == 401
    assert stack.ask("mlflow", "/", user).status == 401
    assert stack.ask("mlflow", f"{ARTIFACTS}?path=", user).status == 401
    assert stack.ask("mlflow", f"{ARTIFACTS}/a/b", user, "PUT", b"bytes").status == 401


def test_mlflow_refuses_a_foreign_host(stack: Stack) -> None:
    refused = stack.ask("mlflow", EXPERIMENT, mlflow_user(stack), host="evil.example")
    assert (refused.status, "Invalid Host header" in refused.text) == (403, True)
    assert stack.ask("mlflow", EXPERIMENT, mlflow_user(stack)).status == 200


@pytest.mark.parametrize("name", ["x" * 300, "a/" + "x" * 2000, "x" * 60_000])
def test_mlflow_refuses_an_artifact_whose_name_is_too_long(stack: Stack, name: str) -> None:
    before = stack.ask("mlflow", f"{ARTIFACTS}?path=", mlflow_user(stack)).text
    refused = stack.ask("mlflow", f"{ARTIFACTS}/{name}", mlflow_user(stack), "PUT", b"bytes")
    assert refused.status >= 400
    assert "Traceback" not in refused.text and len(refused.text) < 200
    assert stack.ask("mlflow", f"{ARTIFACTS}?path=", mlflow_user(stack)) == (200, before)


@pytest.mark.parametrize(
    "path", ["../../zero-store/a", "a/../../b", "..%2f..%2fb", "%252e%252e/b", "file:///etc/passwd"]
)
def test_mlflow_refuses_a_path_that_leaves_its_folder(stack: Stack, path: str) -> None:
    for method, body in (("GET", None), ("PUT", b"bytes"), ("DELETE", None)):
        assert stack.ask("mlflow", f"{ARTIFACTS}/{path}", mlflow_user(stack), method, body).status == 400


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_mlflows_password_is_changed_as_the_docs_say(stack: Stack) -> None:
    folder, old = stack.cluster.secrets, stack.cluster.secret("mlflow-password")
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    told = (SOURCE_DIR / "docs/security.md").read_text().partition("## A key is lost")[2]
    script = re.findall(r"```\n(.*?)```", told, re.DOTALL)[0]
    for said, here in ((".zero/secrets", folder), (":5000", f":{stack.cluster.ports['mlflow']}")):
        assert script.count(said) == 1
        script = script.replace(said, str(here))
    place = f"127.0.0.1:{stack.cluster.ports['postgres']}"
    try:
        run(["bash", "-euo", "pipefail", "-c", script], SOURCE_DIR, ZERO_POSTGRES=place)
        new = stack.cluster.secret("mlflow-password")
        assert stack.ask("mlflow", EXPERIMENT, f"zero:{old}").status == 401
        assert stack.ask("mlflow", EXPERIMENT, f"zero:{new}").status == 200
        assert f"admin_password = {new}" in (folder / "mlflow-auth.ini").read_text()
        changed = {path.name for path in folder.iterdir() if path.read_bytes() != kept.get(path)}
        assert changed == {"mlflow-password", "mlflow-auth.ini"}
        assert {path.name for path in kept} == {path.name for path in folder.iterdir()}
    finally:
        new = stack.cluster.secret("mlflow-password")
        back = json.dumps({"username": "zero", "current_password": new, "password": old}).encode()
        stack.ask("mlflow", "/api/2.0/mlflow/users/update-password", f"zero:{new}", "PATCH", back)
        for path, content in kept.items():
            path.write_bytes(content)
    assert stack.ask("mlflow", EXPERIMENT, mlflow_user(stack)).status == 200


def test_everything_listens_on_loopback_alone(stack: Stack) -> None:
    heard = set()
    for name in stack.cluster.parts:
        leader = stack.process(name)
        for process in (leader, *leader.children(recursive=True)):
            sockets = process.net_connections("inet")
            heard |= {one.laddr for one in sockets if one.status == psutil.CONN_LISTEN}
    assert {address.ip for address in heard} == {"127.0.0.1"}
    assert {address.port for address in heard} >= set(stack.cluster.ports.values())


def test_a_worker_is_told_nothing_of_other_roles_and_no_command_line_has_a_password(stack: Stack) -> None:
    told = " ".join(f"{key}={value}" for key, value in stack.process("worker-1").environ().items())
    assert stack.cluster.secret("prefect-auth") in told
    for name in ("mlflow-password", "postgres-password", "prefect-database-password"):
        assert stack.cluster.secret(name) not in told
    assert "MLFLOW_TRACKING" not in told and "s3-trainer" not in told and "s3-admin" not in told
    words = " ".join(word for name in stack.cluster.parts for word in stack.process(name).cmdline())
    for path in stack.cluster.secrets.iterdir():
        assert path.read_text().strip() not in words, path.name


def test_status_tells_where_all_is_and_no_password(stack: Stack) -> None:
    said = stack.command("status")
    assert " down " not in said and str(stack.cluster.secrets) in said
    for path in stack.cluster.secrets.iterdir():
        assert path.read_text().strip() not in said


def test_killed_parts_come_back_and_the_others_stay(stack: Stack) -> None:
    before = {name: stack.process(name).pid for name in stack.cluster.parts}
    killed = ("postgres", "scheduler", "prefect")  # Prefect too: it hears of no new automation after such an outage
    for name in killed:
        stack.process(name).kill()
    assert "starting PostgreSQL, scheduler, Prefect, worker-1 ..." in stack.command("up")
    after = {name: stack.process(name).pid for name in stack.cluster.parts}
    assert {name for name in before if before[name] != after[name]} == {*killed, "worker-1"}
    assert stack.prefect("/work_pools/zero")["type"] == "process"
    assert "worker-1" in known_workers(stack.cluster)


def test_a_worker_announces_its_code(stack: Stack) -> None:
    announced = known_workers(stack.cluster)["worker-1"]["resources"]
    wanted = {code_resource(stage, code_digest(stage), lock_file_digest()) for stage in STAGES}
    assert set(announced) == wanted


def test_a_run_whose_heartbeats_stop_has_crashed(stack: Stack) -> None:
    """The run is the server's alone: its heartbeat is sent from here, as Prefect's engine sends it."""
    pools.install(stack.cluster.api, pools.automation(10))  # the shortest that the server takes
    flow = stack.prefect("/flows/", {"name": "zero-generation"})["id"]
    runs = {}
    try:
        for name in ("mute", "silent", "ended"):  # mute: killed before its first heartbeat has left
            runs[name] = stack.prefect("/flow_runs/", {"flow_id": flow, "state": {"type": "RUNNING"}})["id"]
            if name != "mute":
                send_heartbeat(stack, runs[name], flow)
        stack.prefect(f"/flow_runs/{runs['ended']}/set_state", {"state": {"type": "COMPLETED"}})
        deadline = time.monotonic() + 60
        for name in ("mute", "silent"):
            while (state := stack.prefect(f"/flow_runs/{runs[name]}")["state"])["type"] == "RUNNING":
                assert time.monotonic() < deadline, name
                time.sleep(0.5)
            assert (state["type"], "no heartbeat for 10 s" in state["message"]) == ("CRASHED", True)
        assert stack.prefect(f"/flow_runs/{runs['ended']}")["state"]["type"] == "COMPLETED"
    finally:
        pools.install(stack.cluster.api, pools.automation())
    before = stack.prefect("/automations/filter", {})
    assert [(one["trigger"]["within"], one["enabled"]) for one in before] == [(pools.SILENCE_SECONDS, True)]
    pools.install(stack.cluster.api, pools.automation())
    assert stack.prefect("/automations/filter", {}) == before


def send_heartbeat(stack: Stack, run: str, flow: str) -> None:
    related = {"prefect.resource.id": f"prefect.flow.{flow}", "prefect.resource.name": "zero-generation"}
    told = {
        "id": str(uuid.uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": pools.HEARTBEAT,
        "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
        "related": [{**related, "prefect.resource.role": "flow"}],
    }
    stack.prefect("/events", [told])
