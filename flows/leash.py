"""Runs Python modules as commands that end when their parent does: `python leash.py SOCKET [MODULE...]`.

A flow may be cancelled, terminated or killed outright while DVC runs a stage that runs the processes that play. So each
command has a process group, and a process beside it that ends the whole group when the connection to the flow is gone,
however that came about. What all commands need, the modules named, is imported once: each is a fork of that, with
nothing left to import; or a Python of its own, where a source has changed since or an import failed.

A command is asked for with one byte on the socket, and with it two files: what the command writes goes to the first;
the second is a connection over which it is told what to do, as a line of JSON, and answers with its exit status.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time

GRACE_SECONDS = 10.0
POLL_SECONDS = 0.1
"""Between two looks at a command on systems that do not tell of its end."""


class Ask:
    """A command asked for: the module, its words, and its environment."""

    def __init__(self, line: str, output: int, is_warm: bool) -> None:
        """Reads what is asked; `is_warm`: what is imported is what the sources say."""
        asked = json.loads(line)
        self.module, self.words, self.environment = str(asked["module"]), list(asked["words"]), dict(asked["env"])
        self._output, self._is_warm = output, is_warm

    def become(self) -> None:
        """Does it in this process, by a new interpreter or the imported modules."""
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        if not self._is_warm:
            os.execve(sys.executable, [sys.executable, "-m", self.module, *self.words], self.environment)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = [self.module, *self.words]
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def main(asks: socket.socket, modules: list[str]) -> None:
    """Serves until the other end of the socket is closed; in a fork, does what was asked."""
    sys.path[0] = os.getcwd()  # as `python -m` has it; it was the folder of this file
    is_whole = imports(modules)
    sources = changes()
    gc.freeze()  # a fork shares what it does not touch
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        byte, files, _, _ = socket.recv_fds(asks, 1, 2)
        if not byte:
            return
        is_warm = is_whole and sources == changes()
        if os.fork() == 0:
            asks.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if wanted := hold(files[0], socket.socket(fileno=files[1]), is_warm):
                wanted.become()
            return
        for file in files:
            os.close(file)


def imports(modules: list[str]) -> bool:
    """Imports what there is; False where something is missing, as in a lineage of older code, or nothing was asked."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception:  # whatever it is: the command itself will say it
            return False
    return bool(modules)


def changes() -> dict[str, tuple[int, int]]:
    """When the imported sources below the current folder were changed, and their sizes."""
    here = os.getcwd() + os.sep
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.startswith(here) and "site-packages" not in path:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def hold(output: int, line: socket.socket, is_warm: bool) -> Ask | None:
    """Starts what is asked, stays beside it to its end and never returns; in the process that is it, what is asked."""
    with line.makefile("r", encoding="utf-8") as lines:
        asked = lines.readline()
    if not asked:
        os._exit(0)
    child = os.fork()
    with contextlib.suppress(OSError):  # said by both, for either may be the first; too late, where it has ended
        os.setpgid(child, child)
    if child == 0:
        line.close()
        return Ask(asked, output, is_warm)
    os.close(output)
    try:
        status = end_of(child, line)
        end_group(child)
        with contextlib.suppress(OSError):
            line.sendall(str(status).encode())
    finally:
        os._exit(0)


def end_of(child: int, line: socket.socket) -> int:
    """Exit status of the command, 128 and the signal where one ended it; its group is ended when the flow is gone."""
    watched = select.poll()
    watched.register(line, select.POLLIN)
    if hasattr(os, "pidfd_open"):
        watched.register(os.pidfd_open(child), select.POLLIN)
    timeout = None if hasattr(os, "pidfd_open") else POLL_SECONDS * 1000
    while True:
        ready = {file for file, _ in watched.poll(timeout)}
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        if line.fileno() in ready:
            end_group(child)
            return 128 + signal.SIGHUP


def end_group(leader: int) -> None:
    """Ends all processes of a group; those that do not end when told are killed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline and os.waitpid(leader, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
