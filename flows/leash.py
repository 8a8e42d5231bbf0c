"""Runs a command so that all of it ends when its parent does: `python leash.py PARENT COMMAND...`.

A flow may be cancelled, terminated or killed outright while DVC runs a stage that runs the processes that play. The
leash gives the command a process group, watches its own parent, whose number it is told, for it may be gone before
anybody could ask for it, and ends the whole group when the parent is gone or when it is itself told to end. Its exit
status is the command's.
"""

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType

WATCH_SECONDS = 0.5
GRACE_SECONDS = 10.0


def main(parent: int, command: list[str]) -> int:
    """Runs the command to its end, or to the end of the parent."""

    def told(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    child = subprocess.Popen(command, start_new_session=True)
    try:
        while os.getppid() == parent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.wait(WATCH_SECONDS)
                return 128 - status if status < 0 else status
        return 128 + signal.SIGHUP
    finally:
        _end_group(child)


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
