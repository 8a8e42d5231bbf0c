"""Commands of `zero` and DVC as children of a flow or a worker: run in a checkout, by its code.

Each command runs under the process supervisor of `zero/processes.py`. It ends, with all processes it started, when this
process ends in any way or when an exception (Ctrl-C, a cancelled run) leaves the call.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from zero.errors import LineageError, WorkerError
from zero.processes import SIGNALLED, supervised
from zero.storage.vcs import environment

NUM_TAIL_LINES = 30
KILLED = re.compile(r"exited with -\d+$|was killed by signal \d+")
"""DVC's message about a stage that was ended by a signal, DVC itself then exits with 255; and ours about a process that
the stage had started."""
NOISE = (
    "To track",
    "    git add",
    "To enable auto",
    "    dvc config",
    "    dvc push",
    "Use `dvc push`",
    "Generating lock",
    "Updating lock",
)
"""Lines of DVC that advise what the registry does, or that report nothing."""

Listener = Callable[[str], None]
Event = dict[str, Any]


def run_zero(
    folder: Path,
    *arguments: str,
    listen: Listener,
    on_object: Callable[[Event], None] | None = None,
    text: str = "",
    env: Mapping[str, str] | None = None,
) -> list[Event]:
    """Runs a command of `zero` with the code in `folder`; returns the JSON objects that it prints, one per line.

    Args:
      folder: the checkout, and the current folder of the command.
      arguments: of the command.
      listen: called with each other line.
      on_object: called with each object when it is printed.
      text: standard input.
      env: environment variables in addition to those of this process.

    Raises:
      LineageError: the command failed; with its message.
      WorkerError: the command was killed; another try may succeed.
    """
    objects: list[Event] = []

    def sort(line: str) -> None:
        found = _event(line)
        if found is None:
            listen(line)
            return
        objects.append(found)
        if on_object:
            on_object(found)

    _run(folder, " ".join(["zero", *arguments]), ["zero", *arguments], sort, text, env or {})
    return objects


def run_dvc_stage(
    workspace: Path,
    stage: str,
    listen: Listener,
    progress: Callable[[str, int, int], None],
    with_earlier: bool = False,
    env: Mapping[str, str] | None = None,
) -> None:
    """Brings one stage of the workspace's graph up to date; `with_earlier`: and the stages before it.

    Args:
      workspace: the workspace.
      stage: name of the stage.
      listen: called with each line of the output that reports something.
      progress: called with the name of the stage that runs, what is done, and the total.
      with_earlier: run the earlier stages too, if they are not up to date.
      env: environment variables in addition to those of this process.

    Raises:
      LineageError: the stage failed; with its message.
      WorkerError: a process of the stage was killed; another try may succeed.
    """

    def sort(line: str) -> None:
        event = _event(line)
        if event is not None and {"stage", "done", "total"} <= event.keys():
            progress(event["stage"], event["done"], event["total"])
        elif not line.expandtabs(4).startswith(NOISE):
            listen(line)

    arguments = ["repro", *([] if with_earlier else ["--single-item"]), stage]
    _run(workspace, f"stage {stage}", ["dvc", *arguments], sort, "", {"ZERO_PROGRESS": "json", **(env or {})})


def _event(line: str) -> Event | None:
    """The JSON object of a line; None if it is another line, such as one of a library."""
    try:
        return cast(Event, json.loads(line)) if line.startswith("{") else None
    except ValueError:
        return None


def _run(folder: Path, name: str, module: Sequence[str], on_line: Listener, text: str, env: Mapping[str, str]) -> None:
    """Runs `python -m module...` to its end and passes its output on, line by line."""
    tail: list[str] = []
    with _child(folder, [sys.executable, "-m", *module], text, env) as child:
        assert child.stdout
        for line in child.stdout:
            if line := line.rstrip():
                tail = [*tail, line][-NUM_TAIL_LINES:]
                on_line(line)
        status = child.wait()
    # The supervisor adds 128 to the number of a signal, as a shell does; 255 is DVC's own status for an error.
    if status < 0 or (status > SIGNALLED and status != 255) or (status and any(KILLED.search(line) for line in tail)):
        raise WorkerError(f"{name} was killed; {_log_tail(tail)}")
    if status:
        raise LineageError(f"{name} failed: {_log_tail(tail)}")


@contextmanager
def _child(folder: Path, command: list[str], text: str, env: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A supervised child; leaving the context ends it and all that it started."""
    with tempfile.TemporaryFile("w+") as standard_input:  # a file: no thread must feed a pipe
        standard_input.write(text)
        standard_input.seek(0)
        theirs, ours = os.pipe()
        try:
            child = subprocess.Popen(
                supervised(theirs, command),
                cwd=folder,
                env={**environment(), **env},
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=(theirs,),
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        try:
            yield child
        finally:
            os.close(ours)  # the supervisor then ends the command, if it has not ended
            child.wait()
            assert child.stdout
            child.stdout.close()


def _log_tail(tail: Sequence[str]) -> str:
    """The lines of the output that explain a failure."""
    ours = [line.removeprefix("zero: ") for line in tail if line.startswith("zero: ")]
    errors = [line for line in tail if line.lower().startswith(("error", "fatal"))]
    return "\n".join(ours[-1:] or errors or tail) or "(no output)"
