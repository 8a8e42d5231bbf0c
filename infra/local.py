"""The servers of one machine: Prefect, MLflow and one worker, on loopback, with everything they keep in `.zero/`.

    python -m infra.local up       start what does not run, deploy the flows, write .zero/servers.json
    python -m infra.local down     stop all of it, with every process they started
    python -m infra.local status   what runs, where, and where the logs are
    python -m infra.local exec prefect flow-run ls     a command with the addresses in its environment

For a clone of the project on one machine; standard library only. No process started here calls home.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

from infra.api import FLOWS, HOST, POOL, address, answers, close_runs, open_runs, worker_is_online
from infra.processes import Record, end_service, lives, read_record, start_service, write_json

PROJECT_DIR = Path(__file__).resolve().parent.parent
USUAL_PORTS = {"prefect": 4200, "mlflow": 5000}
TITLES = {"prefect": "Prefect", "mlflow": "MLflow", "worker": "worker"}
HEALTH_PATHS = {"prefect": "/api/health", "mlflow": "/health"}
PORTS_TRIED = 100
START_SECONDS = 240.0
"""Time limit of a start: 10 s on an idle machine, a minute on a busy one that compiles every module first."""
STOP_SECONDS = {"worker": 20.0, "mlflow": 10.0, "prefect": 10.0}
"""Patience with a polite end."""
CANCEL_SECONDS = 45.0
"""Patience with runs that are cancelled because their worker is about to stop."""
LOG_LINES = 12
QUIET = {
    "DO_NOT_TRACK": "true",  # Prefect reads this word, not 1
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


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


def up(home: Home, ports: dict[str, int | None], seconds: float) -> None:
    """Brings up everything that is not, and deploys the flows.

    Raises:
      LocalError: a port given is in use, a server does not start in time, or the flows cannot be deployed.
    """
    for folder in ("run", "logs", "prefect", "mlflow/artifacts"):
        (home.state / folder).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker that inherits "ignored" could not be stopped

    before = {name: read_record(home.record_path(name)) for name in USUAL_PORTS}
    running = {name: record.port for name, record in before.items() if record and lives(record)}
    for name in before.keys() - running.keys():
        stop(home, name)  # what a killed one left behind still holds its port
    chosen = {name: port for name, port in running.items() if ports[name] in (None, port)}
    new = [name for name in USUAL_PORTS if name not in chosen]
    for name in new:
        chosen[name] = choose_port(name, ports[name], before[name], set(chosen.values()))
    if new:
        say("starting " + " and ".join(TITLES[name] for name in new) + " ...")
    if any(record and record.port != chosen[name] for name, record in before.items()):
        stop(home, "worker")  # it knows the old addresses
    for name in new:
        stop(home, name)
    env = client_env(home, chosen)
    for name in new:
        start(home, name, server_command(home, name, chosen[name]), env, chosen[name])
    for name in USUAL_PORTS:
        wait_for(home, name, lambda name=name: answers(address(chosen[name]) + HEALTH_PATHS[name]), seconds)  # type: ignore[misc]

    api = address(chosen["prefect"]) + "/api"
    if home.record("worker") is None:
        stop(home, "worker")  # what a killed one left behind
        close_runs(api, "CRASHED", "the worker had stopped")
        say("starting the worker ...")
        since = datetime.now(UTC)
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
        start(home, "worker", [*command, "--name", "this machine"], env, chosen["prefect"])
        wait_for(home, "worker", lambda: worker_is_online(api, since), seconds)
    deploy(home, api, env)
    write_json(home.servers, {name: address(port) for name, port in chosen.items()})


def down(home: Home) -> None:
    """Cancels the runs and stops everything; the worker first, so that its runs can still say how they ended."""
    server = home.record("prefect")
    if server and home.record("worker"):
        api = address(server.port) + "/api"
        with contextlib.suppress(OSError, ValueError):
            deadline = time.monotonic() + CANCEL_SECONDS
            if close_runs(api, "CANCELLING", "the servers are being stopped"):
                say("cancelling what runs ...")
            while open_runs(api, ["CANCELLING"]) and time.monotonic() < deadline:
                time.sleep(0.5)
    home.servers.unlink(missing_ok=True)
    stopped = [TITLES[name] for name in ("worker", "mlflow", "prefect") if stop(home, name)]
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status(home: Home) -> bool:
    """Prints what runs and where; True where all of it is well."""
    well = []
    for name, title in TITLES.items():
        record = home.record(name)
        place = address(record.port) if record and name in HEALTH_PATHS else f'pool "{POOL}"'
        well.append(record is not None and (name not in HEALTH_PATHS or answers(place + HEALTH_PATHS[name])))
        say(f"{title:<8} {'up' if well[-1] else 'down':<5} {place if well[-1] else '':<24} log: {home.log(name)}")
    return all(well)


def execute(home: Home, command: list[str]) -> None:
    """Becomes the command, with the addresses of the servers in its environment.

    Raises:
      LocalError: the servers do not run, or there is no such command.
    """
    records = {name: home.record(name) for name in USUAL_PORTS}
    env = client_env(home, {name: record.port for name, record in records.items() if record})
    if None in records.values():
        raise LocalError("the servers do not run; start them with `make up`")
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        raise LocalError(f"cannot run {command[0]!r}: {error.strerror}") from None


# Services


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


def start(home: Home, name: str, command: list[str], env: dict[str, str], port: int) -> None:
    """Starts a service and records it."""
    record = start_service(command, env, home.state, home.log(name), port)
    write_json(home.record_path(name), record._asdict())


def stop(home: Home, name: str) -> bool:
    """Ends a service, or what a dead one left behind. Returns False where nothing ran."""
    record = read_record(home.record_path(name))
    ran = record is not None and end_service(record, STOP_SECONDS[name])
    home.record_path(name).unlink(missing_ok=True)
    return ran


def wait_for(home: Home, name: str, is_healthy: Callable[[], bool], seconds: float) -> None:
    """Returns once a service is healthy.

    Raises:
      LocalError: it ended, or was not healthy in time; with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not is_healthy():
        if home.record(name) is None:
            raise LocalError(f"{TITLES[name]} ended while it started; {log_end(home.log(name))}")
        if time.monotonic() > deadline:
            raise LocalError(
                f"{TITLES[name]} was not ready after {seconds:.0f} s; try `make down`, then `make up` (a busy machine "
                f"needs a longer `python -m infra.local up --timeout`); {log_end(home.log(name))}"
            )
        time.sleep(0.2)


