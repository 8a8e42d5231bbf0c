"""Processes that outlive the command that started them: begun in a session of their own, known again, ended whole.

A process is known by its number and its start time, so that a number the kernel has given to somebody else is never
signalled. Linux only (it reads /proc); standard library only.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

POLL_SECONDS = 0.1
REST_SECONDS = 10.0
"""Patience with the polite end of processes whose leader is gone."""
OPEN_FILES = 65_536
"""What a service may open where the hard limit allows it, as in infra/compose: some hundred workers need over 1,024."""


_children: list["subprocess.Popen[bytes]"] = []
"""Kept, because a child that is forgotten while it runs is a warning; they live on when this process ends."""


class Process(NamedTuple):
    """A live process of this machine."""

    pid: int
    started: str
    """Start time in clock ticks since a named boot."""
    parent: int
    session: int


class Record(NamedTuple):
    """A service that was started here, as its file tells."""

    pid: int
    started: str
    port: int


def boot_id() -> str:
    """Name of this boot: start times count from it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_process(pid: int) -> Process | None:
    """The process of that number; None where there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, parent, session, ticks = fields[0], int(fields[1]), int(fields[3]), fields[19]
    return None if state in "ZX" else Process(pid, f"{boot_id()}:{ticks}", parent, session)


def lives(process: Process | Record) -> bool:
    """True where that very process runs."""
    found = read_process(process.pid)
    return found is not None and found.started == process.started


def process_tree(record: Record) -> list[Process]:
    """The recorded process, its session, and their descendants; the orphans of a dead leader are in its session."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    table = [process for process in found if process is not None]
    leader = next((process for process in table if process.pid == record.pid), None)
    if leader is not None and leader.started != record.started:
        return []  # the number is somebody else's: the kernel gives it away only after the last of our session
    ours = {process.pid for process in table if record.pid in (process.pid, process.session)}
    while more := {process.pid for process in table if process.parent in ours} - ours:
        ours |= more
    return [process for process in table if process.pid in ours]


def end_processes(processes: Iterable[Process], seconds: float, request: signal.Signals = signal.SIGTERM) -> None:
    """Asks processes to end, by that signal, and forces those that have not after that time."""
    left = [process for process in processes if lives(process)]
    for process in left:
        _send(process, request)
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        left = [process for process in left if lives(process)]
    for process in left:
        _send(process, signal.SIGKILL)
    while any(lives(process) for process in left):
        time.sleep(POLL_SECONDS)


def _send(process: Process, number: signal.Signals) -> None:
    if lives(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def end_service(record: Record, seconds: float, request: signal.Signals = signal.SIGTERM) -> bool:
    """Ends a service and every process it started, its leader first. Returns False where none of them ran."""
    tree = process_tree(record)
    end_processes([process for process in tree if process.pid == record.pid], seconds, request)
    end_processes({*tree, *process_tree(record)}, REST_SECONDS)
    return bool(tree)


def start_service(command: list[str], env: dict[str, str], folder: Path, log: Path, port: int) -> Record:
    """Starts a service in a session of its own that writes to `log`; the log before is kept as `.old`."""
    if log.exists():
        log.replace(log.with_suffix(".log.old"))
    with log.open("wb") as output, _many_open_files():
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children.append(child)
    process = read_process(child.pid)
    return Record(child.pid, process.started if process else "", port)


@contextlib.contextmanager
def _many_open_files() -> Iterator[None]:
    """Lets the processes that are started meanwhile open many files, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_record(path: Path) -> Record | None:
    """Record in a file; None where there is none, or no whole one."""
    try:
        tree = json.loads(path.read_text())
        return Record(int(tree["pid"]), str(tree["started"]), int(tree["port"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_json(path: Path, tree: dict[str, Any]) -> None:
    """Writes a JSON file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(tree, sort_keys=True, indent=1) + "\n")
    temporary.replace(path)
