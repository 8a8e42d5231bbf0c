"""One attempt at a generation: its commands one after the other, in a process group that may be killed meanwhile."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from infra.drill.moments import LINEAGE, Moment
from infra.drill.project import HOOK_DIR, Place, environment_of

POLL_SECONDS = 0.01
STEP_SECONDS = 600.0
"""Patience with one command."""
BUSY_SECONDS = 60.0
"""Patience with a stage that outlived the DVC that ran it, and is still writing."""
BUSY_WORDS = "is being written by process"
"""What a command says then."""
TRACEBACK = "(with a traceback)"
"""Said of a command that failed without a message made for people."""
PYTHON = sys.executable
STEPS = {
    "prepare": (PYTHON, "-m", "zero", "prepare", LINEAGE),
    "repro": (PYTHON, "-m", "dvc", "repro"),
    "advance": (PYTHON, "-m", "zero", "advance", LINEAGE),
    "new": (PYTHON, "-m", "zero", "new", LINEAGE),
    "restore": (PYTHON, "-m", "zero", "restore", LINEAGE),
}
GENERATION = ("prepare", "repro", "advance")


class Kill(NamedTuple):
    """A process that was killed."""

    moment: str
    process: str
    victim: str
    step: str
    """The command that it was, or was part of."""


class RandomKill(NamedTuple):
    """A kill that no name was thought of."""

    seconds: float
    """After the attempt has begun."""
    choice: random.Random


class StuckError(Exception):
    """A command that failed though nothing was killed: what a person would have to repair."""


class Attempt:
    """Commands of the lineage, run until one is killed or all are done."""

    def __init__(self, place: Place, moments: Sequence[Moment], random_kill: RandomKill | None = None) -> None:
        """Arms the moments that were not used yet, and a kill at a random time."""
        self._place = place
        self._random = random_kill
        self._begun = time.monotonic()
        self._environment = environment_of(place, PYTHONPATH=str(HOOK_DIR), ZERO_DRILL=str(place.plan))
        self.kills: list[Kill] = []
        place.used_dir.mkdir(parents=True, exist_ok=True)
        plan = {"used_dir": str(place.used_dir), "moments": [moment._asdict() for moment in moments]}
        place.plan.write_text(json.dumps(plan))
        self._moments = {moment.name: moment for moment in moments}

    def run(self, step: str) -> bool:
        """Runs a command to its end; False where it, or a process of it, was killed and it did not succeed.

        Raises:
          StuckError: it failed, and nothing was killed.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            before = len(self.kills)
            status, said = self._once(step)
            if status == 0:
                return True
            if len(self.kills) > before:
                return False
            if BUSY_WORDS not in said or time.monotonic() > deadline:
                raise StuckError(f"`{' '.join(STEPS[step][1:])}` gave {status}: {last_words(said)}")
            time.sleep(0.2)  # the stage of a DVC that was killed is still at work

    def _once(self, step: str) -> tuple[int, str]:
        used = set(os.listdir(self._place.used_dir))
        folder = self._place.workspace if step == "repro" else self._place.home
        with self._place.output.open("wb") as output:
            process = subprocess.Popen(
                STEPS[step],
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            deadline = time.monotonic() + STEP_SECONDS
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                if self._random and time.monotonic() - self._begun > self._random.seconds:
                    self._kill_at_random(process.pid, step)
                if time.monotonic() > deadline:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise StuckError(f"`{' '.join(STEPS[step][1:])}` did not end in {STEP_SECONDS:.0f} s")
        for name in sorted(set(os.listdir(self._place.used_dir)) - used):
            self.kills.append(self._named_kill(name, step))
        return process.returncode, self._place.output.read_text(errors="replace")

    def _named_kill(self, name: str, step: str) -> Kill:
        path, victim = self._place.used_dir / name, self._moments[name].victim
        try:
            process = str(json.loads(path.read_text())["process"])
        except (ValueError, KeyError):
            process = ""  # the whole group died while it was writing the note
        own, _, parent = process.partition(" < ")
        return Kill(name, parent if victim == "parent" else own, victim, step)

    def _kill_at_random(self, group: int, step: str) -> None:
        assert self._random
        choice, self._random = self._random.choice, None
        members = group_members(group)
        if not members:
            return
        seconds = time.monotonic() - self._begun
        if choice.random() < 0.5:
            victim, words = "group", members.get(group, "")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        else:
            pid = choice.choice(sorted(members))
            victim, words = "self", members[pid]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(f"at random, after {seconds:.1f} s", words, victim, step))


def group_members(group: int) -> dict[int, str]:
    """Command lines of the live processes of a group, from after the program's name."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and int(fields[2]) == group:
                words = os.fsdecode(Path(f"/proc/{name}/cmdline").read_bytes()).split("\0")[:-1]
                found[int(name)] = " ".join(words[1:] if "python" in words[0] else words)
        except (OSError, IndexError):
            continue
    return found


def last_words(said: str) -> str:
    """The line of an output that says why."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith(("zero:", "error", "fatal"))]
    words = " | ".join(told[-3:]) or (lines[-1] if lines else "it said nothing")
    return f"{TRACEBACK} {words}" if any(line.startswith("Traceback") for line in lines) else words
