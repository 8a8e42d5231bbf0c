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
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from infra.api import POOL, address, answers, close_runs, open_runs, worker_is_online
from infra.pools import make_pool
from infra.processes import lives, read_record, write_json
from infra.services import (
    PROJECT_DIR,
    USUAL_PORTS,
    Home,
    LocalError,
    choose_port,
    client_env,
    deploy,
    say,
    server_command,
    start,
    stop,
    title,
    wait_for,
)

SERVICES = ("prefect", "mlflow", "worker")
HEALTH_PATHS = {"prefect": "/api/health", "mlflow": "/health"}
START_SECONDS = 240.0
"""Time limit of a start: 10 s on an idle machine, a minute on a busy one that compiles every module first."""
CANCEL_SECONDS = 45.0
"""Patience with runs that are cancelled because their worker is about to stop."""


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
        say("starting " + " and ".join(title(name) for name in new) + " ...")
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
    make_pool(api)
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
    stopped = [title(name) for name in reversed(SERVICES) if stop(home, name)]
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status(home: Home) -> bool:
    """Prints what runs and where; True where all of it is well."""
    well = []
    for name in SERVICES:
        record = home.record(name)
        place = address(record.port) if record and name in HEALTH_PATHS else f'pool "{POOL}"'
        well.append(record is not None and (name not in HEALTH_PATHS or answers(place + HEALTH_PATHS[name])))
        say(f"{title(name):<8} {'up' if well[-1] else 'down':<5} {place if well[-1] else '':<24} log: {home.log(name)}")
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


# The command line


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
        raise LocalError(f"{message}; see `python -m {self.prog} --help`")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="infra.local", description="Prefect, MLflow and a worker on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    upward = commands.add_parser("up", help="start what does not run, and deploy the flows")
    for name in USUAL_PORTS:
        variable = f"ZERO_{name.upper()}_PORT"
        text = f"port of {title(name)}; by default ${variable}, else {USUAL_PORTS[name]} or the next that is free"
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
