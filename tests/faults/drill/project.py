"""The project that the drill interrupts: a copy of these sources, at one path, with equal dates, identity and key.

Then two runs give equal commit ids, so that the digest of a tag is the digest of the complete record.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Self

import psutil
import yaml

from tests.end_to_end.project import environment_of, make_project
from zero.config.params import preset_text

LINEAGE = "tiny"
HOOK_DIR = Path(__file__).parent / "hook"
STEP_SECONDS = 600.0
"""Time limit of one command."""
IDLE_SECONDS = 60.0
DISK_MEGABYTES = 256
IDENTITY = {"NAME": "drill", "EMAIL": "drill@localhost", "DATE": "2026-01-01T00:00:00+0000"}


class Fault(NamedTuple):
    """One fault, injected at the n-th event that matches a pattern."""

    nth: int = 0
    """1 for the first event; 0 for no fault."""
    kind: str = "kill"
    """`kill` (SIGKILL), `term` (SIGTERM) or `disk` (the disk is full)."""
    victim: str = "group"
    """`self` (the process of the event), its `parent`, or the process `group` of the command."""
    delay_seconds: float = 0.0
    pattern: str = ""
    """Regular expression; for example `^rename .*parquet` or `^start git tag`."""


class Project:
    """The folders of a drill, and the fault that is armed. A context manager, whose exit removes the folders."""

    def __init__(self, root: Path, shard_fraction: float = 0.25) -> None:
        """Makes the project without a lineage.

        Args:
          root: a folder that does not exist.
          shard_fraction: share of the shards that verification plays again.
        """
        self.root = root
        self.disk = root / "disk"
        """A small disk in memory, if this user may mount one; else a plain folder."""
        self.home = self.disk / "project"
        self.workspace = self.home / ".zero/workspaces" / LINEAGE
        self.ballast = self.disk / "ballast"
        """File that fills the disk."""
        self.disk.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "zero-drill", str(self.disk)]
        subprocess.run(mount, capture_output=True, check=False)
        make_project(self.home)
        params = yaml.safe_load(preset_text("smoke"))
        params["profile"] = {"backend": "openvino"}  # without torch, a process that plays starts twice as fast
        params["verification"]["shard_fraction"] = shard_fraction
        params["gating"]["threshold"] = 0.0  # each challenger is promoted: a wrong training changes the next generation
        (root / "params.yaml").write_text(yaml.safe_dump(params))
        (root / "scratch").mkdir()
        self._num_armed = 0
        self.arm(Fault())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            process.kill()
        if os.path.ismount(self.disk):
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def arm(self, fault: Fault) -> None:
        """Sets the fault of the next commands."""
        if fault.kind == "disk" and not os.path.ismount(self.disk):
            fault = fault._replace(kind="kill")  # the disk is the machine's
        self.fault = fault
        self._num_armed += 1  # processes that outlive their command keep their own counter
        self._counter = self.root / f"events-{self._num_armed}"
        self._counter.touch()
        paths = {"counter": self._counter, "ballast": self.ballast, "project": self.home}
        self._plan = json.dumps(fault._asdict() | {name: str(path) for name, path in paths.items()})

    def num_events(self) -> int:
        """Number of events since `arm`."""
        return self._counter.stat().st_size

    def injected(self) -> str:
        """Where the fault was injected since `arm`; empty if it was not."""
        note = Path(f"{self._counter}.note")
        return note.read_text() if note.exists() else ""

    def run(self, *words: str) -> tuple[int, str]:
        """Runs `python -m WORDS` in a process group of its own; returns its exit status and its output."""
        identity = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in IDENTITY.items()}
        environment = environment_of(
            **identity,
            ZERO_HOME=str(self.home),
            ZERO_DRILL=self._plan,
            PYTHONPATH=str(HOOK_DIR),
            TMPDIR=str(self.root / "scratch"),
            DVC_SITE_CACHE_DIR=str(self.root / "dvc-site"),
            COLUMNS="200",
        )
        folder = self.workspace if words[0] == "dvc" else self.home
        # A pipe would stay open in processes that live longer. They keep the file of their command, which is unlinked.
        with tempfile.TemporaryFile("w+", dir=self.root) as output:
            done = subprocess.run(
                [sys.executable, "-m", *words],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=STEP_SECONDS,
                check=False,
            )
            output.seek(0)
            return done.returncode, output.read()

    def processes(self) -> list[psutil.Process]:
        """Live processes of the commands, without those that this process cannot read."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("ZERO_HOME") == str(self.home) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def keep(self, name: str) -> None:
        """Copies the project to `root/name`."""
        _copy(self.home, self.root / name)

    def put_back(self, name: str) -> None:
        """Replaces the project by a copy."""
        shutil.rmtree(self.root / "dvc-site", ignore_errors=True)  # DVC's index of the files at this path
        _copy(self.root / name, self.home)

    def wait_until_idle(self) -> None:
        """Waits for processes that outlive the command that started them."""
        deadline = time.monotonic() + IDLE_SECONDS
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "--archive", str(source), str(target)], check=True)
