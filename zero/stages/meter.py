"""Measures what a piece of work costs on this machine: wall clock, CPU time, time with a GPU in use.

The numbers differ between runs, so they never enter a hashed artifact: they go into receipts and into the lines of
`zero.stages.costs`.
"""

import os
import resource
import socket
import time
from typing import NamedTuple

WORKER_VARIABLE = "ZERO_WORKER"


class Spent(NamedTuple):
    """Costs since the start of a meter."""

    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    """Wall clock with a GPU in use."""


class Meter:
    """Measures the costs of this process, and of its children after they have ended, from the start of the meter."""

    def __init__(self, device: str = "cpu", children: bool = False, since_start: bool = False) -> None:
        """Starts the clock.

        Args:
          device: `cuda` if this process computes on a GPU.
          children: include the CPU time of ended child processes.
          since_start: include the CPU time that the process used before this call.
        """
        self.begun = time.time()
        """Start of the meter, seconds since 1970."""
        # Durations by the monotonic clock: the wall clock can be set while a shard is played.
        self._started = time.monotonic()
        self._device = device
        self._children = children
        self._cpu = 0.0 if since_start else cpu_seconds(children)

    def read(self) -> Spent:
        """Costs so far."""
        seconds = time.monotonic() - self._started
        cpu = max(0.0, cpu_seconds(self._children) - self._cpu)
        return Spent(seconds, cpu, seconds if self._device == "cuda" else 0.0)


def worker_name() -> str:
    """Name of this process in receipts: `$ZERO_WORKER`, or host and process number."""
    return os.environ.get(WORKER_VARIABLE) or f"{socket.gethostname()}:{os.getpid()}"


def cpu_seconds(children: bool) -> float:
    """CPU time of this process so far, user and system, of all threads; with `children` also of ended children."""
    used = [resource.getrusage(resource.RUSAGE_SELF)]
    if children:
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