def log_end(path: Path) -> str:
    """The last lines of a log, for a message."""
    try:
        lines = path.read_text(errors="replace").rstrip().splitlines()[-LOG_LINES:]
    except OSError:
        lines = []
    return "\n  ".join([f"the end of {path}:", *lines]) if lines else f"its log {path} is empty"


def choose_port(name: str, given: int | None, before: Record | None, taken: set[int]) -> int:
    """The port given; else the one it had, the usual one, or the next that is free.

    Raises:
      LocalError: the port given is in use, or none is free.
    """
    variable, usual = f"ZERO_{name.upper()}_PORT", USUAL_PORTS[name]
    if given is not None:
        if given in taken or not port_is_free(given):
            raise LocalError(
                f"port {given} for {TITLES[name]} is in use by another program; stop that program, set {variable} to "
                "another port, or leave it unset for a free one"
            )
        return given
    wanted = [before.port] if before else []
    free = (port for port in [*wanted, *range(usual, usual + PORTS_TRIED)] if port not in taken and port_is_free(port))
    port: int | None = next(free, None)
    if port is None:
        raise LocalError(f"no free port for {TITLES[name]} among {usual} to {usual + PORTS_TRIED - 1}; set {variable}")
    if port not in (*wanted, usual):
        say(f"port {usual} is in use by another program: {TITLES[name]} takes {port} (set {variable} to choose)")
    return port


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


# The command line


def say(line: str) -> None:
    """One line to the person who watches."""
    print(line, flush=True)


@contextlib.contextmanager
def alone(home: Home) -> Iterator[None]:
    """One `up` or `down` at a time."""
    home.state.mkdir(parents=True, exist_ok=True)
    with (home.state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another `up` or `down` is at work; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def port_number(text: str) -> int:
    """A port from a flag or the environment."""
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number from 1 to 65535")
    return int(text)


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Complains about the command line.

        Raises:
          LocalError: always.
        """
        raise LocalError(f"{message}; see `python -m infra.local --help`")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="infra.local", description="Prefect, MLflow and a worker on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    upward = commands.add_parser("up", help="start what does not run, and deploy the flows")
    for name, title in (("prefect", "Prefect"), ("mlflow", "MLflow")):
        variable = f"ZERO_{name.upper()}_PORT"
        text = f"port of {title}; by default ${variable}, else {USUAL_PORTS[name]} or the next that is free"
        upward.add_argument(f"--{name}-port", type=port_number, default=os.environ.get(variable) or None, help=text)
    upward.add_argument("--timeout", type=float, default=START_SECONDS, help="seconds that a server may take to start")
    commands.add_parser("down", help="stop all of it")
    commands.add_parser("status", help="what runs, and where")
    run = commands.add_parser("exec", help="run a command with the addresses in its environment")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="command")
    options = parser.parse_args(arguments)
    if options.command == "exec" and not options.words:
        parser.error("exec needs a command")
    return options


def main() -> int:
    """Runs a command; an error is one message and exit status 1."""
    home = Home(Path(os.environ.get("ZERO_HOME") or PROJECT_DIR).resolve() / ".zero")
    try:
        options = parse(sys.argv[1:])
        if options.command == "exec":
            execute(home, options.words)
        if options.command == "status":
            return 0 if status(home) else 1
        with alone(home):
            if options.command == "up":
                up(home, {"prefect": options.prefect_port, "mlflow": options.mlflow_port}, options.timeout)
                status(home)
            else:
                down(home)
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
