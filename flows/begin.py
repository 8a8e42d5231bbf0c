"""What a worker starts for a run, `python -m flows.begin`: Prefect's engine, as a fork of what the worker has imported.

A worker of type `zero` has a leash (flows/leash.py) with all that a run imports, so its runs begin in a fraction of the
time. Where there is none, or it is gone, the engine is imported here, as by Prefect's own worker.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

LEASH_VARIABLE = "ZERO_LEASH"
"""Address of the worker's leash, for what it starts."""
ENGINE = "engine"
"""The word by which what the leash has made asks for the engine here."""


def ask(
    address: str, folder: Path, words: Sequence[str], environment: Mapping[str, str], files: tuple[int, int]
) -> socket.socket:
    """Asks a leash to run a module with words in a folder, writing to these files; the connection holds it.

    Raises:
      OSError: it is gone.
    """
    asked = {"module": words[0], "words": words[1:], "env": dict(environment), "folder": str(folder)}
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(address)
        socket.send_fds(line, [b"?"], files)
        line.sendall(json.dumps(asked).encode() + b"\n")
    except BaseException:
        line.close()
        raise
    return line


def answer_of(line: socket.socket) -> int | None:
    """Exit status of what was asked for, once it has ended; None where it was killed and nobody knows."""
    with contextlib.suppress(ConnectionResetError):
        if answer := line.recv(16):
            return int(answer)
    return None


def main() -> None:
    """Runs what the environment says, to its end, and has its exit status; signals are passed on."""
    try:
        line = ask(os.environ[LEASH_VARIABLE], Path.cwd(), ["flows.begin", ENGINE], os.environ, (1, 2))
    except (KeyError, OSError):
        os.execv(sys.executable, [sys.executable, "-m", "prefect.engine"])

    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            line.send(bytes([number]))

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    status = answer_of(line)
    number = signal.SIGKILL if status is None else status - 128
    if number in signal.valid_signals():
        with contextlib.suppress(OSError):  # that one has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(status)


def engine() -> None:
    """Prefect's engine, with the settings of this process and not of that which imported it."""
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()
    sys.argv = sys.argv[:1]  # a word would be the number of the run
    sys.modules.pop("prefect.engine", None)
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    engine() if sys.argv[1:] == [ENGINE] else main()
