"""The servers of this machine, with real ones: started, started again, refused, stopped."""

import json
import os
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import sqlalchemy

from infra import local
from infra.local import REMEDY, choose_port, given_port
from infra.processes import Home, LocalError
from tests.end_to_end.project import make_project, run
from tests.infra.servers import Servers, free_port
from zero.config.settings import is_place_of


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


@pytest.fixture(autouse=True)
def no_port_stays_reserved() -> Iterator[None]:
    """A reservation lasts as long as its process, which here goes on to other tests."""
    yield
    while local._reserved:
        local._reserved.popitem()[1].close()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    for folder in ("run", "logs"):
        (tmp_path / ".zero" / folder).mkdir(parents=True)
    return Home(tmp_path / ".zero")


def answer_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def processes_of(home: Path) -> list[psutil.Process]:
    """Live processes that were told of this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ZERO_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_a_database_is_at_its_path_whatever_characters_that_has(tmp_path: Path) -> None:
    for name in ("a%20b", "100%", "what?", "ä b"):
        (tmp_path / name).mkdir()
        sqlalchemy.create_engine(local.sqlite_url("sqlite", tmp_path / name / "mlflow.db")).connect().close()
        assert (tmp_path / name / "mlflow.db").exists()


def test_servers_and_pages_are_at_the_addresses_written_down(servers: Servers) -> None:
    addresses = json.loads((servers.home / ".zero/servers.json").read_text())
    assert is_place_of(addresses.pop("place"), servers.home)
    web = addresses.pop("web")
    assert addresses == {"prefect": servers.prefect, "mlflow": servers.mlflow}
    assert "<title>zero</title>" in answer_of(web + "/")
    assert json.loads(answer_of(web + "/api/servers"))["prefect"] == servers.prefect
    assert "<title>Prefect Server</title>" in answer_of(servers.prefect + "/")
    assert "<title>MLflow</title>" in answer_of(servers.mlflow + "/")


def test_a_page_of_another_site_may_not_ask_prefect(servers: Servers) -> None:
    """Such a page could start a run with a command of its own."""
    localhost = servers.prefect.replace("127.0.0.1", "localhost")
    allowed = {}
    for origin in (servers.prefect, localhost, "https://evil.example"):
        request = urllib.request.Request(f"{servers.prefect}/api/health", headers={"Origin": origin})
        with urllib.request.urlopen(request, timeout=30) as answer:
            allowed[origin] = answer.headers["Access-Control-Allow-Origin"]
    assert allowed == {servers.prefect: servers.prefect, localhost: localhost, "https://evil.example": None}
    # Without a content type a browser asks no permission first.
    blind = httpx.post(f"{servers.prefect}/api/flow_runs/filter", content=b"{}", trust_env=False)
    assert blind.status_code == httpx.codes.FORBIDDEN and "CSRF" in blind.text


def test_a_worker_serves_the_flows_of_this_folder(servers: Servers) -> None:
    workers = servers.api("/work_pools/zero/workers/filter", {})
    assert "ONLINE" in [worker["status"] for worker in workers]
    for name in ("zero-generation", "zero-campaign", "zero-ablation"):
        deployment = servers.api(f"/deployments/name/{name}/{name}")
        assert deployment["work_pool_name"] == "zero"
        step = deployment["pull_steps"][0]["prefect.deployments.steps.set_working_directory"]
        assert step == {"directory": str(servers.home)}


def test_a_second_up_starts_nothing_and_tells_addresses_and_logs(servers: Servers) -> None:
    before = servers.pids()
    said = servers.local("up").stdout  # ends with what `status` prints
    assert servers.pids() == before
    assert "starting" not in said and "deploying" not in said and "down" not in said
    assert servers.prefect in said and servers.mlflow in said and "worker.log" in said


def test_exec_gives_a_command_the_addresses(servers: Servers) -> None:
    words = [sys.executable, "-c", "import os; print(os.environ['PREFECT_API_URL'], os.environ['MLFLOW_TRACKING_URI'])"]
    assert servers.local("exec", *words).stdout.split() == [f"{servers.prefect}/api", servers.mlflow]
    done = servers.local("exec", "no-such-program", check=False)
    assert (done.returncode, done.stderr) == (1, "error: cannot run 'no-such-program': No such file or directory\n")


def test_what_was_killed_is_started_again_at_its_port(servers: Servers) -> None:
    before = servers.pids()
    for name in ("mlflow", "worker"):
        os.kill(before[name], signal.SIGKILL)
    said = servers.local("up").stdout
    assert "starting MLflow ..." in said and "starting the worker ..." in said
    after = servers.pids()
    assert {name for name in before if after[name] != before[name]} == {"mlflow", "worker"}
    assert answer_of(servers.mlflow + "/health") == "OK"


def test_a_web_page_that_cannot_start_does_not_hinder_the_others(servers: Servers, occupied: int) -> None:
    before = servers.pids()
    said = servers.local("up", ZERO_WEB_PORT=str(occupied)).stdout
    assert f"warning: the web page is not available: port {occupied} for web page is in use by another program" in said
    assert "web" not in json.loads((servers.home / ".zero/servers.json").read_text())
    servers.local("up")
    assert "web" in json.loads((servers.home / ".zero/servers.json").read_text())
    assert servers.pids() == before


def test_down_leaves_no_process_and_up_brings_all_back(servers: Servers) -> None:
    assert len(processes_of(servers.home)) >= 3
    assert servers.local("down").stdout.endswith("stopped: web page, worker, MLflow, Prefect\n")
    assert processes_of(servers.home) == []
    assert not (servers.home / ".zero/servers.json").exists()
    assert servers.local("status", check=False).returncode == 1
    ports = [address.rpartition(":")[2] for address in (servers.prefect, servers.mlflow)]
    servers.local("up", ZERO_PREFECT_PORT=ports[0], ZERO_MLFLOW_PORT=ports[1])
    assert servers.local("status").returncode == 0


def test_a_given_port_in_use_is_refused_and_nothing_is_started(tmp_path: Path, occupied: int) -> None:
    home = make_project(tmp_path / "project")
    done = run([sys.executable, "-m", "infra.local", "up"], home, check=False, ZERO_PREFECT_PORT=str(occupied))
    assert done.returncode == 1
    assert done.stderr == (
        f"error: port {occupied} for Prefect is in use by another program, or another project is starting a server "
        "there; stop it, set ZERO_PREFECT_PORT to another port, or leave it unset for a free one\n"
    )
    assert processes_of(home) == []
    assert not (home / ".zero/servers.json").exists()


@pytest.mark.parametrize("has_written", [True, False])
def test_a_worker_gets_a_new_address_also_after_a_call_that_failed(
    home: Home, occupied: int, has_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call removed the record of a server that had ended; or it failed before it wrote the addresses."""

    class Sleeping(Home):
        def start(
            self, name: str, command: list[str], env: dict[str, str], port: int, folder: Path | None = None
        ) -> None:
            super().start(name, [sys.executable, "-c", "import time; time.sleep(300)"], env, port, folder)

    home, first, second = Sleeping(home.state), free_port(), free_port()
    ports = {"prefect": first, "mlflow": free_port()}
    for name in ("prefect", "mlflow", "worker"):
        home.start(name, [], dict(os.environ), ports.get(name, first))
    server, before = home.record("prefect"), home.record("worker")
    assert server and before
    for name in ("make_pool", "close_runs", "deploy"):
        monkeypatch.setattr(local, name, lambda *_: None)
    for name in ("answers", "worker_is_online"):
        monkeypatch.setattr(local, name, lambda *_: True)
    monkeypatch.setattr(local, "start_web", lambda *_: {})
    try:
        if has_written:
            local.write_addresses(home, ports)
            os.kill(server.pid, signal.SIGKILL)
            os.waitpid(server.pid, 0)
            monkeypatch.setenv("ZERO_PREFECT_PORT", str(occupied))
            with pytest.raises(LocalError, match=f"port {occupied} for Prefect is in use"):
                local.up(home)
        monkeypatch.setenv("ZERO_PREFECT_PORT", str(second))
        local.up(home)
        after = home.record("worker")
        assert after and after.pid != before.pid and after.port == second
    finally:
        for name in local.SERVICES:
            home.stop(name)


