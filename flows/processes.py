"""Commands of `zero` and DVC as children of a flow: in the workspace, by its code, and gone when the flow is."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from flows.begin import answer_of, ask
from zero.errors import LineageError, WorkerError
from zero.storage.vcs import environment

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

    _run(workspace, "zero " + " ".join(words), "zero", words, sort)
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
    _run(workspace, f"stage {stage}", "dvc", words, sort)


class Leash:
    """Runs modules in a folder, each with the environment of that moment, and all gone when this process is.

    A context manager, for any number of threads, which end what they run before it is left.
    """

    def __init__(self, folder: Path, modules: Sequence[str] = ()) -> None:
        """Starts it; `modules` are imported meanwhile, once for all commands."""
        self._folder, self._modules = folder, modules if sys.platform == "linux" else ()  # macOS forbids it libraries
        self._lock = Lock()
        self._start()

    def _start(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="zero-leash-", ignore_cleanup_errors=True)
        self.address = str(Path(self._place.name) / "asks")
        self._owner, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as service:
            service.bind(self.address)
            service.listen()
            self._process = subprocess.Popen(
                [sys.executable, str(LEASH), str(theirs.fileno()), str(service.fileno()), *self._modules],
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), service.fileno()],
                start_new_session=True,
            )

    def __enter__(self) -> "Leash":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is run any more."""
        self._owner.close()
        self._process.kill()  # it has no state, and may be in the middle of an import
        self._process.wait()
        self._place.cleanup()

    def run(self, module: str, words: Sequence[str], on_line: Listener) -> int | None:
        """Exit status of `python -m module words`, or 128 and the signal that ended it; None where that is not known.

        `on_line` is given what it writes; what that raises ends the command.
        """
        reading, writing = os.pipe()
        with open(reading, encoding="utf-8", errors="replace") as output:
            with open(writing, "wb"):
                line = self._ask([module, *words], writing)
            with line:
                try:
                    for text in output:
                        on_line(text)
                except BaseException:
                    with contextlib.suppress(OSError):
                        line.shutdown(socket.SHUT_WR)
                        answer_of(line)  # it has ended
                    raise
                return answer_of(line)

    def _ask(self, words: Sequence[str], output: int) -> socket.socket:
        with self._lock:
            try:
                return ask(self.address, self._folder, words, environment(), (output, output))
            except OSError:  # somebody killed it
                self.close()
                self._start()
            return ask(self.address, self._folder, words, environment(), (output, output))


_leashes: dict[Path, Leash] = {}


@contextlib.contextmanager
def one_leash(folder: Path, *modules: str) -> Iterator[None]:
    """Commands that are run in this folder meanwhile share what is imported for them; never twice at once a folder."""
    with Leash(folder, modules) as leash:
        _leashes[folder] = leash
        try:
            yield
        finally:
            del _leashes[folder]


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


def _run(folder: Path, name: str, module: str, words: Sequence[str], on_line: Listener) -> None:
    tail: list[str] = []

    def hear(line: str) -> None:
        text = line.rstrip()
        if text:
            tail[:] = [*tail, text][-NUM_TAIL_LINES:]
            on_line(text)

    leash = _leashes.get(folder)
    with contextlib.nullcontext(leash) if leash else Leash(folder) as held:
        status = held.run(module, words, hear)
    if status is None or status in SIGNALLED or (status and any(KILLED.search(line) for line in tail)):
        raise WorkerError(f"{name} was killed; {_last_words(tail)}")
    if status:
        raise LineageError(f"{name} failed: {_last_words(tail)}")


def _last_words(tail: Sequence[str]) -> str:
    ours = [line.removeprefix("zero: ") for line in tail if line.startswith("zero: ")]
    errors = [line for line in tail if line.lower().startswith(("error", "fatal"))]
    return "\n".join(ours[-1:] or errors or tail) or "it said nothing"
