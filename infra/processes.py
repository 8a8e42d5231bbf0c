"""Services: programs that outlive the command that starts them, each with a session, a log and a record of its own.

A record names a process by its number and its start time, because the kernel reuses the numbers of ended processes.
`zero.processes` does the opposite: it ends a program with its parent. Linux only.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from zero.config.settings import is_place_of, place_of
from zero.storage.files import canonical_json, write_atomic

START_SECONDS = 240.0
"""Default time limit of a start: 10 s on an idle machine, a minute on a busy one that compiles every module first."""
STOP_SECONDS = 20.0
"""Time that a service has to end after the signal; it is killed then."""
ORPHAN_SECONDS = 10.0
"""The same for processes whose service has ended."""
POLL_SECONDS = 0.1
OPEN_FILES = 65_536
"""Open files of a service within its hard limit, as in infra/compose: hundreds of workers need more than 1,024."""
WITH_OPEN_FILES = f'ulimit -S -n {OPEN_FILES} 2>/dev/null || ulimit -S -n "$(ulimit -H -n)"; exec "$@"'
LOG_LINES = 12
TITLES = {"prefect": "Prefect", "mlflow": "MLflow", "postgres": "PostgreSQL", "store": "SeaweedFS", "web": "web page"}
"""Names of services in messages, if they differ from the names of their files."""


class LocalError(Exception):
    """A message for the user: the value, the cause and the remedy."""


class Record(NamedTuple):
    """Identity and port of a service."""

    pid: int
    started: float
    """Seconds from boot to its start. A time of day would change whenever the clock is set."""
    port: int
    place: str = ""
    """`zero.config.settings.place_of` of its project; empty in records of an earlier version."""


class Home(NamedTuple):
    """Services of one folder, by name: their records in `run/`, their logs in `logs/`."""

    state: Path

    def log(self, name: str) -> Path:
        """Log of a service."""
        return self.state / "logs" / f"{name}.log"

    def record_path(self, name: str) -> Path:
        """File with the record of a service."""
        return self.state / "run" / f"{name}.json"

    def last_record(self, name: str) -> Record | None:
        """Record of a service, even if it was killed.

        None if it was stopped or never started, after a restart of the machine, and in a copy of the project.
        """
        try:
            record = Record(**json.loads(self.record_path(name).read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return record if is_place_of(record.place, self.state.parent) else None

    def record(self, name: str) -> Record | None:
        """Record of a running service; None if it does not run."""
        record = self.last_record(name)
        return record if record and is_running(record) else None

    def start(self, name: str, command: list[str], env: dict[str, str], port: int, folder: Path | None = None) -> None:
        """Starts and records a service, by default in the folder of the state; its previous log is kept as `.old`."""
        log = self.log(name)
        if log.exists():
            log.replace(log.with_suffix(".log.old"))
        with log.open("wb") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", WITH_OPEN_FILES, "sh", *command],
                cwd=folder or self.state,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        # No one waits for it. Without a status, Python would print a ResourceWarning when this process ends.
        child.returncode = 0
        record = Record(child.pid, start_time(child.pid) or 0.0, port, place_of(self.state.parent))
        write_atomic(self.record_path(name), canonical_json(record._asdict()))

    def stop(self, name: str, seconds: float = STOP_SECONDS, request: signal.Signals = signal.SIGTERM) -> bool:
        """Ends a service with all processes that it started, or what a killed one left. Returns False if none ran."""
        record = self.last_record(name)
        tree = process_tree(record) if record else []
        if record and tree:
            end_processes([process for process in tree if process.pid == record.pid], seconds, request)
            end_processes([*{*tree, *process_tree(record)}], ORPHAN_SECONDS)
        self.record_path(name).unlink(missing_ok=True)
        return bool(tree)

    def wait_for(self, name: str, is_healthy: Callable[[], bool], remedy: str) -> None:
        """Waits until a service is healthy, at most for ZERO_START_SECONDS.

        Raises:
          LocalError: it ended, or was not healthy in time; with the end of its log. Or ZERO_START_SECONDS is no number.
        """
        given = os.environ.get("ZERO_START_SECONDS") or str(START_SECONDS)
        try:
            seconds = float(given)
        except ValueError:
            raise LocalError(f"ZERO_START_SECONDS is {given!r}; expected a number of seconds") from None
        deadline = time.monotonic() + seconds
        while not is_healthy() or self.record(name) is None:
            if self.record(name) is None:  # another program may answer at its address
                raise LocalError(f"{title(name)} ended while it started; {log_end(self.log(name))}")
            if time.monotonic() > deadline:
                raise LocalError(
                    f"{title(name)} was not ready after {seconds:.0f} s; {remedy}, or on a busy machine set "
                    f"ZERO_START_SECONDS to more; {log_end(self.log(name))}"
                )
            time.sleep(2 * POLL_SECONDS)


def title(name: str) -> str:
    """Name of a service in a message."""
    return TITLES.get(name, name)


def log_end(path: Path) -> str:
    """The last lines of a log, for a message."""
    lines = path.read_text(errors="replace").rstrip().splitlines()[-LOG_LINES:] if path.exists() else []
    return "\n  ".join([f"the end of {path}:", *lines]) if lines else f"its log {path} is empty"


# Processes


def start_time(pid: int) -> float | None:
    """Seconds from boot to the start of a process; None if it does not exist or is a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return round(float(process.create_time() - psutil.boot_time()), 2)
    return None


def is_running(record: Record) -> bool:
    """True if the recorded process runs."""
    return start_time(record.pid) == record.started


def process_tree(record: Record) -> list[psutil.Process]:
    """The recorded process, all processes of its session, and their descendants.

    Orphans of a killed service are found too: their parent is the init process, but their session has its number.
    """
    if start_time(record.pid) not in (None, record.started):
        return []  # another process: the kernel reuses a number only after the whole session has ended
    processes = [one for one in psutil.process_iter(["ppid"]) if start_time(one.pid) is not None]
    pids = {one.pid for one in processes if record.pid in (one.pid, _session(one.pid))}
    while children := {one.pid for one in processes if one.info["ppid"] in pids} - pids:
        pids |= children
    return [one for one in processes if one.pid in pids]


def _session(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def end_processes(
    processes: Sequence[psutil.Process], seconds: float, request: signal.Signals = signal.SIGTERM
) -> None:
    """Sends processes a signal, and kills those that have not ended after that time.

    `psutil.wait_procs` is not used: a zombie that its parent never waits for, as in many containers, exists for ever.
    """
    for number, timeout in ((request, seconds), (signal.SIGKILL, float("inf"))):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)  # psutil compares the start time first
        deadline = time.monotonic() + timeout
        while processes := [one for one in processes if one.is_running() and start_time(one.pid) is not None]:
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