@pytest.mark.parametrize("text", ["x", "0", "65536", "-1", "²"])
def test_a_port_that_is_no_number_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ZERO_MLFLOW_PORT", text)
    with pytest.raises(LocalError, match=f"ZERO_MLFLOW_PORT is '{text}', not a port; set it to a number from 1 to"):
        given_port("mlflow")


def test_the_usual_port_in_use_gives_another_and_says_so(
    occupied: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(local.USUAL_PORTS, "mlflow", occupied)
    port = choose_port("mlflow", None, None, set())
    assert port > occupied
    said = f"port {occupied} is in use by another program: MLflow takes {port} (set ZERO_MLFLOW_PORT to choose)\n"
    assert capsys.readouterr().out == said


def test_a_port_at_which_another_project_starts_a_server_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setitem(local.USUAL_PORTS, "mlflow", port)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(local.reservation(port))
        assert choose_port("mlflow", None, None, set()) > port
    assert choose_port("mlflow", None, None, set()) == port


def test_a_port_that_is_not_free_is_not_kept_from_whom_it_belongs_to(occupied: int) -> None:
    assert not local.reserve_port(occupied)
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(local.reservation(occupied))  # or it is an error


def test_a_server_comes_back_to_the_port_it_had() -> None:
    port = free_port()
    assert choose_port("prefect", None, port, set()) == port


def test_a_service_that_ends_at_once_shows_its_log_even_if_another_program_answers(home: Home) -> None:
    home.start("mlflow", [sys.executable, "-c", "print('no such table')"], dict(os.environ), 1)
    while home.record("mlflow"):
        time.sleep(0.05)
    with pytest.raises(LocalError, match=r"MLflow ended while it started; the end of .*mlflow.log:\n  no such table"):
        home.wait_for("mlflow", lambda: True, REMEDY)


def test_a_service_that_is_mute_is_given_up_after_the_time_limit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_START_SECONDS", "0.3")
    home.start("prefect", [sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ), 1)
    started = time.monotonic()
    with pytest.raises(LocalError, match=r"Prefect was not ready after 0 s; try `make down`, then `make up`"):
        home.wait_for("prefect", lambda: False, REMEDY)
    assert time.monotonic() - started < 10
    monkeypatch.setenv("ZERO_START_SECONDS", "4m")
    with pytest.raises(LocalError, match="ZERO_START_SECONDS is '4m'; expected a number of seconds"):
        home.wait_for("prefect", lambda: False, REMEDY)
    assert home.stop("prefect")


def test_the_shells_own_prefect_settings_are_left_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "of another server")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    env = local.client_env(home, {"prefect": 4207, "mlflow": 5007})
    assert "PREFECT_API_KEY" not in env
    assert env["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5007"
    assert env["DO_NOT_TRACK"] == "true"


def test_the_servers_are_asked_without_the_shells_proxy(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "corp.example")
    env = local.client_env(home, {"prefect": 4207, "mlflow": 5007})
    assert env["no_proxy"] == env["NO_PROXY"] == "corp.example,127.0.0.1,localhost"
