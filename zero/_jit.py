"""The one place that decides how kernels are compiled and where their machine code is kept.

Numba's own disk cache looks at the file of the function alone: it does not see an edit in a called module, and it does
not know about bounds checks. So the cache folder here is named by a digest of every kernel source, the bounds-check
flag and Numba's version; it is shared by all clones of the same sources.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import config as numba_config
from numba.core import caching

PACKAGE_DIR = Path(__file__).resolve().parent
KERNEL_SOURCES = ("_jit.py", "bench.py", "games", "opponents", "play", "search")
"""Files and folders that may hold kernels; every source in them is part of the cache's name."""

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


class KernelCacheLocator(caching._CacheLocator):  # type: ignore[misc]
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
    def from_function(cls, function: Any, source_path: str) -> "KernelCacheLocator | None":
        if not Path(source_path).resolve().is_relative_to(PACKAGE_DIR):
            return None
        locator = cls(function, source_path)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


numba_config.CACHE_LOCATOR_CLASSES = (
    f"{__name__}.KernelCacheLocator,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"
)


def kernel(function: Function) -> Function:
    """Compiles `function` on first use, without the GIL and with Numba's exact floating point (never fastmath)."""
    compiled: Function = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)
    return compiled


def inline_kernel(function: Function) -> Function:
    """As `kernel`, and asks LLVM to inline it: for the few lines that run once a point or once an edge."""
    compiled: Function = numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True, _nrt=False)(function)
    return compiled
