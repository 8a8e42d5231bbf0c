"""Runs on the pool, on a real Prefect server: whom they are asked of, how many at once, and what their end means."""

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from prefect.exceptions import ParameterTypeError

from flows.orphans import HOPELESS, ORPHANED, REFUSED, name_of, understood
from flows.plugin import WORKER_VARIABLE
from flows.processes import LEASH
from flows.shard import shard
from tests.end_to_end.project import SOURCE_DIR, environment_of, run
from tests.flows.examples import DIGESTS, spec
from tests.infra.servers import Servers
from zero.errors import DivergedError, LineageError, ParamsError, WorkerError
from zero.shards.spec import ShardSpec
from zero.stages.remote_training import TrainingSpec
from zero.storage.manifests import Origin

DATABASE_IS_AWAY = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NUM_FAULTS = 2
ORPHAN = """
import time
from flows import orphans
orphans.WATCH_SECONDS = 0.1
orphans.end_with_worker()
time.sleep(20)
"""


GIVEN_UP = """
import time
from flows import orphans
orphans.STATE_SECONDS = 0.2
orphans.end_when_given_up()
print("begun", flush=True)
time.sleep(60)
"""


WORKER = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "flows.begin"])
"""
LEASH_WORKER = (
    """
from flows.worker import open_leash
leash = open_leash()
"""
    + WORKER
)


class Connection(socketserver.BaseRequestHandler):
    """Passes requests on; the first that ask for a run are answered as Prefect does when its database is away."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Wire)
        with socket.create_connection(server.target) as upstream:
            threading.Thread(target=pass_on, args=(upstream, self.request), daemon=True).start()
            while data := self.request.recv(1 << 16):
                if b"/create_flow_run" in data.split(b"\r\n")[0] and server.faults:
                    server.faults -= 1
                    self.request.sendall(DATABASE_IS_AWAY)
                    return
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_RDWR)


class Wire(socketserver.ThreadingTCPServer):
    """A way to a server that is bad at first."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.target, self.faults = (parts.hostname, parts.port), NUM_FAULTS
        super().__init__(("127.0.0.1", 0), Connection)


def pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either side has closed it
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def seen(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What tests/flows/asking.py says."""
    home = str(tmp_path_factory.mktemp("user"))
    with Wire(servers.prefect) as wire:
        threading.Thread(target=wire.serve_forever, daemon=True).start()
        api = f"http://127.0.0.1:{wire.server_address[1]}/api"
        words = [sys.executable, "-m", "tests.flows.asking"]
        yield json.loads(run(words, SOURCE_DIR, PREFECT_API_URL=api, PREFECT_HOME=home).stdout.splitlines()[-1])
        wire.shutdown()


def test_while_the_database_is_away_a_run_is_asked_for_again(seen: dict[str, Any]) -> None:
    said = [line for line in seen["refused"]["said"] if "does not answer, zero-shard/zero-shard is asked for" in line]
    assert len(said) == NUM_FAULTS


def test_what_a_worker_refuses_another_is_asked(seen: dict[str, Any]) -> None:
    assert seen["refused"]["end"] == seen["refused"]["did"]
    assert sum("Refused: other code; another worker is asked" in line for line in seen["refused"]["said"]) == 2


def test_what_nobody_can_do_is_given_up(seen: dict[str, Any]) -> None:
    assert seen["hopeless"].startswith("RefusedError: run ") and "other code; nobody could do it" in seen["hopeless"]


def test_what_nobody_can_do_because_of_its_parameters_is_asked_of_nobody_else(seen: dict[str, Any]) -> None:
    assert seen["diverged"].startswith("ParamsError: run ") and seen["diverged"].endswith("Hopeless: the loss is nan")


def test_a_run_that_was_taken_and_not_begun_has_crashed(seen: dict[str, Any]) -> None:
    assert seen["taken"].endswith("is Crashed: taken by a worker and not begun in 1 s")


def test_runs_of_a_flow_that_was_killed_are_cancelled_and_no_others(seen: dict[str, Any]) -> None:
    assert seen["left"]["number"] == 2
    states = seen["left"]["states"]
    assert states["waits"] == "CANCELLED" and states["plays"] in ("CANCELLING", "CANCELLED")
    assert states["ended"] == "COMPLETED" and states["another's"] == "SCHEDULED"


def test_a_training_that_crashed_is_asked_for_again(seen: dict[str, Any]) -> None:
    spec = {"words": ["plan", "training", "--missing"]}
    assert seen["training"] == {"asked": [{"spec": spec}] * 2, "queue": "train", "end": "COMPLETED"}


def test_a_run_that_was_deleted_has_crashed(seen: dict[str, Any]) -> None:
    assert seen["deleted"]["end"].endswith("is Crashed: somebody deleted it")


def test_a_person_is_told_that_no_worker_is_there(seen: dict[str, Any]) -> None:
    assert "no worker serves the queue selfplay of the pool zero-gpu" in seen["deleted"]["said"][0]


def test_a_stage_grows_with_its_pool(seen: dict[str, Any]) -> None:
    assert seen["stage"]["without_workers"] == [2] and seen["stage"]["with_pods"] == 4


def test_the_first_run_that_fails_for_good_ends_the_others(seen: dict[str, Any]) -> None:
    assert "is Crashed: no GPU" in seen["stage"]["end"]
    assert seen["stage"]["states"] == ["Cancelled"] * 3 + ["Completed"] + ["Crashed"] * 2


def test_each_try_of_each_run_of_a_flow_has_its_key(seen: dict[str, Any]) -> None:
    first, second = seen["stage"]["keys"]
    assert (
        first[:-1] == second[:-1] and (first[-2:], second[-2:]) == ("-1", "-2") and first.startswith("-1-1-selfplay-")
    )


