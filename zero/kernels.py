"""The decorator of the Numba kernels, calls with fixed arguments, and the disk cache of the machine code.

Numba's own cache stamps a kernel with the source of its own file. It misses an edit in a called module and runs stale
code, and its key does not include the bounds-check flag. Here the cache folder is named by a digest of all kernel
sources, that flag and Numba's version, so any edit starts an empty folder.

All clones with equal sources share a folder: a new workspace of a lineage loads kernels that another clone compiled.
Numba names the subfolder of a module by its absolute path, so `KernelCacheLocator` replaces this name; Numba reads the
locator's name from a setting (`NUMBA_CACHE_LOCATOR_CLASSES`). Processes that start together compile each kernel once,
because Numba's event "numba:compiler_lock" holds a file lock of the folder as well (`CompileLock`).
"""

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numba
from numba import config as numba_config
from numba.core import caching, event

PACKAGE_DIR = Path(__file__).resolve().parent
KERNEL_SOURCES = ("kernels.py", "data", "games", "players", "play", "search", "storage/manifests.py")
"""Files and folders that may contain kernels or their constants; the digest covers every source in them."""

LOCK_SECONDS, LOCK_RETRY_SECONDS = 600.0, 0.05
"""Time limit of the wait for another process that compiles, and the interval between two attempts. The largest kernel
compiles in one to two minutes on an idle core, with all kernels that it calls."""

SLOW_SECONDS = 3.0
"""Time after which a process reports that it compiles, or that it waits for another process that does."""

log = logging.getLogger(__name__)
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


def kernel_digest() -> str:
    """SHA-256 (hex) of every source that can be compiled into a kernel."""
    digest = hashlib.sha256()
    for path in kernel_sources():
        digest.update(path.relative_to(PACKAGE_DIR).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def kernel_sources() -> list[Path]:
    """Paths of the sources that can be compiled into a kernel, sorted."""
    paths = [PACKAGE_DIR / name for name in KERNEL_SOURCES]
    return sorted(file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path]))


def kernel_cache_dir() -> Path:
    """Folder of the compiled kernels, in `$ZERO_KERNEL_CACHE` or else in the user's cache folder."""
    root = os.environ.get("ZERO_KERNEL_CACHE")
    home = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zero" / "kernels"
    checks = "checked" if os.environ.get("NUMBA_BOUNDSCHECK") == "1" else "fast"
    return home / f"{kernel_digest()[:16]}-{checks}-numba{numba.__version__}"


class KernelCacheLocator(caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """Tells Numba to store the kernels of a package `x` in `numba.config.CACHE_DIR / x`, in whichever clone `x` is."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Name of the subfolder for the kernels of a source file."""
        path = Path(py_file).resolve()
        if path.is_relative_to(PACKAGE_DIR):
            return path.parent.name
        # The digest covers no other files; Numba's name, a hash of the absolute path, keeps clones apart.
        return str(super().get_suitable_cache_subpath(py_file))


class CompileLock(event.Listener):  # type: ignore[misc]
    """Holds a file lock as long as any thread of this process holds Numba's compiler lock.

    Numba looks a kernel up in the disk cache under its compiler lock, so a process that waited here finds what the
    other one compiled. The file lock is always taken before Numba's lock, so two processes cannot deadlock.
    """

    def __init__(self, path: Path) -> None:
        """Names the lock file; its folder need not exist yet."""
        self._path = path
        self._guard = threading.Lock()
        self._depth = 0  # threads that hold or wait for Numba's lock, which is reentrant
        self._file: IO[bytes] | None = None
        self._locked = 0.0  # time
        self._reported = False

    def on_start(self, _: event.Event) -> None:
        """Takes the file lock, unless this process has it."""
        with self._guard:
            self._depth += 1
            if self._depth == 1:
                with contextlib.suppress(OSError):  # a folder that cannot be written, or a file system without locks
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    self._file = self._path.open("wb")
                    lock_file(self._file, LOCK_SECONDS)
                self._locked = time.monotonic()
            # A kernel takes the lock again for each part of it; one that is read from the disk is ready by then.
            elif time.monotonic() - self._locked > SLOW_SECONDS and not self._reported:
                self._reported = True
                report("compiling kernels: some minutes after each update; `make setup` does it in advance")

    def on_end(self, _: event.Event) -> None:
        """Releases the file lock when no thread of this process compiles."""
        with self._guard:
            self._depth -= 1
            if self._depth == 0 and self._file is not None:
                self._file.close()
                self._file = None


def lock_file(file: IO[bytes], timeout_seconds: float) -> bool:
    """True once `file` is locked; False after the time limit, for a holder that was suspended while it compiled."""
    begun = time.monotonic()
    reported = False
    while (waited := time.monotonic() - begun) < timeout_seconds:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if waited > SLOW_SECONDS and not reported:
                reported = True
                report("waiting for another process that compiles kernels")
            time.sleep(LOCK_RETRY_SECONDS)
    return False


def report(message: str) -> None:
    """Logs a message for a person who waits; the output of a script does not depend on what is compiled."""
    if sys.stderr.isatty():
        log.info(message)


CACHE_DIR = kernel_cache_dir()
event.register("numba:compiler_lock", CompileLock(CACHE_DIR / "compile.lock"))


def kernel(function: Function) -> Function:
    """Compiles `function` on first use, without the GIL and with exact floating point (never fastmath).

    LLVM must inline it. A call would pass a tuple of arrays as hundreds of scalars, seven or more for each array. With
    the arrays that LLVM then had to load again, that took half of the time of a search. Numba hands `forceinline` down
    to callees without a setting of their own, so a second decorator without it would make the code depend on which
    kernel is compiled first.
    """
    # Set for one kernel at a time: other users of Numba in this process keep their settings, and Numba itself resets
    # its settings when a NUMBA_ variable of the environment changes.
    before = numba_config.CACHE_DIR, numba_config.CACHE_LOCATOR_CLASSES
    numba_config.CACHE_DIR, numba_config.CACHE_LOCATOR_CLASSES = str(CACHE_DIR), f"{__name__}.KernelCacheLocator"
    options = {"nogil": True, "error_model": "numpy", "forceinline": True, "_nrt": False}
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # the folder cannot be written: every process compiles for itself
        compiled = numba.njit(**options)(function)
    finally:
        numba_config.CACHE_DIR, numba_config.CACHE_LOCATOR_CLASSES = before
    result: Function = compiled
    return result


def bound(function: Callable[..., Result], *arguments: object) -> Callable[[], Result]:
    """Prepares a call of a kernel that is repeated with the same arguments; compiles or loads the kernel if need be.

    Numba determines the types of all arrays in the arguments at every call, under the GIL. For those of
    `zero.play.lockstep_games.advance` that takes 30 us, as long as ten simulations. Here it is done once. The machine
    code checks no types, so the arguments are fixed here.
    """
    compiled: Any = function
    types = tuple(numba.typeof(argument) for argument in arguments)
    loaded = compiled.overloads.get(types)  # `compile` would wait for other processes that compile, see `CompileLock`
    return functools.partial(loaded.entry_point if loaded else compiled.compile(types), *arguments)
