"""A run of the benchmarks: rows with their figures, machine and settings, as one JSON file and as Markdown tables."""

import contextlib
import io
import logging
import operator
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import typer
import yaml
from llvmlite.binding import get_host_cpu_name
from pydantic import Field, ValidationError
from rich import box
from rich.console import Console
from rich.table import Table

from zero.errors import LineageError, StorageError, ZeroError
from zero.storage.manifests import Manifest
from zero.storage.vcs import git

PROJECT_DIR = Path(__file__).resolve().parents[1]
ROWS_FILE = "rows.yaml"
GPUS = Path("/proc/driver/nvidia/gpus")
"""Where the driver describes the devices."""
LIBRARIES = ("numpy", "numba", "torch", "openvino", "jax", "mctx", "pgx")
FAILED = "failed: "
"""Prefix of the note of a row whose measurement failed."""
COMPARED = ("cpu", "cores", "gpu", "backend", "precision", "seconds", "repeats")
"""Properties of a machine and settings with which absolute figures change."""
UNLIMITED = 10_000
"""Columns of a table that are never reached."""


class Side(Manifest):
    """One side of a row; `rows.yaml` explains the fields."""

    work: str
    preset: str = "go9-paper"
    changes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    cores: tuple[int, ...] = (1,)
    arguments: dict[str, Any] = Field(default_factory=dict)


class Spread(Manifest):
    """A figure over several rounds."""

    median: float
    low: float
    high: float


class Row(Manifest, extra="ignore"):  # files of older versions have other fields too
    """One row of the table; without figures it is what `rows.yaml` says."""

    name: str
    work: str
    """Description of the work."""
    unit: str
    ours: Side | None = None
    """None in files of older versions."""
    against: Side | None = None
    """What the ratio compares with; None for a row without a ratio."""
    rival: str = ""
    """Description of it."""
    needs: dict[str, str] = Field(default_factory=dict)
    """Programs and packages, and how to get them."""
    target: str = ""
    """Such as `figure >= 200000 and ratio >= 0.85`."""
    figure: Spread | None = None
    """None if it could not be measured; `note` has the reason."""
    rival_figure: Spread | None = None
    ratio: Spread | None = None
    """Our figure divided by the rival's of the same round. Its median is not the ratio of the medians."""
    note: str = ""

    def reached(self) -> bool | None:
        """True if all targets are reached; None without targets or without a figure."""
        if self.figure is None or not self.target:
            return None
        comparisons = {">=": operator.ge, "<=": operator.le}
        words = [target.split() for target in self.target.split(" and ")]
        return all(comparisons[sign](getattr(self, name).median, float(value)) for name, sign, value in words)


class Results(Manifest, extra="ignore"):
    """One run of the benchmarks."""

    machine: dict[str, Any]
    """See `describe_machine`."""
    settings: dict[str, Any]
    """Options of the command."""
    rows: tuple[Row, ...]


def rows_named(names: str) -> list[Row]:
    """The rows of a list separated by commas, in the order of the table; an empty list means all rows.

    Raises:
      ZeroError: a row does not exist.
    """
    tree = yaml.safe_load((Path(__file__).parent / ROWS_FILE).read_text())
    rows = [Row.model_validate(row) for row in tree["rows"]]
    wanted = [name for name in names.split(",") if name]
    known = [row.name for row in rows]
    if unknown := [name for name in wanted if name not in known]:
        raise ZeroError(f"unknown row {unknown[0]!r}; --rows must be some of {','.join(known)}")
    return [row for row in rows if not wanted or row.name in wanted]


def describe_machine() -> dict[str, Any]:
    """The current machine, the versions of the libraries, and the commit of the sources."""
    libraries = {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            libraries[name] = version(name)
    commit = ""
    with contextlib.suppress(LineageError):  # outside a git checkout
        # All tags are excluded: always the hash, with `-dirty` if files were changed.
        commit = git(PROJECT_DIR, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip()
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.machine(),
        "core": get_host_cpu_name(),  # as LLVM calls it, such as `znver5`: it says what instructions there are
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "gpu": gpu_names(),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "libraries": libraries,
        "commit": commit,
    }


def gpu_names() -> str:
    """Models of the NVIDIA devices, without starting CUDA in this process; empty without one."""
    lines = [line for path in sorted(GPUS.glob("*/information")) for line in path.read_text().splitlines()]
    return ", ".join(line.partition(":")[2].strip() for line in lines if line.startswith("Model"))


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


def results_text(results: Results) -> str:
    """The machine, the settings, and a row for each benchmark."""
    machine = {name: value for name, value in (results.machine | results.settings).items() if value != ""}
    machine |= machine.pop("libraries", {})
    rows = (
        (
            f"`{row.name}`",
            row.work,
            f"{number(row.figure)} {row.unit}" if row.figure else number(None),
            f"{row.rival}: {number(row.rival_figure)}" if row.rival_figure else row.rival,
            f"{row.ratio.median:.2f} ({row.ratio.low:.2f}, {row.ratio.high:.2f})" if row.ratio else "",
            row.target,
            row.note or {True: "yes", False: "no", None: ""}[row.reached()],
        )
        for row in results.rows
    )
    titles = ("row", "work", "figure", "against", "ratio (lowest, highest)", "target", "reached")
    return ", ".join(f"{name} {value}" for name, value in machine.items()) + "\n\n" + markdown(titles, rows)


def comparison_text(old: Results, new: Results) -> str:
    """The rows that both runs have: figures, their quotient, and the ratios to the rivals."""
    was, now, before = old.machine | old.settings, new.machine | new.settings, {row.name: row for row in old.rows}
    changed = [name for name in COMPARED if was.get(name) != now.get(name)]
    notes = [f"note: {name} was {was.get(name)}, it is {now.get(name)}" for name in changed]
    rows = []
    for row in new.rows:
        if other := before.get(row.name):
            quotient = f"{row.figure.median / other.figure.median:.2f}" if row.figure and other.figure else ""
            ratios = [f"{each.ratio.median:.2f}" if each.ratio else "" for each in (other, row)]
            rows.append((row.name, number(other.figure), number(row.figure), row.unit, quotient, *ratios))
    titles = ("row", "old", "new", "unit", "new : old", "ratio, old", "ratio, new")
    return "\n".join([*notes, *([""] if notes else []), markdown(titles, rows)])


def number(spread: Spread | None) -> str:
    """A median with three significant digits, or all digits before the point, with commas."""
    if spread is None:
        return "–"
    size = abs(spread.median)
    return f"{spread.median:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    table = Table(*titles, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=UNLIMITED, markup=False).print(table)
    return text.getvalue().strip()


def run_command(main: Callable[..., None], name: str) -> None:
    """Runs a command of the benchmarks. An error that a user can cause is one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        typer.run(main)
    except (ZeroError, OSError) as error:
        typer.echo(f"{name}: {error}", err=True)
        sys.exit(1)
