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
import ctypes
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
PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""
POLL_SECONDS = 0.1
"""Between two looks at a command on systems that do not tell of its end."""


class Ask:
    """A command asked for: the module, its words, its environment and its folder."""

    def __init__(self, asked: str, files: list[int], warm_folder: str | None) -> None:
        """Reads what is asked; `warm_folder` is the one whose sources say what is imported, if they do."""
        words = json.loads(asked)
        self._module, self._words = str(words["module"]), list(words["words"])
        self._environment, self._folder = dict(words["env"]), str(words["folder"])
        has_code = self._folder != warm_folder and bool(packages(self._folder))
        self._files, self._is_warm = files, warm_folder is not None and not has_code

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
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()  # `random` does so by itself
        sys.argv = [self._module, *self._words]
        runpy.run_module(self._module, run_name="__main__", alter_sys=True)


def main(owner: socket.socket, service: socket.socket, modules: list[str]) -> None:
    """Serves until the other end of `owner` is closed; in a fork, does what was asked."""
    here = os.getcwd()
    sys.path[0] = here  # as `python -m` has it; it was the folder of this file
    sources = read_sources(here)  # before they are imported: what changes meanwhile has changed
    is_whole = imports(modules)
    gc.freeze()  # a fork shares what it does not touch
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while owner not in select.select([owner, service], [], [])[0]:
        line = service.accept()[0]
        is_warm = is_whole and sources == read_sources(here)
        if os.fork() == 0:
            owner.close()
            service.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            hold(line, here if is_warm else None).become()
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


def read_sources(folder: str) -> dict[str, tuple[int, int]]:
    """When the sources of all packages in a folder were changed, and their sizes; also of what is not imported yet."""
    found = {}
    for package in packages(folder):
        for place, _, names in os.walk(os.path.join(folder, package)):
            for path in (os.path.join(place, name) for name in names if name.endswith(".py")):
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    found[path] = (status.st_mtime_ns, status.st_size)
    return found


def packages(folder: str) -> list[str]:
    """Names of the packages in a folder."""
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(folder) if os.path.exists(os.path.join(folder, name, "__init__.py"))]
    return []


def hold(line: socket.socket, warm_folder: str | None) -> Ask:
    """Returns in a new process, which is to be the command; this one stays beside it to its end and never returns."""
    try:
        _, files, _, _ = socket.recv_fds(line, 1, 2)
        with line.makefile("rb", buffering=0) as lines:  # by single bytes: those after it are signals
            asked = Ask(lines.readline().decode(), files, warm_folder)
        holder = os.getpid()
        child = os.fork()
        with contextlib.suppress(OSError):  # said by both, for either may be the first; too late, where it has ended
            os.setpgid(child, child)
        if child == 0:
            line.close()
            end_with(holder)
            return asked
        for file in files:
            os.close(file)
        try:
            status = end_of(child, line)
        finally:
            end_group(child)
        line.sendall(str(status).encode())
    except (OSError, ValueError):  # who asked is gone
        pass
    os._exit(0)


def end_with(parent: int) -> None:
    """From now on this process is killed when its parent dies, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)


def end_of(child: int, line: socket.socket) -> int:
    """Exit status of the command, 128 and the signal where one ended it; passes signals on.

    Raises:
      OSError: who asked is gone.
    """
    watched = select.poll()
    watched.register(line, select.POLLIN)
    timeout = None
    try:
        watched.register(os.pidfd_open(child), select.POLLIN)
    except (AttributeError, OSError):  # another system, or a container that may not
        timeout = POLL_SECONDS * 1000
    while True:
        ready = [file for file, _ in watched.poll(timeout)]
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        if line.fileno() in ready:
            signals = line.recv(1)
            if not signals:
                raise ConnectionResetError
            with contextlib.suppress(OSError):
                os.kill(child, signals[0])


def end_group(leader: int) -> None:
    """Ends all processes of a group; those that do not end when told are killed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter is what macOS says of remains
        os.killpg(leader, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline and os.waitpid(leader, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
