"""Process supervisor: runs a program that ends when its parent does (`python processes.py DESCRIPTOR COMMAND...`).

A hanging program does not notice that its standard input has ended. Therefore the parent alone holds the write end of a
pipe, and DESCRIPTOR is its read end. When the parent closes its end, or dies in any way, the supervisor kills the
program and all processes of its group. The file is run as a script: it imports nothing of `zero`, so that it starts in
milliseconds.
"""

import contextlib
import os
import select
import signal
import sys

CANNOT_START = 127
"""Exit status if the program cannot be started, as in a shell."""
SIGNALLED = 128
"""Added to the number of the signal that ended the program, as in a shell."""
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
OWN_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD, *ENDING_SIGNALS)
"""Signals that the supervisor or Python handles. The program gets their default handlers."""


def supervised(connection: int, command: list[str]) -> list[str]:
    """Command line that runs a program under a supervisor.

    Args:
      connection: read end of a pipe. The child must inherit it; the parent keeps the write end open.
      command: the program and its arguments.
    """
    # -I and -S skip the user's environment and `site`, which would take longer than the rest of the start
    return [sys.executable, "-I", "-S", __file__, str(connection), *command]


def main(connection: int, command: list[str]) -> int:
    """Runs the command until it ends or the connection closes; returns its exit status."""
    os.set_inheritable(connection, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, *ENDING_SIGNALS):
        signal.signal(number, lambda *_: None)  # the wake-up pipe reports it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the connection
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigdef=OWN_SIGNALS)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
        return CANNOT_START
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)  # an open copy here would hide the end of the program's output from the parent
    both = select.poll()  # `select` fails for descriptors above 1,023
    both.register(connection, select.POLLIN | select.POLLHUP)
    both.register(woken, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in both.poll()]
        signals = os.read(woken, 4096) if woken in ready else b""
        if connection in ready or any(number in signals for number in ENDING_SIGNALS):
            _kill_group(child)
            os.waitpid(child, 0)
            return SIGNALLED + signal.SIGKILL
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _kill_group(child)  # processes that the program left behind
            code = os.waitstatus_to_exitcode(status)
            return SIGNALLED - code if code < 0 else code


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
