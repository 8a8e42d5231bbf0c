"""The results of a run: figures with their spread, the machine and the settings, as one JSON file."""

import contextlib
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from zero.errors import LineageError, StorageError
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


class Spread(Manifest):
    """A figure over several rounds."""

    median: float
    low: float
    high: float


class Detail(Manifest):
    """An additional figure of a row."""

    name: str
    value: float
    unit: str


class Sample(NamedTuple):
    """The result of one side in one round."""

    figure: float
    details: tuple[Detail, ...] = ()


class Target(Manifest):
    """The goal of a row."""

    of: Literal["figure", "ratio"]
    sense: Literal["at least", "at most"]
    value: float

    def reached_by(self, value: float) -> bool:
        """True if `value` reaches the target."""
        return value >= self.value if self.sense == "at least" else value <= self.value


class Row(Manifest):
    """One row of the table."""

    name: str
    work: str
    """Description of the work."""
    unit: str
    figure: Spread | None
    """None if it could not be measured; `note` has the reason."""
    rival: str
    """What the ratio compares with; empty for a row without a ratio."""
    rival_figure: Spread | None
    ratio: Spread | None
    """Our figure divided by the rival's of the same round. Its median is not the ratio of the medians."""
    targets: tuple[Target, ...]
    details: tuple[Detail, ...]
    """Medians over the rounds."""
    note: str

    def reached(self) -> bool | None:
        """True if all targets are reached; None without targets or without a figure."""
        if self.figure is None or not self.targets:
            return None
        medians = {"figure": self.figure.median, "ratio": self.ratio.median if self.ratio else math.nan}
        return all(target.reached_by(medians[target.of]) for target in self.targets)


class Settings(Manifest):
    """The settings of a run."""

    seconds: float
    """Per measurement."""
    repeats: int
    """Rounds per row."""
    backend: str
    precision: str


class Results(Manifest):
    """One run of the benchmarks."""

    version: Literal[1] = 1
    machine: Machine
    settings: Settings
    rows: tuple[Row, ...]


def describe_machine() -> Machine:
    """The current machine."""
    libraries, commit, dirty, processor = {}, "", False, {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            libraries[name] = version(name)
    with contextlib.suppress(LineageError):  # outside a git checkout
        commit = git(PROJECT_DIR, "rev-parse", "HEAD").strip()
        dirty = bool(git(PROJECT_DIR, "status", "--porcelain").strip())
    with contextlib.suppress(OSError):
        block = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        processor = {
            name.strip(): value.strip() for name, _, value in (line.partition(":") for line in block.split("\n"))
        }
    return Machine(
        cpu=processor.get("model name", platform.processor() or platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        isa=tuple(flag for flag in ISA_FLAGS if flag in processor.get("flags", "").split()),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu=_gpu(),
        system=platform.platform(),
        load=os.getloadavg()[0],
        python=platform.python_version(),
        libraries=libraries,
        commit=commit,
        dirty=dirty,
    )


def _gpu() -> str:
    """Names of the NVIDIA devices, without starting CUDA in this process."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ", ".join(done.stdout.split("\n")).strip(", ") if done.returncode == 0 else ""


def spread_of(values: Sequence[float]) -> Spread:
    """Median and range."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def median_details(samples: Sequence[Sample]) -> tuple[Detail, ...]:
    """The details of the samples, each with its median."""
    return tuple(
        details[0].model_copy(update={"value": statistics.median(detail.value for detail in details)})
        for details in zip(*(sample.details for sample in samples), strict=True)
    )


def read_results(path: Path) -> Results:
    """The results of an earlier run.

    Raises:
      StorageError: the file cannot be read, or does not contain results.
    """
    try:
        return Results.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; write one with --out") from None
    except ValidationError:
        raise StorageError(f"{path} does not contain benchmark results; write one with --out") from None
