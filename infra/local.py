"""The servers of one machine: Prefect, MLflow, a worker and the web page, on loopback; their files are in `.zero/`.

    python -m infra.local up       starts what does not run, deploys the flows, writes .zero/servers.json
    python -m infra.local down     cancels the runs, stops everything
    python -m infra.local status   shows what runs, the addresses and the logs
    python -m infra.local exec prefect flow-run ls     runs a command with the addresses in its environment

No process that this module starts sends usage data.
"""

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import httpx

from infra.pools import FLOWS, POOL, answers, cancel_runs, close_runs, make_pool, worker_is_online
from infra.processes import Home, LocalError, log_end, title
from zero.config.settings import place_of, servers
from zero.errors import ZeroError
from zero.storage import files

PROJECT_DIR = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
REQUIRED = ("prefect", "mlflow")
"""Servers that the flows need. The web page is optional: if it fails, the others still start."""
USUAL_PORTS = {"prefect": 4200, "mlflow": 5000, "web": 8100}
PORTS_TRIED = 100
SERVICES = ("prefect", "mlflow", "worker", "web")
HEALTH_PATHS = {"prefect": "/api/health", "mlflow": "/health", "web": "/api/health"}
WORKER_NAME = "this machine"
CANCEL_SECONDS = 45.0
"""Time that runs have to end before their worker is stopped."""
REMEDY = "try `make down`, then `make up`"
QUIET = {
    "DO_NOT_TRACK": "true",  # Prefect does not know the usual 1
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
VACUUM = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "7776000",
}
"""By default Prefect keeps all runs for ever. These settings delete them 90 days after their end."""
ELSEWHERE = re.compile(
    r"""
    PREFECT_(_|API_|CLOUD_|PROFILE|UI_|REDIS_|MESSAGING_|CLIENT_CUSTOM_HEADERS|\w+_STORAGE_BLOCK)
    |PREFECT_SERVER_(API_|UI_|DOCKET_|EVENTS_MESSAGING_|EVENTS_CAUSAL_ORDERING|\w+_LEASE_STORAGE|\w+_QUEUE_STORAGE)
    |MLFLOW_(TRACKING_|REGISTRY_|EXPERIMENT_|RUN_ID|WORKSPACE|ENABLE_WORKSPACES|STATIC_PREFIX)
    |MLFLOW_(BACKEND_STORE_|READ_REPLICA_|DEFAULT_ARTIFACT_ROOT|ARTIFACTS_|SERVE_ARTIFACTS)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Beginnings of variables that name another server, its address, profile, store or queues, or what is on it."""

_reserved: dict[int, socket.socket] = {}
"""Ports that this process has reserved, each with the socket that reserves it."""


def up(home: Home) -> None:
    """Starts what does not run, and deploys the flows.

    Raises:
      LocalError: a given port is in use, a server does not start in time, or the flows cannot be deployed.
    """
    for folder in ("run", "logs", "prefect", "mlflow/artifacts"):
        (home.state / folder).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker that inherits "ignored" could not be stopped

    before = {name: address(record.port) for name in REQUIRED if (record := home.last_record(name))}
    ports, missing = chosen_ports(home, REQUIRED)

    if missing:
        say("starting " + " and ".join(title(name) for name in missing) + " ...")
    # Two sources: a call that failed may have removed the records of ended servers, or may not have written the file.
    former = (before, servers(home.state.parent))
    if any(known.get(name, address(port)) != address(port) for known in former for name, port in ports.items()):
        for name in ("worker", "web"):  # they have the old addresses
            home.stop(name)
    env = client_env(home, ports)
    for name in missing:
        home.stop(name)  # it runs at another port than the given one
        if name == "mlflow":
            upgrade_mlflow(home, env)
        home.start(name, server_command(home, name, ports[name]), env, ports[name])
    for name in REQUIRED:
        url = address(ports[name]) + HEALTH_PATHS[name]
        home.wait_for(name, lambda url=url: answers(url), remedy=REMEDY)  # type: ignore[misc]
    if "mlflow" in missing:  # a server with another schema would have ended
        schema_path(home).write_text(mlflow_schema(home))

    api = address(ports["prefect"]) + "/api"
    make_pool(api)
    if home.record("worker") is None:
        home.stop("worker")
        close_runs(api, "CRASHED", "the worker had stopped")
        say("starting the worker ...")
        since = datetime.now(UTC)
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
        home.start("worker", [*command, "--name", WORKER_NAME], env, ports["prefect"])
        home.wait_for("worker", lambda: worker_is_online(api, WORKER_NAME, since), remedy=REMEDY)
    deploy(home, api, env)
    write_addresses(home, ports)  # now: the web page may fail after minutes, and the flows do not need it
    write_addresses(home, ports | start_web(home, env))


def write_addresses(home: Home, ports: Mapping[str, int]) -> None:
    """Writes the addresses of the servers for `zero status` and for the flows."""
    addresses = {name: address(port) for name, port in ports.items()}
    tree = addresses | {"place": place_of(home.state.parent)}
    files.write_atomic(home.state / "servers.json", files.canonical_json(tree))


def start_web(home: Home, env: dict[str, str]) -> dict[str, int]:
    """Starts the web page and returns its port by its name. A failure is a warning, and returns nothing."""
    try:
        ports, missing = chosen_ports(home, ("web",))
        if missing:
            say("starting the web page ...")
            home.stop("web")
            home.start("web", server_command(home, "web", ports["web"]), env, ports["web"])
        home.wait_for("web", lambda: answers(address(ports["web"]) + HEALTH_PATHS["web"]), remedy=REMEDY)
    except LocalError as error:
        say(f"warning: the web page is not available: {error}")
        return {}
    return ports


def chosen_ports(home: Home, names: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Ports of servers by name, and the names of those that have to be started.

    Raises:
      LocalError: a given port is not a port or in use, or none is free.
    """
    given = {name: given_port(name) for name in names}
    before = {name: home.last_record(name) for name in names}
    running = {name: record.port for name in names if (record := home.record(name))}
    for name in before.keys() - running.keys():
        home.stop(name)  # orphans of a killed server still hold its port
    ports = {name: port for name, port in running.items() if given[name] in (None, port)}
    missing = [name for name in names if name not in ports]
    for name in missing:
        record = before[name]
        ports[name] = choose_port(name, given[name], record.port if record else None, set(ports.values()))
    return ports, missing


def down(home: Home) -> None:
    """Cancels the runs and stops everything; the worker first, so that its runs can report their end."""
    server = home.record("prefect")
    if server and home.record("worker"):
        with contextlib.suppress(httpx.HTTPError, ValueError):
            cancel_runs(address(server.port) + "/api", "the servers are being stopped", CANCEL_SECONDS)
    (home.state / "servers.json").unlink(missing_ok=True)
    stopped = [title(name) for name in reversed(SERVICES) if home.stop(name)]
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status(home: Home) -> bool:
    """Prints what runs, and where. Returns True if everything is healthy."""
    healthy = []
    for name in SERVICES:
        record = home.record(name)
        place = address(record.port) if record and name in HEALTH_PATHS else f'pool "{POOL}"'
        healthy.append(record is not None and (name not in HEALTH_PATHS or answers(place + HEALTH_PATHS[name])))
        state, place = ("up", place) if healthy[-1] else ("down", "")
        say(f"{title(name):<8} {state:<5} {place:<24} log: {home.log(name)}")
    return all(healthy)


def execute(home: Home, command: list[str]) -> NoReturn:
    """Replaces this process by the command, with the addresses of the servers in its environment.

    Raises:
      LocalError: the servers do not run, or the command does not exist.
    """
    ports = {name: record.port for name in REQUIRED if (record := home.record(name))}
    if len(ports) < len(REQUIRED):
        raise LocalError("the servers do not run; start them with `make up`")
    env = client_env(home, ports)
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        raise LocalError(f"cannot run {command[0]!r}: {error.strerror}") from None


def deploy(home: Home, api: str, env: dict[str, str]) -> None:
    """Deploys the flows of this project, unless the server has exactly these.

    Raises:
      LocalError: `prefect deploy` failed.
    """
    digest = hashlib.sha256(str(PROJECT_DIR).encode())
    for path in [PROJECT_DIR / "prefect.yaml", *sorted((PROJECT_DIR / "flows").glob("*.py"))]:
        digest.update(path.read_bytes())
    stamp = home.state / "run" / "deployed"
    is_deployed = stamp.exists() and stamp.read_text() == digest.hexdigest()
    if is_deployed and all(answers(f"{api}/deployments/name/{flow}/{flow}") for flow in FLOWS):
        return
    say("deploying the flows ...")
    if not succeeds(home, "deploy", ["prefect", "--no-prompt", "deploy", "--all"], env):
        raise LocalError(f"`prefect deploy --all` failed; {log_end(home.log('deploy'))}")
    stamp.write_text(digest.hexdigest())


def succeeds(home: Home, name: str, words: Sequence[str], env: dict[str, str]) -> bool:
    """Runs a Python module with arguments, with its output in a log; True if it ends without an error."""
    with home.log(name).open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=PROJECT_DIR,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    return done.returncode == 0


# MLflow's database


def upgrade_mlflow(home: Home, env: dict[str, str]) -> None:
    """Upgrades MLflow's database to the installed MLflow, which does not start on an older schema.

    To compare the schemas, MLflow has to be imported, which takes seconds. So nothing is done if this version of MLflow
    has already started with this schema.

    Raises:
      LocalError: the upgrade failed; the database is unchanged.
    """
    database, known = mlflow_database(home), mlflow_schema(home)
    if not known or (schema_path(home).exists() and schema_path(home).read_text() == known):
        return
    say("upgrading MLflow's database ...")
    folder = database.with_name("upgrade")
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted upgrade
    folder.mkdir()
    copy = folder / database.name
    try:
        copy_database(database, copy)
        # Not in place: a migration that fails in the middle is not undone.
        if not succeeds(home, "mlflow-upgrade", ["mlflow", "db", "upgrade", sqlite_url("sqlite", copy)], env):
            raise LocalError(
                f"MLflow {version('mlflow')} cannot upgrade {database}, which is unchanged; if a newer MLflow wrote "
                f"it, install that one; {log_end(home.log('mlflow-upgrade'))}"
            )
        copy_database(copy, database)
    except sqlite3.Error as error:
        raise LocalError(f"cannot copy {database} for an upgrade: {error}; free disk space, then `make up`") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_database(source: Path, target: Path) -> None:
    """Copies a SQLite database, in one transaction of the target.

    Raises:
      sqlite3.Error: one of them cannot be read or written; the target is unchanged.
    """
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


def mlflow_database(home: Home) -> Path:
    """File of MLflow's tables."""
    return home.state / "mlflow" / "mlflow.db"


def mlflow_schema(home: Home) -> str:
    """The installed version of MLflow and the revision of its database; empty if there are no tables yet."""
    database = mlflow_database(home)
    if not database.exists():
        return ""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(database)) as connection:
        for (revision,) in connection.execute("SELECT version_num FROM alembic_version"):
            return f"{version('mlflow')} {revision}"
    return ""


def schema_path(home: Home) -> Path:
    """File with what `mlflow_schema` gave when MLflow last started."""
    return home.state / "run" / "mlflow-schema"


# Commands and addresses


def address(port: int) -> str:
    """URL of a server of this machine."""
    return f"http://{HOST}:{port}"


def client_env(home: Home, ports: Mapping[str, int]) -> dict[str, str]:
    """Environment of the servers and their clients: the shell's, without what leads to other servers."""
    env = {key: value for key, value in os.environ.items() if not ELSEWHERE.match(key)}
    # Both names: libraries prefer the lower-case one.
    no_proxy = ",".join(filter(None, [env.get("no_proxy") or env.get("NO_PROXY"), HOST, "localhost"]))
    prefect = address(ports["prefect"])
    return (
        VACUUM
        | {"PREFECT_WORKER_QUERY_SECONDS": "1"}
        | env
        | QUIET
        | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
            "ZERO_HOME": str(home.state.parent),
            "PREFECT_HOME": str(home.state / "prefect"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_url("sqlite+aiosqlite", home.state / "prefect/prefect.db"),
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
            "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",  # `--watch` shows logs beside the states
            "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
            # By default each page in the user's browser may ask Prefect, and start a run with a command of its own.
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{prefect},http://localhost:{ports['prefect']}",
            # A request without a content type is not stopped by that, but it lacks the token.
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
            "PREFECT_API_URL": f"{prefect}/api",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_TRACKING_URI": address(ports["mlflow"]),
        }
    )


def sqlite_url(scheme: str, path: Path) -> str:
    """URL of a database, whose path may have `%` or `?`."""
    return f"{scheme}:///{quote(str(path))}"


def server_command(home: Home, name: str, port: int) -> list[str]:
    """Command line of a server. MLflow gets one process for requests; its default is four."""
    place = ["--host", HOST, "--port", str(port)]
    if name == "prefect":
        return [sys.executable, "-m", "prefect", "server", "start", *place]
    if name == "web":
        return [sys.executable, "-m", "zero", "web", *place]
    folder = home.state / "mlflow"
    stores = ["--backend-store-uri", sqlite_url("sqlite", mlflow_database(home))]
    stores += ["--artifacts-destination", f"{folder}/artifacts"]
    hosts = ["--allowed-hosts", f"{HOST}:{port},localhost:{port}"]
    app = ["--app-name", "zero"]  # MLflow's own server, with pages that open on model training
    return [sys.executable, "-m", "mlflow", "server", *app, *place, "--workers", "1", *stores, *hosts]


# Ports


def given_port(name: str) -> int | None:
    """Port of a server by the environment; None if it is not set.

    Raises:
      LocalError: the value is not a port.
    """
    text = os.environ.get(f"ZERO_{name.upper()}_PORT")
    if text and not (text.isdecimal() and 0 < int(text) < 65536):
        raise LocalError(f"ZERO_{name.upper()}_PORT is {text!r}, not a port; set it to a number from 1 to 65535")
    return int(text) if text else None


def choose_port(name: str, given: int | None, before: int | None, taken: set[int]) -> int:
    """The given port; else the one that the server had before, the usual one, or the next free one.

    Raises:
      LocalError: the given port is in use, or no port is free.
    """
    variable, usual = f"ZERO_{name.upper()}_PORT", USUAL_PORTS[name]
    if given is not None:
        if given in taken or not reserve_port(given):
            raise LocalError(
                f"port {given} for {title(name)} is in use by another program, or another project is starting a server "
                f"there; stop it, set {variable} to another port, or leave it unset for a free one"
            )
        return given
    candidates: list[int] = [*([before] if before else []), *range(usual, usual + PORTS_TRIED)]
    for port in candidates:
        if port not in taken and reserve_port(port):
            if port not in (before, usual):
                say(f"port {usual} is in use by another program: {title(name)} takes {port} (set {variable} to choose)")
            return port
    raise LocalError(f"no free port for {title(name)} among {usual} to {usual + PORTS_TRIED - 1}; set {variable}")


def reserve_port(port: int) -> bool:
    """Reserves a port until this process ends. Returns False if it is in use, or if another project has reserved it.

    A server listens only seconds after its port was chosen; until then other projects must not choose it.
    """
    claim = _reserved.pop(port, None) or socket.socket(socket.AF_UNIX)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if not claim.getsockname():
                claim.bind(reservation(port))
            probe.bind((HOST, port))
        except OSError:
            claim.close()
            return False
    _reserved[port] = claim
    return True


def reservation(port: int) -> str:
    """Abstract socket that reserves a port: it is not a file, and the system frees it when its process ends."""
    return f"\0zero-port-{port}"


# The command line


def say(line: str) -> None:
    """Prints a line for the user at once."""
    print(line, flush=True)


def locked(home: Home) -> contextlib.AbstractContextManager[None]:
    """Allows one `up` or `down` at a time."""
    return files.locked(home.state, "another `up` or `down` is running; waiting for it ...", waits=True)


def main() -> int:
    """Runs a command; an error is one message and exit status 1."""
    parser = argparse.ArgumentParser(prog="infra.local", description="Prefect, MLflow and a worker on this machine.")
    parser.add_argument("command", choices=("up", "down", "status", "exec"))
    parser.add_argument("words", nargs=argparse.REMAINDER, help="of exec: a command with its arguments")
    options = parser.parse_args()
    if bool(options.words) != (options.command == "exec"):
        parser.error("exec needs a command, and the others take no arguments")
    home = Home(Path(os.environ.get("ZERO_HOME") or PROJECT_DIR).resolve() / ".zero")
    try:
        if options.command == "exec":
            execute(home, options.words)
        if options.command == "status":
            return 0 if status(home) else 1
        with locked(home):
            if options.command == "up":
                up(home)
                status(home)
            else:
                down(home)
    except (LocalError, ZeroError, httpx.HTTPError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
