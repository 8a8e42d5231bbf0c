"""The servers of this machine, with real ones: started, started again, refused, stopped."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pytest
import sqlalchemy

from infra import local
from infra.local import REMEDY, choose_port, given_port
from infra.processes import Home, LocalError
from tests.end_to_end.project import SOURCE_DIR, make_project, run
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
    assert "upgrading" not in said  # this MLflow has started with this database
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
    (servers.home / ".zero/run/mlflow-schema").write_text("3.0.0 of-another-version")
    said = servers.local("up", ZERO_PREFECT_PORT=ports[0], ZERO_MLFLOW_PORT=ports[1]).stdout
    assert "upgrading MLflow's database ..." in said
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


def test_prefect_deletes_runs_90_days_after_their_end(servers: Servers) -> None:
    vacuum = servers.api("/admin/settings")["server"]["services"]["db_vacuum"]
    assert (set(vacuum["enabled"]), vacuum["retention_period"]) == ({"events", "flow_runs"}, "P90D")


REDIRECTIONS = {
    "PREFECT_API_URL": "http://elsewhere/api",
    "PREFECT_API_KEY": "of another server",
    "PREFECT_API_DATABASE_NAME": "another",
    "PREFECT_CLOUD_API_URL": "http://127.0.0.1:4207/api",
    "PREFECT_CLIENT_CUSTOM_HEADERS": '{"Authorization": "of another server"}',
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
    "PREFECT_PROFILES_PATH": "/another/profiles.toml",
    "PREFECT_DEFAULT_RESULT_STORAGE_BLOCK": "s3/of-another-server",
    "PREFECT_TASKS_SCHEDULING_DEFAULT_STORAGE_BLOCK": "s3/of-another-server",
    "PREFECT_MESSAGING_BROKER": "prefect_redis.messaging",
    "PREFECT_SERVER_EVENTS_MESSAGING_CACHE": "prefect_redis.messaging",
    "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "prefect_redis.ordering",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect_redis.lease_storage",
    "PREFECT_SERVER_WORKER_CHANNEL_CLEANUP_QUEUE_STORAGE": "prefect_redis.cleanup_queue",
    "PREFECT_SERVER_DOCKET_URL": "redis://elsewhere",
    "PREFECT_SERVER_API_BASE_PATH": "/another",
    "PREFECT_SERVER_API_AUTH_STRING": "of:another",
    "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": "*",
    "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "false",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "postgresql+asyncpg://elsewhere/prefect",
    "PREFECT_SERVER_UI_API_URL": "http://elsewhere/api",
    "PREFECT_UI_SERVE_BASE": "/another",
    "PREFECT_UI_URL": "http://elsewhere",
    "prefect_api_auth_string": "of:another",
}


def test_no_variable_of_the_shell_leads_to_another_prefect(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings.models.root import Settings

    def settings(**shell: str) -> dict[str, object]:
        with monkeypatch.context() as inner:
            for key, value in shell.items():
                inner.setenv(key, value)
            env = local.client_env(home, {"prefect": 4207, "mlflow": 5007})
            for key in os.environ.keys() - env.keys():
                inner.delenv(key)
            for key, value in env.items():
                inner.setenv(key, value)
            return Settings().model_dump()

    usual = settings()
    assert settings(**REDIRECTIONS) == usual
    assert settings(PREFECT_LOGGING_LEVEL="DEBUG") != usual


def test_the_shells_other_settings_of_prefect_and_mlflow_are_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {
        "PREFECT_LOGGING_LEVEL": "DEBUG",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "86400",
        "PREFECT_WORKER_QUERY_SECONDS": "5",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "300",
    }
    elsewhere = {
        "MLFLOW_TRACKING_USERNAME": "of another server",
        "MLFLOW_REGISTRY_URI": "http://elsewhere",
        "MLFLOW_BACKEND_STORE_URI": "postgresql://elsewhere",
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": "s3://elsewhere",
        "MLFLOW_ARTIFACTS_ONLY": "true",
        "MLFLOW_STATIC_PREFIX": "/another",
        "MLFLOW_READ_REPLICA_BACKEND_STORE_URI": "postgresql://elsewhere",
        "MLFLOW_SERVE_ARTIFACTS": "false",
        "MLFLOW_ENABLE_WORKSPACES": "true",
        "MLFLOW_EXPERIMENT_NAME": "another",
        "MLFLOW_RUN_ID": "of another server",
        "MLFLOW_WORKSPACE": "another",
        "PREFECT__FLOW_RUN_ID": "of another server",
        "PREFECT_REDIS_MESSAGING_HOST": "elsewhere",
    }
    for key, value in {**kept, **elsewhere, "MLFLOW_TRACKING_URI": "http://elsewhere"}.items():
        monkeypatch.setenv(key, value)
    env = local.client_env(home, {"prefect": 4207, "mlflow": 5007})
    assert env.items() >= kept.items()
    assert not env.keys() & elsewhere.keys()
    assert env["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5007"
    assert env["DO_NOT_TRACK"] == "true"


def test_the_servers_are_asked_without_the_shells_proxy(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "corp.example")
    env = local.client_env(home, {"prefect": 4207, "mlflow": 5007})
    assert env["no_proxy"] == env["NO_PROXY"] == "corp.example,127.0.0.1,localhost"


# MLflow's database

OLD_DATABASE = """
import sys
import sqlalchemy
from alembic import command
from alembic.script import ScriptDirectory
from mlflow.store.db import utils

