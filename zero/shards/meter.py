"""Measures the cost of work: wall-clock time, CPU time, GPU time, and energy if it can be read.

Measurements go into receipts and the lines of `zero.stages.costs`, never into a hashed artifact.

Energy is that of the CPU packages (RAPL, https://docs.kernel.org/power/powercap/powercap.html) and of the GPU in use
(NVML). On most systems only root can read RAPL, and virtual machines do not have it. Its counters cover all processes.
So a process is charged its share of the machine's CPU time, which includes idle power.
"""

import contextlib
import ctypes
import os
import re
import resource
import socket
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

POWERCAP_DIR = Path("/sys/class/powercap")
PACKAGE = re.compile(r"^intel-rapl:\d+$")
"""Name of a CPU package, also on AMD; `intel-rapl:0:1` is a part of one."""
WORKER_VARIABLE = "ZERO_WORKER"
SAMPLE_SECONDS = 60.0
"""Seconds between two reads of a counter, which wraps around after a few hundred kilojoules: minutes at least."""


class Spent(NamedTuple):
    """Cost since the start of a `Meter`."""

    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    """Wall-clock time with a GPU in use."""
    joules: float | None
    """Energy; None if no counter can be read."""


class Meter:
    """Measures the cost of this process, and on request of its children, which count after they have ended."""

    def __init__(self, device: str = "cpu", children: bool = False, since_start: bool = False) -> None:
        """Starts the clock.

        Args:
          device: `cuda` if this process computes on a GPU.
          children: count the CPU time of ended children.
          since_start: count the CPU time since the start of the process.
        """
        self.begun = time.time()
        self._started = time.monotonic()
        self._device = device
        self._children = children
        self._cpu = 0.0 if since_start else cpu_seconds(children)
        self._machine = machine_cpu_seconds()
        self._joules = package_energy().joules()
        self._gpu = gpu_millijoules() if device == "cuda" else None

    def read(self) -> Spent:
        """The cost so far."""
        seconds = time.monotonic() - self._started
        cpu = max(0.0, cpu_seconds(self._children) - self._cpu)
        joules = package_energy().joules()
        if joules is not None and self._joules is not None:
            busy = machine_cpu_seconds() - self._machine
            joules = (joules - self._joules) * (min(1.0, cpu / busy) if busy > 0 else 0.0)
        if self._gpu is not None and (now := gpu_millijoules()) is not None:
            joules = (joules or 0.0) + (now - self._gpu) / 1000
        return Spent(seconds, cpu, seconds if self._device == "cuda" else 0.0, joules)


class PackageEnergy:
    """Energy of the CPU packages since its creation; a thread reads the counters before they can wrap around twice."""

    def __init__(self, folder: Path = POWERCAP_DIR, sample_seconds: float = SAMPLE_SECONDS) -> None:
        """Reads the counters; starts the thread if there are any."""
        self._last: dict[Path, int] = {}
        self._ranges: dict[Path, int] = {}
        self._microjoules = 0
        self._lock = threading.Lock()
        with contextlib.suppress(OSError, ValueError):
            for package in sorted(folder.iterdir()):
                if PACKAGE.match(package.name):
                    self._ranges[package] = int((package / "max_energy_range_uj").read_text())
                    self._last[package] = int((package / "energy_uj").read_text())
        if self._last:
            self._sample_later(sample_seconds)

    def joules(self) -> float | None:
        """Joules so far; None if no counter can be read."""
        with self._lock:
            self._sample()
            return self._microjoules / 1e6 if self._last else None

    def _sample(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for package, last in self._last.items():
                now = int((package / "energy_uj").read_text())
                self._microjoules += now - last if now >= last else now - last + self._ranges[package]
                self._last[package] = now

    def _sample_later(self, seconds: float) -> None:
        def sample() -> None:
            while True:
                time.sleep(seconds)
                self.joules()

        threading.Thread(target=sample, name="energy", daemon=True).start()


@cache
def package_energy() -> PackageEnergy:
    """The energy since the first meter of this process; shared by all meters, because its thread never ends."""
    return PackageEnergy(POWERCAP_DIR)


def worker_name() -> str:
    """Name of this process in receipts: `$ZERO_WORKER`, or host and process id."""
    return os.environ.get(WORKER_VARIABLE) or f"{socket.gethostname()}:{os.getpid()}"


def cpu_seconds(children: bool) -> float:
    """CPU time of this process so far, all threads, user and system."""
    used = [resource.getrusage(resource.RUSAGE_SELF)]
    if children:
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def machine_cpu_seconds() -> float:
    """CPU time of all processes since the machine started; 0 if /proc does not have it."""
    try:
        user, nice, system = map(int, Path("/proc/stat").read_text().split(None, 4)[1:4])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def gpu_millijoules() -> int | None:
    """Energy counter of the GPU that PyTorch uses; None if NVML does not have it."""
    try:
        import torch

        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        library = ctypes.CDLL("libnvidia-ml.so.1")
        handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
        name = (uuid if uuid.startswith("GPU-") else f"GPU-{uuid}").encode()
        has_handle = library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) == 0
        has_energy = has_handle and library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)) == 0
        return energy.value if has_energy else None
    except (ImportError, OSError, AttributeError, RuntimeError, AssertionError):
        return None
