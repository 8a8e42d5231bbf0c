"""Runs a program that ends when its owner does: `python leash.py DESCRIPTOR COMMAND...`, started by `gtp_process`.

An engine that hangs does not see that its standard input has ended. So the owner alone holds the other end of a pipe,
DESCRIPTOR; once that is closed, by the owner or by its death, however violent, the engine and all it has started are
killed. Imports nothing of `zero` and little else, so that it starts in milliseconds.
"""

import contextlib
import os
import select
import signal
import sys

CANNOT_START = 127
"""Exit status, as a shell has it."""
SIGNALLED = 128
"""Added to the signal that ended the program, as a shell does."""
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
OWN_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD, *ENDING_SIGNALS)
"""Signals that mean something else here, or to Python, than to the program."""


def main(lifeline: int, command: list[str]) -> int:
    """Runs the command to its end, or until the lifeline ends; its exit status."""
    os.set_inheritable(lifeline, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, *ENDING_SIGNALS):
        signal.signal(number, lambda *_: None)  # seen on the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigdef=OWN_SIGNALS)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
        return CANNOT_START
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)  # so that the owner sees the end of the program's output
    both = select.poll()  # the owner may have more files open than `select` can count
    both.register(lifeline, select.POLLIN | select.POLLHUP)
    both.register(woken, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in both.poll()]
        told = os.read(woken, 4096) if woken in ready else b""
        if lifeline in ready or any(number in told for number in ENDING_SIGNALS):
            _kill_group(child)
            os.waitpid(child, 0)
            return SIGNALLED + signal.SIGKILL
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _kill_group(child)  # what it left behind
            code = os.waitstatus_to_exitcode(status)
            return SIGNALLED - code if code < 0 else code


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
