"""The one place that decides how kernels are compiled and where their machine code is kept.

Numba's own disk cache looks at the file of the function alone: it does not see an edit in a called module, and it does
not know about bounds checks. So the cache folder here is named by a digest of every kernel source, the bounds-check
flag and Numba's version; it is shared by all clones of the same sources.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numba
from numba import config as numba_config
from numba.core import caching

PACKAGE_DIR = Path(__file__).resolve().parent
KERNEL_SOURCES = ("kernels.py", "evaluation/throughput.py", "data", "games", "players", "play", "search")
"""Files and folders that may hold kernels; every source in them is part of the cache's name."""

LOCK_SECONDS, LOCK_PAUSE_SECONDS = 180.0, 0.05
"""How long a process waits for another one's compilation of a kernel; the largest takes a minute with all it calls."""

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel_digest() -> str:
    """SHA-256 (hex) of every source that can end up inside a kernel."""
    digest = hashlib.sha256()
    for path in kernel_sources():
        digest.update(path.relative_to(PACKAGE_DIR).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def kernel_sources() -> list[Path]:
    """Every file whose code can end up inside a kernel, sorted."""
    paths = [PACKAGE_DIR / name for name in KERNEL_SOURCES]
    return sorted(file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path]))


def kernel_cache_dir() -> Path:
    """Folder of the compiled kernels: `$ZERO_KERNEL_CACHE`, else the user's cache folder; by digest and flags."""
    root = os.environ.get("ZERO_KERNEL_CACHE")
    home = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zero" / "kernels"
    checks = "checked" if os.environ.get("NUMBA_BOUNDSCHECK") == "1" else "fast"
    return home / f"{kernel_digest()[:16]}-{checks}-numba{numba.__version__}"


class _KernelCacheLocator(caching._CacheLocator):  # type: ignore[misc]
    """Tells Numba to keep a kernel under `kernel_cache_dir()`, whichever clone it was loaded from."""

    _root: Path | None = None

    def __init__(self, function: Any, source_path: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._module = Path(source_path).resolve().parent.name

    def get_cache_path(self) -> str:
        cls = type(self)
        cls._root = cls._root or kernel_cache_dir()
        return str(cls._root / self._module)

    def get_source_stamp(self) -> str:
        return "named by the folder"

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, source_path: str) -> "_KernelCacheLocator | None":
        if not Path(source_path).resolve().is_relative_to(PACKAGE_DIR):
            return None
        locator = cls(function, source_path)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


numba_config.CACHE_LOCATOR_CLASSES = (
    f"{__name__}._KernelCacheLocator,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"
)


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache of a kernel, which processes that start together fill once instead of each for itself.

    Who finds a kernel missing compiles it under a lock; the others wait for it and load it. A kernel's lock is taken
    within those of its callers alone, so no two processes wait for each other; a process whose compilation failed keeps
    the lock, and the others wait for it no longer than `LOCK_SECONDS`.
    """

    _lock: IO[bytes] | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is not None or self._lock is not None:
            return found
        with contextlib.suppress(OSError):  # a folder that cannot be written, or a file system without locks
            self._lock = (Path(self.cache_path) / f"{self._impl.filename_base}.lock").open("wb")
            _wait_for(self._lock)
        found = super().load_overload(sig, target_context)
        if found is not None:
            self._release()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _wait_for(file: IO[bytes]) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_SECONDS)


def kernel(function: Function) -> Function:
    """Compiles `function` on first use, without the GIL and with Numba's exact floating point (never fastmath)."""
    return _compiled(function)


def inline_kernel(function: Function) -> Function:
    """As `kernel`, and asks LLVM to inline it: for the few lines that run once a point or once an edge."""
    return _compiled(function, forceinline=True)


def _compiled(function: Function, **options: bool) -> Function:
    compiled: Any = numba.njit(nogil=True, error_model="numpy", _nrt=False, **options)(function)
    compiled._cache = _KernelCache(function)  # as `njit(cache=True)` would set Numba's own
    result: Function = compiled
    return result
