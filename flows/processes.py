"""Commands of `zero` and DVC as children of a flow: in the workspace, by its code, and gone when the flow is."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zero.commands import environment
from zero.errors import LineageError, WorkerError

LEASH = Path(__file__).with_name("leash.py")
NUM_TAIL_LINES = 30
SIGNALLED = range(129, 193)
"""Exit statuses of a command that was ended by a signal, as the leash gives them; DVC itself ends with 255."""
KILLED = re.compile(r"exited with -\d+$")
"""What DVC says of a stage that was ended by a signal."""
ADVICE = (
    "To track",
    "    git add",
    "To enable auto",
    "    dvc config",
    "    dvc push",
    "Use `dvc push`",
    "Generating lock",
    "Updating lock",
)
"""What DVC says that the registry does, or that says nothing."""

Listener = Callable[[str], None]


def run_zero(workspace: Path, *words: str, listen: Listener) -> list[dict[str, Any]]:
    """Runs a command of `zero` with the workspace's code; the JSON objects it prints, one a line.

    Raises:
      LineageError: it failed; with its message.
      WorkerError: it was killed; worth another try.
    """
    objects: list[dict[str, Any]] = []

    def sort(line: str) -> None:
        if line.startswith("{"):
            objects.append(json.loads(line))
        else:
            listen(line)

    _run(workspace, "zero " + " ".join(words), [sys.executable, "-m", "zero", *words], sort)
    return objects


def run_dvc_stage(
    workspace: Path, stage: str, listen: Listener, progress: Callable[[int, int], None], alone: bool = True
) -> None:
    """Brings one stage of the workspace's graph up to date; not `alone`: with the stages before it.

    Raises:
      LineageError: the stage failed; with its message.
      WorkerError: its process was killed; worth another try.
    """

    def sort(line: str) -> None:
        if line.startswith("{"):
            event = json.loads(line)
            progress(event["done"], event["total"])
        elif not line.expandtabs(4).startswith(ADVICE):
            listen(line)

    words = ["repro", *(["--single-item"] if alone else []), stage]
    _run(workspace, f"stage {stage}", [sys.executable, "-m", "dvc", *words], sort)


@contextlib.contextmanager
def settings_of_children(**variables: str) -> Iterator[None]:
    """Sets environment variables for the processes started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(folder: Path, name: str, command: Sequence[str], on_line: Listener) -> None:
    tail: list[str] = []
    with subprocess.Popen(
        [sys.executable, str(LEASH), str(os.getpid()), *command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                text = line.rstrip()
                if text:
                    tail = [*tail, text][-NUM_TAIL_LINES:]
                    on_line(text)
        except BaseException:
            process.terminate()
            raise
    killed = process.returncode < 0 or process.returncode in SIGNALLED  # the leash itself, or what it held
    if killed or (process.returncode and any(KILLED.search(line) for line in tail)):
        raise WorkerError(f"{name} was killed; {_last_words(tail)}")
    if process.returncode:
        raise LineageError(f"{name} failed: {_last_words(tail)}")


def _last_words(tail: Sequence[str]) -> str:
    ours = [line.removeprefix("zero: ") for line in tail if line.startswith("zero: ")]
    errors = [line for line in tail if line.lower().startswith(("error", "fatal"))]
    return "\n".join(ours[-1:] or errors or tail) or "it said nothing"
