"""The services of one machine: how each is started, recorded, waited for and stopped, and what its port is."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from infra.api import FLOWS, HOST, address, answers
from infra.processes import Record, end_service, lives, read_record, start_service, write_json

PROJECT_DIR = Path(__file__).resolve().parent.parent
USUAL_PORTS = {"prefect": 4200, "mlflow": 5000}
TITLES = {"prefect": "Prefect", "mlflow": "MLflow", "postgres": "PostgreSQL", "store": "SeaweedFS"}
"""What a service is called in messages, where that is not its own name."""
PORTS_TRIED = 100
STOP_SECONDS = {"mlflow": 10.0, "prefect": 10.0}
WORKER_STOP_SECONDS = 20.0
"""Patience with a polite end."""
REMEDY = "try `make down`, then `make up` (a busy machine needs a longer `python -m infra.local up --timeout`)"
LOG_LINES = 12
QUIET = {
    "DO_NOT_TRACK": "true",  # Prefect reads this word, not 1
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


_reserved: dict[int, socket.socket] = {}
"""Ports that this process has reserved, with the socket that says so."""


class LocalError(Exception):
    """What a user can do something about: the value and the remedy."""


class Home(NamedTuple):
    """Where the state is kept."""

    state: Path

    def log(self, name: str) -> Path:
        """Log of a service."""
        return self.state / "logs" / f"{name}.log"

    def record_path(self, name: str) -> Path:
        """File that tells the process of a service."""
        return self.state / "run" / f"{name}.json"

    def record(self, name: str) -> Record | None:
        """Record of a service that runs; None where it does not."""
        record = read_record(self.record_path(name))
        return record if record and lives(record) else None

    @property
    def servers(self) -> Path:
        """File with the addresses of what runs."""
        return self.state / "servers.json"


def client_env(home: Home, ports: dict[str, int]) -> dict[str, str]:
    """Environment of the servers and their clients: addresses, this interpreter's programs first, no calls home.

    What the caller's shell says about Prefect and MLflow is about other servers, and is left out.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "MLFLOW_"))}
    env |= QUIET | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
        "NO_PROXY": ",".join(filter(None, [env.get("NO_PROXY") or env.get("no_proxy"), HOST, "localhost"])),
        "ZERO_HOME": str(home.state.parent),
        "PREFECT_HOME": str(home.state / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home.state}/prefect/prefect.db",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",  # what `--watch` shows beside the states
        "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    if "prefect" in ports:
        env["PREFECT_API_URL"] = address(ports["prefect"]) + "/api"
    if "mlflow" in ports:
        env["MLFLOW_TRACKING_URI"] = address(ports["mlflow"])
    return env


def server_command(home: Home, name: str, port: int) -> list[str]:
    """Command line of a server; MLflow gets one process for requests, it has 15 by default."""
    place = ["--host", HOST, "--port", str(port)]
    if name == "prefect":
        return [sys.executable, "-m", "prefect", "server", "start", *place]
    folder = home.state / "mlflow"
    kept = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    allowed = ["--allowed-hosts", f"{HOST}:{port},localhost:{port}"]
    return [sys.executable, "-m", "mlflow", "server", *place, "--workers", "1", *kept, *allowed]


def title(name: str) -> str:
    """What a service is called in a message."""
    return TITLES.get(name, name)


def start(
    home: Home, name: str, command: list[str], env: dict[str, str], port: int, folder: Path | None = None
) -> None:
    """Starts a service, in a folder or where the state is, and records it."""
    record = start_service(command, env, folder or home.state, home.log(name), port)
    write_json(home.record_path(name), record._asdict())


def stop(home: Home, name: str, seconds: float | None = None, request: signal.Signals = signal.SIGTERM) -> bool:
    """Ends a service, or what a dead one left behind. Returns False where nothing ran."""
    record = read_record(home.record_path(name))
    patience = STOP_SECONDS.get(name, WORKER_STOP_SECONDS) if seconds is None else seconds
    ran = record is not None and end_service(record, patience, request)
    home.record_path(name).unlink(missing_ok=True)
    return ran


