"""Description of the machine and of the sources of a run."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from zero.errors import LineageError
from zero.storage.manifests import Manifest
from zero.storage.vcs import git

PROJECT_DIR = Path(__file__).resolve().parents[1]
LIBRARIES = ("numpy", "numba", "torch", "openvino", "jax", "mctx", "pgx")
ISA_FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_bf16", "amx_int8")
"""Processor flags that affect the speed of networks, as the Linux kernel names them."""


class Machine(Manifest):
    """The machine, the libraries and the sources of a run."""

    cpu: str
    cores: int
    """Cores available to this process."""
    isa: tuple[str, ...]
    memory_bytes: int
    gpu: str
    """Names of the GPUs; empty without one."""
    system: str
    load: float
    """Mean number of running processes in the last minute before the run."""
    python: str
    libraries: dict[str, str]
    """Versions of the installed libraries."""
    commit: str
    """Empty outside a git checkout."""
    dirty: bool
    """True if files differ from the commit."""


def describe_machine() -> Machine:
    """The current machine."""
    processor = _processor()
    commit, dirty = _checkout()
    return Machine(
        cpu=processor.get("model name", platform.processor() or platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        isa=tuple(flag for flag in ISA_FLAGS if flag in processor.get("flags", "").split()),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=_gpu(),
        system=platform.platform(),
        load=os.getloadavg()[0],
        python=platform.python_version(),
        libraries=_libraries(),
        commit=commit,
        dirty=dirty,
    )


def _processor() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    try:
        block = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _gpu() -> str:
    """Names of the NVIDIA devices, without starting CUDA in this process."""
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ", ".join(done.stdout.split("\n")).strip(", ") if done.returncode == 0 else ""


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _checkout() -> tuple[str, bool]:
    """The commit of the sources, and whether they differ from it."""
    try:
        return git(PROJECT_DIR, "rev-parse", "HEAD").strip(), bool(git(PROJECT_DIR, "status", "--porcelain").strip())
    except LineageError:
        return "", False
