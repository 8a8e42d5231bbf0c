"""Runs Python modules as commands that end when who asked is gone: `python leash.py OWNER SOCKET [MODULE...]`.

A flow may be cancelled, terminated or killed outright while DVC runs a stage that runs the processes that play. So each
command has a process group, and a process beside it that ends the whole group when the connection over which it was
asked for is closed, however that came about. What all commands need, the modules named, is imported once: each is a
fork of that, with nothing left to import; or a Python of its own, where a source has changed since or an import failed.

Both arguments are numbers of open sockets. The first ends the service when its other end is closed. Whoever connects to
the second sends one byte and with it two files, for what the command writes and for its errors; then what to do, as a
line of JSON; then, whenever it likes, a byte that is the number of a signal for the command. The answer is its status.
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
    """A command asked for: the module, its words, its environment and its folder."""

    def __init__(self, asked: str, files: list[int], is_warm: bool) -> None:
        """Reads what is asked; `is_warm`: what is imported is what the sources say."""
        words = json.loads(asked)
        self._module, self._words = str(words["module"]), list(words["words"])
        self._environment, self._folder = dict(words["env"]), str(words["folder"])
        self._files, self._is_warm = files, is_warm

    def become(self) -> None:
        """Does it in this process, by a new interpreter or the imported modules."""
        for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *self._files]):
            os.dup2(file, number)
            os.close(file)
        os.chdir(self._folder)
        if not self._is_warm:
            os.execve(sys.executable, [sys.executable, "-m", self._module, *self._words], self._environment)
        os.environ.clear()
        os.environ.update(self._environment)
        sys.argv = [self._module, *self._words]
        runpy.run_module(self._module, run_name="__main__", alter_sys=True)


def main(owner: socket.socket, service: socket.socket, modules: list[str]) -> None:
    """Serves until the other end of `owner` is closed; in a fork, does what was asked."""
    sys.path[0] = os.getcwd()  # as `python -m` has it; it was the folder of this file
    is_whole = imports(modules)
    sources = changes()
    gc.freeze()  # a fork shares what it does not touch
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while owner not in select.select([owner, service], [], [])[0]:
        line = service.accept()[0]
        is_warm = is_whole and sources == changes()
        if os.fork() == 0:
            owner.close()
            service.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            hold(line, is_warm).become()
            return
        line.close()
    with contextlib.suppress(OSError):  # nobody else would, where the owner was killed
        address = service.getsockname()
        os.unlink(address)
        os.rmdir(os.path.dirname(address))


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


def hold(line: socket.socket, is_warm: bool) -> Ask:
    """Returns in a new process, which is to be the command; this one stays beside it to its end and never returns."""
    try:
        _, files, _, _ = socket.recv_fds(line, 1, 2)
        with line.makefile("r", encoding="utf-8") as lines:
            asked = Ask(lines.readline(), files, is_warm)
        child = os.fork()
        with contextlib.suppress(OSError):  # said by both, for either may be the first; too late, where it has ended
            os.setpgid(child, child)
        if child == 0:
            line.close()
            return asked
        for file in files:
            os.close(file)
        status = end_of(child, line)
        end_group(child)
        line.sendall(str(status).encode())
    except (OSError, ValueError):  # who asked is gone
        pass
    os._exit(0)


def end_of(child: int, line: socket.socket) -> int:
    """Exit status of the command, 128 and the signal where one ended it; its group is ended when who asked is gone."""
    watched = select.poll()
    watched.register(line, select.POLLIN)
    can_tell = hasattr(os, "pidfd_open")
    if can_tell:
        watched.register(os.pidfd_open(child), select.POLLIN)
    while True:
        ready = [file for file, _ in watched.poll(None if can_tell else POLL_SECONDS * 1000)]
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        if line.fileno() in ready:
            signals = line.recv(1)
            if not signals:
                end_group(child)
                raise ConnectionResetError
            os.kill(child, signals[0])


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
    main(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
