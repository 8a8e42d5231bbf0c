"""A cluster of native processes: the servers of `infra/compose`, with their passwords and roles, and Dask workers.

    python -m tests.cluster up [N]            starts what does not run; N workers, by default 1 or as many as before
    python -m tests.cluster down              cancels the runs, stops everything; the data stays
    python -m tests.cluster status            shows what runs, the addresses, the logs and the passwords' folder
    python -m tests.cluster stop PART         postgres, store, scheduler, prefect, mlflow, trainer, worker-1, ...
    python -m tests.cluster exec COMMAND...   runs a command as the trainer

For tests, for `tests.faults` and for developers; a lab uses containers. Everything is in `.zero/native-cluster` (of
ZERO_HOME, if set). Workers do not use GPUs.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx

from infra.local import CANCEL_SECONDS, HOST, PROJECT_DIR, deploy, locked, reserve_port, say
from infra.pools import automation, cancel_runs, close_runs, install, make_pool, worker_is_online
from infra.processes import Home, LocalError, title
from tests.cluster.parts import (
    BUCKETS,
    PORTS,
    Cluster,
    command_of,
    environment_of,
    is_healthy,
    read_cluster,
    write_cluster,
)
from tests.cluster.postgres import end_orphans, initialise, make_databases
from zero.errors import ZeroError

STOP_SECONDS = 60.0
STORE_STOP_SECONDS = 5.0
"""SeaweedFS waits 15 s for its own S3 gateway to end a request; killed, it loses nothing that it has confirmed."""
REFUSAL_SECONDS = 30.0
REMEDY = "see docs/cluster.md"


def up(home: Home, num_workers: int | None = None) -> Cluster:
    """Starts what does not run.

    Raises:
      LocalError: a program is missing, or a part does not start in time.
    """
    for folder in ("run", "logs", "store"):
        (home.state / folder).mkdir(parents=True, exist_ok=True)
    home.state.chmod(0o711)  # PostgreSQL's user must reach its folder
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a part that inherits "ignored" could not be stopped
    cluster = plan(home, num_workers)
    make_secrets(cluster)
    write_cluster(cluster)
    stop(cluster, surplus(cluster))
    if home.record("scheduler") is None:
        stop(cluster, cluster.workers)  # they end without their scheduler

    missing = [name for name in cluster.parts if home.record(name) is None]
    if missing:
        say("starting " + ", ".join(title(name) for name in missing) + " ...")
    start(cluster, [name for name in ("postgres", "store", "scheduler") if name in missing])
    wait(cluster, ("postgres", "store", "scheduler"))
    make_databases(home.state / "postgres", cluster.ports["postgres"], cluster.secrets)
    start(cluster, [name for name in ("prefect", "mlflow") if name in missing])
    if "store" in missing:
        make_buckets(cluster)
    wait(cluster, ["prefect"])
    repeatedly(lambda: make_pool(cluster.api))
    repeatedly(lambda: install(cluster.api, automation()))
    if "trainer" in missing:
        repeatedly(lambda: close_runs(cluster.api, "CRASHED", "the trainer had stopped"))
    players = [name for name in ("trainer", *cluster.workers) if name in missing]
    since = datetime.now(UTC)
    start(cluster, players)
    deploy(home, cluster.api, environment_of(cluster, "trainer"))
    wait(cluster, ["mlflow", *players], since)
    return cluster


def plan(home: Home, num_workers: int | None) -> Cluster:
    """The cluster to run. It keeps its ports while any part runs, and gets new ones otherwise."""
    before = read_cluster(home)
    num_workers = num_workers or (before.num_workers if before else 1)
    if before and any(home.record(name) for name in before.parts):
        return before._replace(num_workers=num_workers)
    for path in (home.state / "run").glob("*.json"):
        home.stop(path.stem)  # orphans of killed parts
    # Below the ports that Linux gives to clients, which could take one before the server listens.
    free = (port for port in random.sample(range(20_000, 32_000), 1_000) if reserve_port(port))
    return Cluster(home, {name: next(free) for name in PORTS}, num_workers)


def make_secrets(cluster: Cluster) -> None:
    """Makes the missing secrets; those that contain a port are made again."""
    for name in ("mlflow-database-url", "mlflow-auth.ini", "s3-identities.json"):
        (cluster.secrets / name).unlink(missing_ok=True)
    env = os.environ | {"ZERO_POSTGRES": f"{HOST}:{cluster.ports['postgres']}"}
    subprocess.run([PROJECT_DIR / "infra/secrets", cluster.secrets], env=env, stdout=subprocess.DEVNULL, check=True)


def start(cluster: Cluster, names: Iterable[str]) -> None:
    """Starts parts, after the end of what killed ones left."""
    for name in names:
        cluster.home.stop(name)
        if name == "postgres":
            end_orphans(cluster.home.state / "postgres")
            initialise(cluster.home.state / "postgres", cluster.secrets)
        is_dask = name == "scheduler" or name in cluster.workers
        folder = PROJECT_DIR if is_dask else cluster.home.state / ("store" if name == "store" else "")
        cluster.home.start(name, command_of(cluster, name), environment_of(cluster, name), 0, folder)


def stop(cluster: Cluster, names: Iterable[str]) -> list[str]:
    """Stops parts at the same time; returns those that ran."""
    names = list(names)
    with ThreadPoolExecutor(len(names) or 1) as pool:
        ran = pool.map(lambda name: stop_part(cluster.home, name), names)
        return [name for name, did_run in zip(names, ran, strict=True) if did_run]


def stop_part(home: Home, name: str) -> bool:
    """Stops a part. Returns False if it did not run."""
    if name == "postgres":
        return home.stop(name, STOP_SECONDS, signal.SIGINT)  # at SIGTERM it would wait for its clients
    return home.stop(name, STORE_STOP_SECONDS if name == "store" else STOP_SECONDS)


def wait(cluster: Cluster, names: Iterable[str], since: datetime | None = None) -> None:
    """Waits until parts are healthy. A trainer has sent a heartbeat since that time."""
    for name in names:

        def check(name: str = name) -> bool:
            if name == "trainer" and since and not worker_is_online(cluster.api, name, since):
                return False
            return is_healthy(cluster, name)

        cluster.home.wait_for(name, check, REMEDY)


def make_buckets(cluster: Cluster) -> None:
    """Makes the missing buckets; the store may need a moment until it accepts objects."""
    env = environment_of(cluster, "trainer") | {"AWS_SHARED_CREDENTIALS_FILE": str(cluster.secrets / "s3-admin")}
    command = [sys.executable, "-m", "infra.buckets", "make", *BUCKETS]

    def make() -> None:
        done = subprocess.run(command, cwd=PROJECT_DIR, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"the buckets could not be made: {done.stderr.strip()}")

    repeatedly(make)


def repeatedly(work: Callable[[], object]) -> None:
    """Calls a function until it succeeds: Prefect's server may still use connections to a restarted database.

    Raises:
      LocalError: it did not succeed in time.
    """
    deadline = time.monotonic() + REFUSAL_SECONDS
    while True:
        try:
            work()
            return
        except (httpx.HTTPError, OSError) as error:
            if time.monotonic() > deadline:
                raise LocalError(f"a server of the cluster refused: {error}") from None
        time.sleep(0.5)


def down(cluster: Cluster) -> None:
    """Cancels the runs and stops everything; the trainer and the workers first, so that their runs report their end."""
    if cluster.home.record("prefect") and cluster.home.record("trainer"):
        with contextlib.suppress(httpx.HTTPError, ValueError):
            cancel_runs(cluster.api, "the cluster is being stopped", CANCEL_SECONDS)
    stopped = []
    for names in (
        [*surplus(cluster), *cluster.workers, "trainer"],
        ["scheduler", "mlflow", "prefect"],
        ["store"],
        ["postgres"],
    ):
        stopped += stop(cluster, names)
    say(f"stopped: {', '.join(map(title, stopped))}" if stopped else "nothing was running")


def surplus(cluster: Cluster) -> list[str]:
    """Workers that were started when there were more."""
    started = {path.stem for path in (cluster.home.state / "run").glob("worker-*.json")}
    return sorted(started - set(cluster.workers))


def status(cluster: Cluster) -> bool:
    """Prints what runs, and where. Returns True if everything is healthy."""
    shown = {"store": "s3"} | {name: name for name in ("postgres", "scheduler", "prefect", "mlflow")}
    healthy = []
    for name in cluster.parts:
        healthy.append(cluster.home.record(name) is not None and is_healthy(cluster, name))
        place = f"{HOST}:{cluster.ports[shown[name]]}" if name in shown else ""
        say(f"{title(name):<10} {'up' if healthy[-1] else 'down':<5} {place:<16} log: {cluster.home.log(name)}")
    say(f"dashboard of Dask: {HOST}:{cluster.ports['dashboard']}")
    say(f"passwords: {cluster.secrets} (Prefect: prefect-auth; MLflow: user zero, mlflow-password; S3: s3-ROLE)")
    return all(healthy)


def part(cluster: Cluster, words: list[str]) -> list[str]:
    """The named part; the scheduler with its workers, which end when it does.

    Raises:
      LocalError: there is no such part.
    """
    name = words[0] if words else ""
    if name not in cluster.parts:
        raise LocalError(f"{name!r} is not a part of the cluster; the parts are {', '.join(cluster.parts)}")
    return [name, *cluster.workers] if name == "scheduler" else [name]


def run(home: Home, command: str, words: list[str]) -> int:
    """Runs a command; returns its exit status.

    Raises:
      LocalError: a part does not start, or there is no cluster.
    """
    if command == "up":
        with locked(home):
            status(up(home, int(words[0]) if words else None))
        return 0
    cluster = read_cluster(home)
    if cluster is None and command == "down":
        say("nothing was running")
        return 0
    if cluster is None:
        raise LocalError(f"there is no cluster in {home.state}; start one with `python -m tests.cluster up`")
    match command:
        case "status":
            return 0 if status(cluster) else 1
        case "exec":
            os.execvpe(words[0], words, environment_of(cluster, "trainer"))
        case "down":
            with locked(home):
                down(cluster)
        case "stop":
            with locked(home):
                stop(cluster, part(cluster, words))
        case _:
            raise LocalError(f"unknown command {command!r}; the commands are up, down, status, stop and exec")
    return 0


def main() -> int:
    """Runs a command; an error is one message and exit status 1."""
    home = Home(Path(os.environ.get("ZERO_HOME") or PROJECT_DIR).resolve() / ".zero" / "native-cluster")
    try:
        return run(home, sys.argv[1] if sys.argv[1:] else "", sys.argv[2:])
    except (LocalError, ZeroError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
