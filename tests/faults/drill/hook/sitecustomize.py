"""Injects one fault at the n-th audit event of a command. Python imports this file if its folder is on PYTHONPATH.

Python reports each file that it opens, renames or removes and each program that it starts, before it does so. The
processes of a command count those events that change the project. The first process that sees the n-th event, or a
later one, injects the fault of the environment variable ZERO_DRILL. Standard library only.
"""

import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

VARIABLE = "ZERO_DRILL"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename": 1, "os.link": 1, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0, "os.truncate": 0}
"""Audit event -> position of the changed path in its arguments."""


class Injector:
    """The audit hook of one process."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.counter = os.open(plan["counter"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.note = plan["counter"] + ".note"
        self.is_due = self.is_busy = False

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Counts an event; injects the fault if it is due."""
        if self.is_busy or self.is_due:
            return
        self.is_busy = True
        event = self.describe(name, arguments)
        if event and re.search(self.plan["pattern"], event):
            os.write(self.counter, b".")  # appends: the new offset is the number of events of all processes
            number = os.lseek(self.counter, 0, os.SEEK_CUR)
            if 0 < self.plan["nth"] <= number:
                self.is_due = True
                if self.plan["delay_seconds"]:
                    threading.Thread(target=self.inject, args=(event, number), daemon=True).start()
                else:
                    self.inject(event, number)
        self.is_busy = False

    def describe(self, name: str, arguments: tuple[Any, ...]) -> str:
        """What an event does, as text; empty if it changes nothing in the project."""
        if name == "subprocess.Popen":
            words = arguments[1] if isinstance(arguments[1], list | tuple) else [arguments[1]]
            return f"start {' '.join(map(os.fsdecode, words))}"
        if name == "open":
            path, mode, flags = arguments
            writes = flags & WRITING if isinstance(flags, int) else set("wax+") & set(mode or "")
            path = path if writes else None
        else:
            path = arguments[CHANGES[name]] if name in CHANGES else None
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        full = os.path.abspath(os.fsdecode(path))
        in_project = full.startswith(self.plan["project"]) and "__pycache__" not in full
        return f"{name.removeprefix('os.')} {os.path.relpath(full, self.plan['project'])}" if in_project else ""

    def inject(self, event: str, number: int) -> None:
        """Injects the fault, if no other process was faster."""
        time.sleep(self.plan["delay_seconds"])
        self.is_busy = True
        try:
            with open(self.note, "x") as file:
                file.write(f"event {number}, {' '.join(sys.orig_argv[1:4])}: {event}")
        except FileExistsError:
            return
        if self.plan["kind"] == "disk":
            self.fill_disk()
            self.is_busy = False
            return
        number_of_signal = signal.SIGTERM if self.plan["kind"] == "term" else signal.SIGKILL
        parent_is_victim = self.plan["victim"] == "parent" and os.getpgid(os.getppid()) == os.getpgrp()
        if self.plan["victim"] == "group":
            os.killpg(os.getpgrp(), number_of_signal)
        else:
            os.kill(os.getppid() if parent_is_victim else os.getpid(), number_of_signal)

    def fill_disk(self) -> None:
        """Takes all free space of the project's disk."""
        free = os.statvfs(self.plan["project"])
        with open(self.plan["ballast"], "wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)


if os.environ.get(VARIABLE):
    found = json.loads(os.environ[VARIABLE])
    if not Path(found["counter"] + ".note").exists():
        sys.addaudithook(Injector(found))
