"""Ends a process at a named moment: Python imports this file at its start where its folder is on PYTHONPATH.

The product has no hooks for the drill. Python itself tells of each file that is opened, renamed or removed and of each
program that is started, before it happens; where such an event is one of the moments in the file that ZERO_DRILL
names, the process, its parent or its whole process group gets SIGKILL. A moment is used once: it leaves a file in the
folder of those that were, with who died. Standard library only, and little of it: every process of the drill pays.
"""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "ZERO_DRILL"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SPIN_SECONDS = 10.0
"""Patience with a file that is to appear."""
ONE_TARGET = {"os.remove": "remove", "shutil.rmtree": "remove", "os.mkdir": "mkdir", "import": "import"}
TWO_TARGETS = {"os.rename": "rename", "os.link": "link"}


def event_of(name: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """Kind and target of an audit event; None for one that no moment is about."""
    if name == "open":
        path, mode, flags = arguments[:3]
        if not isinstance(path, str | bytes):
            return None
        writes = bool(flags & WRITING) if isinstance(flags, int) else any(letter in "wax+" for letter in mode or "")
        return "write" if writes else "read", os.fsdecode(path)
    if name == "subprocess.Popen":
        return "run", " ".join(map(str, arguments[1])) if isinstance(arguments[1], list | tuple) else str(arguments[1])
    if name in TWO_TARGETS:
        return TWO_TARGETS[name], os.fsdecode(arguments[1])
    if name in ONE_TARGET and isinstance(arguments[0], str | bytes):
        return ONE_TARGET[name], os.fsdecode(arguments[0])
    return None


class Watch:
    """The moments of this process, and what has happened in it so far."""

    def __init__(self, plan: dict[str, Any], words: str) -> None:
        self.words = words
        self.used_dir = str(plan["used_dir"])
        self.moments = [moment for moment in plan["moments"] if re.search(moment["process"], words)]
        self.seen: dict[str, int] = {}
        self.last_run = ""
        self.due: tuple[dict[str, Any], str] | None = None
        self.busy = False

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if self.busy:
            return
        if self.due is not None:
            self.strike(*self.due)
        event = event_of(name, arguments)
        if event is None:
            return
        kind, target = event
        for moment in self.moments:
            if moment["event"] == kind and self.is_at(moment, target):
                self.busy = True
                self.begin(moment, target)
                self.busy = False
                break
        if kind == "run":
            self.last_run = target

    def is_at(self, moment: dict[str, Any], target: str) -> bool:
        """True where this event is the one that the moment names."""
        if not re.search(moment["target"], target) or not re.search(moment["last_run"], self.last_run):
            return False
        self.seen[moment["name"]] = self.seen.get(moment["name"], 0) + 1
        return bool(self.seen[moment["name"]] == moment["nth"]) and not os.path.exists(self.used(moment))

    def begin(self, moment: dict[str, Any], target: str) -> None:
        """Strikes now, at the next event, after a time, or when a file appears."""
        when = moment["when"]
        if when == "before":
            self.strike(moment, target)
        elif when == "after":
            self.due = (moment, target)
        elif when == "appears":
            self.in_thread(lambda: self.strike_when_it_appears(moment, target))
        else:
            self.in_thread(lambda: self.strike_later(moment, target, float(when)))

    def in_thread(self, act: Callable[[], object]) -> None:
        """Does something beside the process's own work."""
        import threading

        threading.Thread(target=act, daemon=True).start()

    def strike_later(self, moment: dict[str, Any], target: str, seconds: float) -> None:
        """Strikes after a time, wherever the process is by then."""
        time.sleep(seconds)
        self.strike(moment, target)

    def strike_when_it_appears(self, moment: dict[str, Any], target: str) -> None:
        """Strikes as soon as a file is there; it may be a short-lived one."""
        deadline = time.monotonic() + SPIN_SECONDS
        while not os.path.exists(moment["appears"]):
            if time.monotonic() > deadline:
                return
        self.strike(moment, target)

    def strike(self, moment: dict[str, Any], target: str) -> None:
        """Kills, if no other process was quicker."""
        self.busy, self.due = True, None
        note = json.dumps({"process": self.words, "event": moment["event"], "target": target})
        try:
            handle = os.open(self.used(moment), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except OSError:
            self.busy = False
            return
        os.write(handle, note.encode())
        os.close(handle)
        if moment["victim"] == "group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getppid() if moment["victim"] == "parent" else os.getpid(), signal.SIGKILL)
        self.busy = False

    def used(self, moment: dict[str, Any]) -> str:
        """The file that says that a moment was used."""
        return os.path.join(self.used_dir, moment["name"])


def words_of(pid: int) -> str:
    """Command line of a process, from after the interpreter."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(os.fsdecode(file.read()).split("\0")[1:-1])
    except OSError:
        return ""


def install(path: str) -> None:
    """Watches this process for the moments of a plan."""
    try:
        with open(path) as file:
            plan = json.load(file)
    except (OSError, ValueError):
        return
    watch = Watch(plan, f"{' '.join(sys.orig_argv[1:])} < {words_of(os.getppid())}")
    if watch.moments:
        sys.addaudithook(watch)


if os.environ.get(VARIABLE):
    install(os.environ[VARIABLE])
