"""What a piece of work costs this machine: wall clock, CPU time, time on a GPU, energy where it can be read.

Nothing read here may reach an artifact that is hashed: it goes into receipts and the lines of `zero.stages.costs`.

Energy is that of the CPU packages (RAPL, https://docs.kernel.org/power/powercap/powercap.html; most systems let only
root read it, a virtual machine has none) and of the GPU in use (NVML). A package counts for all processes, so a
process is charged the part of it that its CPU time has in that of the whole machine, the idle power with it.
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
"""A whole CPU package, on AMD as well; `intel-rapl:0:1` is a part of one."""
WORKER_VARIABLE = "ZERO_WORKER"
SAMPLE_SECONDS = 60.0
"""Between two looks at a counter: it wraps around after a few hundred kilojoules, which is minutes at the least."""


class Spent(NamedTuple):
    """What was spent since a moment."""

    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    """Wall clock with a GPU in use."""
    joules: float | None
    """None where no counter can be read."""


class Meter:
    """Counts from now on what this process spends. Children count when they have ended, where they are asked for."""

    def __init__(self, device: str = "cpu", children: bool = False, since_start: bool = False) -> None:
        """Starts the clock.

        Args:
          device: `cuda` where this process computes on a GPU.
          children: count the CPU time of ended children.
          since_start: count the CPU time since the process began, not from now on.
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
        """What was spent so far."""
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
    """Energy of the CPU packages since it was made; a thread looks at the counters, lest they wrap around unseen."""

    def __init__(self, folder: Path = POWERCAP_DIR, sample_seconds: float = SAMPLE_SECONDS) -> None:
        """Reads the counters for the first time; there is no thread where there are none."""
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
        """Joules so far; None where no counter can be read."""
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
    """That of this process since its first meter: its thread never ends, so there is one for all meters."""
    return PackageEnergy(POWERCAP_DIR)


def worker_name() -> str:
    """What a receipt calls this process: `$ZERO_WORKER`, or host and process number."""
    return os.environ.get(WORKER_VARIABLE) or f"{socket.gethostname()}:{os.getpid()}"


def cpu_seconds(children: bool) -> float:
    """CPU time of this process so far, all threads, user and system."""
    used = [resource.getrusage(resource.RUSAGE_SELF)]
    if children:
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def machine_cpu_seconds() -> float:
    """CPU time that all processes of the machine have used since it started; 0 where /proc does not tell."""
    try:
        user, nice, system = map(int, Path("/proc/stat").read_text().split(None, 4)[1:4])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def gpu_millijoules() -> int | None:
    """Energy counter of the GPU that PyTorch computes on; None where NVML does not tell."""
    try:
        import torch

        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        library = ctypes.CDLL("libnvidia-ml.so.1")
        handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
        name = (uuid if uuid.startswith("GPU-") else f"GPU-{uuid}").encode()
        asked = library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) == 0
        told = asked and library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)) == 0
        return energy.value if told else None
    except (ImportError, OSError, AttributeError, RuntimeError, AssertionError):
        return None