engine, config = sqlalchemy.create_engine(sys.argv[1]), utils._get_alembic_config(sys.argv[1])
utils.InitialBase.metadata.create_all(engine)
newest = ScriptDirectory.from_config(config).get_revision("head")
command.upgrade(config, newest.down_revision)
with engine.begin() as connection:
    connection.execute(sqlalchemy.text("INSERT INTO experiments (name, lifecycle_stage) VALUES ('go9', 'active')"))
print(newest.revision, newest.down_revision)
"""
"""Makes a database of the revision before the newest one, with an experiment."""


class OldDatabase(NamedTuple):
    path: Path
    newest: str
    revision: str


@pytest.fixture(scope="module")
def old_database(tmp_path_factory: pytest.TempPathFactory) -> OldDatabase:
    path = tmp_path_factory.mktemp("old") / "mlflow.db"
    done = run([sys.executable, "-c", OLD_DATABASE, local.sqlite_url("sqlite", path)], SOURCE_DIR)
    return OldDatabase(path, *done.stdout.split())


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return list(connection.execute(query))


@pytest.fixture
def database(home: Home, old_database: OldDatabase) -> Path:
    """A copy of the old database where MLflow has it."""
    path = local.mlflow_database(home)
    path.parent.mkdir()
    shutil.copyfile(old_database.path, path)
    return path


def test_an_older_database_of_mlflow_is_upgraded_once(
    home: Home, database: Path, old_database: OldDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = "SELECT version_num FROM alembic_version"
    assert rows(database, revision) == [(old_database.revision,)]
    interrupted = database.with_name("upgrade") / "mlflow.db"
    interrupted.parent.mkdir()
    interrupted.write_text("half a database")
    local.upgrade_mlflow(home, dict(os.environ))
    assert rows(database, revision) == [(old_database.newest,)]
    assert rows(database, "SELECT name FROM experiments") == [("go9",)]
    assert [path.name for path in database.parent.iterdir()] == ["mlflow.db"]

    local.schema_path(home).write_text(local.mlflow_schema(home))  # as when MLflow has started
    monkeypatch.setattr(local, "succeeds", lambda *_: pytest.fail("a second upgrade"))
    local.upgrade_mlflow(home, {})


def test_a_database_of_mlflow_that_cannot_be_upgraded_is_left_as_it_is(
    home: Home, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'newer'")
    before = database.read_bytes()
    with pytest.raises(LocalError, match=r"cannot upgrade .*mlflow\.db, which is unchanged; if a newer(.|\n)*'newer'"):
        local.upgrade_mlflow(home, dict(os.environ))

    def copy(source: Path, target: Path) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(local, "copy_database", copy)
    with pytest.raises(LocalError, match=r"cannot copy .*mlflow\.db for an upgrade: database or disk is full; free"):
        local.upgrade_mlflow(home, {})
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["mlflow.db"]


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_a_file_without_tables_is_left_to_mlflow(home: Home, content: bytes) -> None:
    local.upgrade_mlflow(home, {})
    database = local.mlflow_database(home)
    assert not database.exists()
    database.parent.mkdir()
    database.write_bytes(content)
    local.upgrade_mlflow(home, {})
    assert database.read_bytes() == content