def test_no_shards_are_refused() -> None:
    with pytest.raises(ParameterTypeError, match="specs: List should have at least 1 item"):
        shard.validate_parameters({"specs": []})


def test_a_worker_that_knows_other_specifications_says_what_it_lacks() -> None:
    asked = spec().model_dump(mode="json")
    assert understood(ShardSpec, asked) == spec()
    with pytest.raises(LineageError, match=r"does not know what it is asked \(ShardSpec, speed: .*check out"):
        understood(ShardSpec, asked | {"speed": 2})


def training_of_other_code() -> TrainingSpec:
    origin = Origin(
        stage="training", lineage="tiny", generation=1, seed=1, params_digest=DIGESTS[0], engine=DIGESTS[1], inputs={}
    )
    return TrainingSpec(origin=origin, lock_file=DIGESTS[2], profile={}, files={})


@pytest.mark.parametrize(
    ("worker", "killed"),
    [(WORKER, "worker"), (LEASH_WORKER, "worker"), (LEASH_WORKER, "leash")],
    ids=["new interpreter", "fork", "fork, leash killed"],
)
def test_a_run_that_is_refused_says_so_at_once_stays_and_ends_with_what_began_it(
    servers: Servers, worker: str, killed: str
) -> None:
    parameters = {"spec": training_of_other_code().model_dump(mode="json")}
    deployment = servers.api("/deployments/name/zero-train/zero-train")["id"]
    run = servers.api(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
    words = {"PREFECT__FLOW_RUN_ID": run["id"], "PREFECT_API_URL": f"{servers.prefect}/api"}
    env = environment_of(**words, PREFECT_HOME="user")
    with subprocess.Popen([sys.executable, "-c", worker], cwd=servers.home, env=env) as process:
        try:
            while (state := servers.api(f"/flow_runs/{run['id']}")["state"])["name"] != "Refused":
                assert state["type"] in ("SCHEDULED", "PENDING", "RUNNING") and process.poll() is None, state
                time.sleep(0.2)
            assert state["type"] == "FAILED" and DIGESTS[1][:12] in state["message"]
            below = psutil.Process(process.pid).children(recursive=True)
            assert len(below) == (4 if worker is LEASH_WORKER else 1) and all(child.is_running() for child in below)
            if killed == "leash":
                [leash] = [child for child in below if child.ppid() == process.pid and LEASH.name in child.cmdline()[1]]
                leash.kill()
                process.wait(20)
        finally:
            process.kill()
    psutil.wait_procs(below, 20)
    assert not any(child.is_running() for child in below)


def test_a_run_whose_worker_died_before_it_could_look_ends(tmp_path: Path) -> None:
    worker = subprocess.Popen(["true"])
    worker.wait()
    words = {"PREFECT__FLOW_RUN_ID": str(tmp_path), "PREFECT_API_URL": "http://127.0.0.1:1/api"}
    child = run([sys.executable, "-c", ORPHAN], SOURCE_DIR, check=False, **words, **{WORKER_VARIABLE: str(worker.pid)})
    assert child.returncode == ORPHANED


def test_a_run_that_somebody_has_given_up_ends(servers: Servers) -> None:
    parameters = {"specs": [spec().model_dump(mode="json")]}
    deployment = servers.api("/deployments/name/zero-shard/zero-shard")["id"]
    made = servers.api(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
    words = {"PREFECT__FLOW_RUN_ID": made["id"], "PREFECT_API_URL": f"{servers.prefect}/api", "PREFECT_HOME": "user"}
    command = [sys.executable, "-c", GIVEN_UP]
    with subprocess.Popen(command, cwd=SOURCE_DIR, env=environment_of(**words), stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline() == b"begun\n"
        time.sleep(2.0)
        assert child.poll() is None
        crashed = {"state": {"type": "CRASHED", "message": "silent"}, "force": True}
        servers.api(f"/flow_runs/{made['id']}/set_state", crashed)
        assert child.wait(20) == ORPHANED


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (LineageError("other code"), REFUSED),
        (ParamsError("no CUDA device"), REFUSED),
        (DivergedError("the loss is nan"), HOPELESS),
        (WorkerError("a process of the training was killed"), None),
        (ValueError("a bug"), None),
    ],
)
def test_a_run_that_fails_says_whether_another_try_may_help(error: Exception, name: str | None) -> None:
    assert name_of(error) == name


def test_of_a_campaign_whose_worker_is_killed_only_what_goes_on_has_crashed(servers: Servers) -> None:
    deployment = servers.api("/deployments/name/zero-shard/zero-shard")["id"]
    parameters = {"specs": [spec().model_dump(mode="json")]}
    made = [servers.api(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters}) for _ in range(2)]
    done, open_run = (run["id"] for run in made)
    servers.api(f"/flow_runs/{done}/set_state", {"state": {"type": "COMPLETED"}, "force": True})
    code = f"from flows import orphans; orphans._runs += [{open_run!r}, {done!r}]; orphans._say_lost()"
    run([sys.executable, "-c", code], SOURCE_DIR, PREFECT_API_URL=f"{servers.prefect}/api", PREFECT_HOME="user")
    assert [servers.api(f"/flow_runs/{each}")["state"]["type"] for each in (open_run, done)] == ["CRASHED", "COMPLETED"]


def test_a_run_ends_only_with_its_worker_where_a_shell_is_between() -> None:
    code = "from flows.orphans import _ancestors; print(*_ancestors())"
    said = run(["sh", "-c", f"{sys.executable} -c '{code}'; true"], SOURCE_DIR).stdout.split()
    assert str(os.getpid()) in said[1:]
