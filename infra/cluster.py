"""A cluster on this machine without containers: the servers of `infra/compose`, with passwords, and N Dask workers.

    python -m infra.cluster up --workers 4      start what does not run: again, it starts nothing
    python -m infra.cluster down                cancel what runs, stop all of it
    python -m infra.cluster status              what runs, where, and where the passwords are
    python -m infra.cluster exec prefect deployment run zero-generation     a command as the trainer
    python -m infra.cluster exec --as worker-1 COMMAND...                   a command as a worker
    python -m infra.cluster stop|start|restart PART    postgres, store, scheduler, prefect, mlflow, ...

Everything it keeps is in `.zero/cluster`. For tests and small labs.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from infra.api import HOST, POOL, address, close_runs, open_runs, worker_is_online
from infra.certificates import make_certificates
from infra.cluster_database import end_orphans, is_whole, make_databases, make_folder
from infra.cluster_parts import (
    BUCKETS,
    PORTS,
    Cluster,
    command_of,
    environment_of,
    gpus,
    gpus_of,
    is_well,
    read_cluster,
    request_to_end,
    script,
    write_cluster,
)
from infra.local import CANCEL_SECONDS, START_SECONDS, Parser, alone, port_number
from infra.pools import automation, install, make_pool
from infra.processes import Record
from infra.services import PROJECT_DIR, Home, LocalError, choose_port, deploy, say, start, stop, title, wait_for

SHOWN = {"postgres": "postgres", "store": "s3", "scheduler": "scheduler", "prefect": "prefect", "mlflow": "mlflow"}
"""The port of each server that its clients know."""
STOP_SECONDS = {"trainer": 60.0, "worker": 60.0, "postgres": 30.0, "store": 30.0}
"""Time that a part has to end by itself, by kind."""
REFUSAL_SECONDS = 30.0
REMEDY = "a busy machine needs a longer `python -m infra.cluster up --timeout`"


def up(home: Home, num_workers: int | None, seconds: float) -> Cluster:
    """Brings up everything that is not.

    Raises:
      LocalError: a port is in use, a program is missing, or a part does not start in time.
    """
    home.state.mkdir(parents=True, exist_ok=True)
    home.state.chmod(0o711)  # the databases' user goes through it
    for folder in ("run", "logs", "store"):
        (home.state / folder).mkdir(mode=0o700, exist_ok=True)
    cluster = plan(home, num_workers)
    for worker in cluster.workers:
        gpus_of(cluster, worker)  # refused before anything has started
    make_secrets(cluster)
    make_certificates(cluster.certificates, [HOST])
    write_cluster(cluster)
    for name in surplus(cluster):
        end(cluster, name)
    if not is_whole(cluster):
        end(cluster, "postgres")  # cut short while its databases were made: it is made again

    if home.record("scheduler") is None:
        for name in cluster.workers:  # they end without their scheduler
            end(cluster, name)
    missing = [name for name in cluster.parts if home.record(name) is None]
    if missing:
        say("starting " + ", ".join(title(name) for name in missing) + " ...")
    for name in ("postgres", "store", "scheduler"):
        begin(cluster, name, missing)
    for name in ("postgres", "store", "scheduler"):
        wait_for(home, name, lambda name=name: is_well(cluster, name), seconds, REMEDY)  # type: ignore[misc]
    make_databases(cluster)
    for name in ("prefect", "mlflow"):
        begin(cluster, name, missing)
    if "store" in missing:
        make_buckets(cluster, seconds)
    wait_for(home, "prefect", lambda: is_well(cluster, "prefect"), seconds, REMEDY)
    patiently(cluster, lambda: make_pool(cluster.api))
    patiently(cluster, lambda: install(cluster.api, automation()))
    if "trainer" in missing:
        patiently(cluster, lambda: close_runs(cluster.api, "CRASHED", "the trainer had stopped"))
    since = datetime.now(UTC)
    last = [name for name in ("trainer", *cluster.workers) if name in missing]
    for name in last:
        begin(cluster, name, missing)
    deploy(home, cluster.api, environment_of(cluster, "trainer"))
    for name in (*last, "mlflow"):
        wait_until_well(cluster, name, since, seconds)
    return cluster


def plan(home: Home, num_workers: int | None) -> Cluster:
    """The cluster that shall run: on the ports it has, where any of it runs; else on those it had, or free ones."""
    before = read_cluster(home)
    if num_workers is None:
        num_workers = before.num_workers if before else max(1, len(gpus()))
    if before and any(home.record(name) for name in before.parts):
        return before._replace(num_workers=num_workers)
    for path in (home.state / "run").glob("*.json"):
        stop(home, path.stem)  # what killed ones left behind still holds their ports
    ports: dict[str, int] = {}
    for name, usual in PORTS.items():
        had = Record(0, "", before.ports[name]) if before else None
        ports[name] = choose_port(name, given_port(name), had, set(ports.values()), usual)
    return Cluster(home, ports, num_workers, tuple(gpus()))


def given_port(name: str) -> int | None:
    """The port that the environment chooses.

    Raises:
      LocalError: it is no port.
    """
    variable = f"ZERO_{name.upper()}_PORT"
    try:
        return port_number(os.environ[variable]) if os.environ.get(variable) else None
    except argparse.ArgumentTypeError as error:
        raise LocalError(f"{variable}: {error}") from None


def make_secrets(cluster: Cluster) -> None:
    """Makes the passwords and keys that are missing, and anew what is made of them.

    Raises:
      LocalError: `infra/secrets` failed.
    """
    for name in ("mlflow-database-url", "mlflow-auth.ini", "s3-identities.json"):
        (cluster.secrets / name).unlink(missing_ok=True)
    env = os.environ | {"ZERO_POSTGRES": f"{HOST}:{cluster.ports['postgres']}"}
    done = subprocess.run(
        [script("secrets"), str(cluster.secrets)], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LocalError(f"infra/secrets failed: {done.stderr.strip()}")


def begin(cluster: Cluster, name: str, missing: list[str]) -> None:
    """Starts a part, if it is missing, after the end of what a killed one left behind."""
    if name not in missing:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a part that inherits "ignored" could not be stopped
    home = cluster.home
    stop(home, name)
    if name == "postgres":
        make_folder(cluster)
        end_orphans(cluster)
    port = cluster.ports[SHOWN.get(name, "prefect")]
    if name == "scheduler" or name in cluster.workers:
        folder = PROJECT_DIR  # they import `flows` of this checkout
    else:
        folder = home.state / "store" if name == "store" else home.state
    start(home, name, command_of(cluster, name), environment_of(cluster, name), port, folder)


def end(cluster: Cluster, name: str) -> bool:
    """Stops a part. Returns False where it did not run."""
    return stop(cluster.home, name, STOP_SECONDS.get(kind_of(name)), request_to_end(name))


def wait_until_well(cluster: Cluster, name: str, since: datetime, seconds: float) -> None:
    """Returns when a part that was started at that time is well.

    Raises:
      LocalError: it ended, or was not well in time.
    """

    def check() -> bool:
        return is_well(cluster, name) and (name != "trainer" or worker_is_online(cluster.api, since, POOL, name))

    wait_for(cluster.home, name, check, seconds, REMEDY)


def make_buckets(cluster: Cluster, seconds: float) -> None:
    """Makes the buckets that are missing; the store may need a moment until it can keep something.

    Raises:
      LocalError: they could not be made in that time.
    """
    env = environment_of(cluster, "trainer") | {"AWS_SHARED_CREDENTIALS_FILE": str(cluster.secrets / "s3-admin")}
    deadline = time.monotonic() + seconds
    while True:
        done = subprocess.run(
            [sys.executable, "-m", "infra.buckets", "make", *BUCKETS],
            cwd=PROJECT_DIR,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise LocalError(f"the buckets could not be made: {done.stderr.strip()}")


def patiently(cluster: Cluster, work: Callable[[], object]) -> None:
    """Does something by Prefect's API; again, where the server still has connections to a database that was restarted.

    Raises:
      LocalError: the server refused for some time.
    """
    deadline = time.monotonic() + REFUSAL_SECONDS
    while True:
        try:
            work()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LocalError(f"Prefect refused: {error}; see {cluster.home.log('prefect')}") from None
        time.sleep(0.5)


def down(cluster: Cluster) -> None:
    """Cancels the runs and stops everything; the trainer and the workers first, so that their runs report their end."""
    home = cluster.home
    if home.record("prefect") and home.record("trainer"):
        with contextlib.suppress(OSError, ValueError):
            deadline = time.monotonic() + CANCEL_SECONDS
            if close_runs(cluster.api, "CANCELLING", "the cluster is being stopped"):
                say("cancelling what runs ...")
            while open_runs(cluster.api, ["CANCELLING"]) and time.monotonic() < deadline:
                time.sleep(0.5)
    first = [*surplus(cluster), *reversed(cluster.workers), "trainer"]
    with ThreadPoolExecutor(len(first)) as together:  # each may take its time
        did_run = dict(zip(first, together.map(lambda name: end(cluster, name), first), strict=True))
    for name in ("scheduler", "mlflow", "prefect", "store", "postgres"):
        did_run[name] = end(cluster, name)
    ended = [title(name) for name, ran in did_run.items() if ran]
    say(f"stopped: {', '.join(ended)}" if ended else "nothing was running")


def surplus(cluster: Cluster) -> list[str]:
    """Workers that were started when there were more."""
    started = [path.stem for path in (cluster.home.state / "run").glob("worker-*.json")]
    return sorted(set(started) - set(cluster.workers))


def change(cluster: Cluster, what: str, name: str, seconds: float) -> None:
    """Stops, starts or restarts one part; the scheduler with its workers, which end when it does.

    Raises:
      LocalError: there is no such part, or it does not start in time.
    """
    if name not in cluster.parts:
        raise LocalError(f"there is no {name!r} here; the parts are {', '.join(cluster.parts)}")
    names = [name, *cluster.workers] if name == "scheduler" else [name]
    if what in ("stop", "restart"):
        for one in reversed(names):
            end(cluster, one)
    if what in ("start", "restart"):
        since = datetime.now(UTC)
        missing = [one for one in names if cluster.home.record(one) is None]
        for one in missing:
            begin(cluster, one, missing)
        for one in missing:
            wait_until_well(cluster, one, since, seconds)


def status(cluster: Cluster) -> bool:
    """Prints what runs and where; True where all of it is well."""
    well = []
    for name in cluster.parts:
        well.append(cluster.home.record(name) is not None and is_well(cluster, name))
        place = f"{HOST}:{cluster.ports[SHOWN[name]]}" if name in SHOWN else ""
        if name in ("prefect", "mlflow", "store"):
            place = address(cluster.ports[SHOWN[name]])
        if name == "scheduler":
            place = f"{cluster.scheduler}, dashboard {address(cluster.ports['dashboard'])}"
        say(f"{title(name):<10} {'up' if well[-1] else 'down':<5} {place:<22} log: {cluster.home.log(name)}")
    say(f"passwords: {cluster.secrets} (Prefect: prefect-auth; MLflow: user zero, mlflow-password; S3: s3-ROLE)")
    return all(well)


def execute(cluster: Cluster, role: str, command: list[str]) -> None:
    """Becomes the command, with the environment of a part.

    Raises:
      LocalError: there is no such part or command.
    """
    if role not in cluster.parts:
        raise LocalError(f"there is no {role!r} here; the parts are {', '.join(cluster.parts)}")
    env = environment_of(cluster, role)
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        raise LocalError(f"cannot run {command[0]!r}: {error.strerror}") from None


def kind_of(name: str) -> str:
    """The name of a part without its number."""
    return name.partition("-")[0]


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="infra.cluster", description="The servers of a cluster, and its workers, on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    upward = commands.add_parser("up", help="start what does not run")
    upward.add_argument("--workers", type=int, help="number of workers; by default one per GPU, or as many as before")
    commands.add_parser("down", help="stop all of it")
    commands.add_parser("status", help="what runs, and where")
    run = commands.add_parser("exec", help="run a command with the environment of a part")
    run.add_argument("--as", dest="role", default="trainer", metavar="PART", help="by default the trainer")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="command")
    for word in ("stop", "start", "restart"):
        one = commands.add_parser(word, help=f"{word} one part")
        one.add_argument("part")
    for command in commands.choices.values():
        command.add_argument(
            "--timeout", type=float, default=START_SECONDS, help="seconds that a part may take to start"
        )
    options = parser.parse_args(arguments)
    if options.command == "exec" and not options.words:
        parser.error("exec needs a command")
    if options.command == "up" and options.workers is not None and options.workers < 1:
        parser.error(f"--workers {options.workers}: at least one must play")
    return options


def main() -> int:
    """Runs a command; an error is one message and exit status 1."""
    home = Home(Path(os.environ.get("ZERO_HOME") or PROJECT_DIR).resolve() / ".zero" / "cluster")
    try:
        options = parse(sys.argv[1:])
        if options.command == "up":
            with alone(home):
                status(up(home, options.workers, options.timeout))
            return 0
        cluster = read_cluster(home)
        if cluster is None and options.command == "down":
            say("nothing was running")
            return 0
        if cluster is None:
            raise LocalError(f"there is no cluster in {home.state}; start one with `make cluster`")
        if options.command == "status":
            return 0 if status(cluster) else 1
        if options.command == "exec":
            execute(cluster, options.role, options.words)
        with alone(home):
            if options.command == "down":
                down(cluster)
            else:
                change(cluster, options.command, options.part, options.timeout)
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