def wait_for(home: Home, name: str, is_healthy: Callable[[], bool], seconds: float, remedy: str = REMEDY) -> None:
    """Returns once a service is healthy.

    Raises:
      LocalError: it ended, or was not healthy in time; with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not is_healthy() or home.record(name) is None:
        if home.record(name) is None:  # or another program answers at its address
            raise LocalError(f"{title(name)} ended while it started; {log_end(home.log(name))}")
        if time.monotonic() > deadline:
            raise LocalError(f"{title(name)} was not ready after {seconds:.0f} s; {remedy}; {log_end(home.log(name))}")
        time.sleep(0.2)


def log_end(path: Path) -> str:
    """The last lines of a log, for a message."""
    try:
        lines = path.read_text(errors="replace").rstrip().splitlines()[-LOG_LINES:]
    except OSError:
        lines = []
    return "\n  ".join([f"the end of {path}:", *lines]) if lines else f"its log {path} is empty"


def choose_port(name: str, given: int | None, before: Record | None, taken: set[int], usual: int | None = None) -> int:
    """The port given; else the one it had, the usual one, or the next that is free.

    Raises:
      LocalError: the port given is in use, or none is free.
    """
    variable = f"ZERO_{name.upper()}_PORT"
    usual = USUAL_PORTS[name] if usual is None else usual
    if given is not None:
        if given in taken or not reserve_port(given):
            raise LocalError(
                f"port {given} for {title(name)} is in use by another program, or another project is starting a server "
                f"there; stop it, set {variable} to another port, or leave it unset for a free one"
            )
        return given
    wanted = [before.port] if before else []
    free = (port for port in [*wanted, *range(usual, usual + PORTS_TRIED)] if port not in taken and reserve_port(port))
    port: int | None = next(free, None)
    if port is None:
        raise LocalError(f"no free port for {title(name)} among {usual} to {usual + PORTS_TRIED - 1}; set {variable}")
    if port not in (*wanted, usual):
        say(f"port {usual} is in use by another program: {title(name)} takes {port} (set {variable} to choose)")
    return port


def reserve_port(port: int) -> bool:
    """True where a server could listen there and no other project on this machine is about to start one there.

    A server listens only seconds after its port was chosen. Until this process ends, others see that it is taken.
    """
    if port not in _reserved:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(reservation(port))
        except OSError:
            claim.close()
            return False
        _reserved[port] = claim
    if port_is_free(port):
        return True
    _reserved.pop(port).close()
    return False


def reservation(port: int) -> str:
    """The abstract socket that reserves a port: no file, and the system frees it when its process ends."""
    return f"\0zero-port-{port}"


def port_is_free(port: int) -> bool:
    """True where a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def deploy(home: Home, api: str, env: dict[str, str]) -> None:
    """Deploys the flows of this project, unless the server has these very ones.

    Raises:
      LocalError: `prefect deploy` failed.
    """
    digest = hashlib.sha256(str(PROJECT_DIR).encode())
    for path in [PROJECT_DIR / "prefect.yaml", *sorted((PROJECT_DIR / "flows").glob("*.py"))]:
        digest.update(path.read_bytes())
    stamp = home.state / "run" / "deployed"
    same = stamp.exists() and stamp.read_text() == digest.hexdigest()
    if same and all(answers(f"{api}/deployments/name/{flow}/{flow}") for flow in FLOWS):
        return
    say("deploying the flows ...")
    with home.log("deploy").open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
            cwd=PROJECT_DIR,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise LocalError(f"`prefect deploy --all` failed; {log_end(home.log('deploy'))}")
    stamp.write_text(digest.hexdigest())


def say(line: str) -> None:
    """One line to the person who watches."""
    print(line, flush=True)
