"""What a run of the benchmarks leaves: figures with their spread, the machine, and what was asked; as one JSON file."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from benchmarks.machine import Machine
from zero.errors import StorageError
from zero.storage.files import canonical_json, write_atomic
from zero.storage.manifests import Manifest


class Spread(Manifest):
    """A figure of several rounds."""

    median: float
    low: float
    high: float


class Detail(Manifest):
    """A figure beside the one a row is about."""

    name: str
    value: float
    unit: str


class Sample(Manifest):
    """What one side of one round counted."""

    figure: float
    details: tuple[Detail, ...] = ()


class Target(Manifest):
    """What a row should reach."""

    of: Literal["figure", "ratio"]
    sense: Literal["at least", "at most"]
    value: float

    def reached_by(self, value: float) -> bool:
        """Whether `value` is at least, or at most, the target."""
        return value >= self.value if self.sense == "at least" else value <= self.value


class Row(Manifest):
    """One row of the table."""

    name: str
    work: str
    """What was done, for a person."""
    unit: str
    figure: Spread | None
    """Nothing where it could not be measured; `note` says why."""
    rival: str
    """What the ratio is against; empty for a row without a ratio."""
    rival_figure: Spread | None
    ratio: Spread | None
    """Of the figures of one round, figure to rival; its median is not the ratio of the medians."""
    targets: tuple[Target, ...]
    details: tuple[Detail, ...]
    """Medians over the rounds."""
    note: str

    def reached(self) -> bool | None:
        """Whether all targets are reached; nothing where there are none, or no figure."""
        if self.figure is None or not self.targets:
            return None
        values = {"figure": self.figure, "ratio": self.ratio}
        medians = [(target, values[target.of]) for target in self.targets]
        return all(spread is not None and target.reached_by(spread.median) for target, spread in medians)


class Settings(Manifest):
    """What was asked for."""

    seconds: float
    """Of each measurement."""
    repeats: int
    """Rounds a row."""
    backend: str
    precision: str


class Results(Manifest):
    """One run of the benchmarks."""

    version: Literal[1] = 1
    machine: Machine
    settings: Settings
    rows: tuple[Row, ...]


def spread_of(values: Sequence[float]) -> Spread:
    """Median and range."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def median_details(samples: Sequence[Sample]) -> tuple[Detail, ...]:
    """The details of the first sample, each with its median over all samples."""
    return tuple(
        detail.model_copy(update={"value": statistics.median(sample.details[i].value for sample in samples)})
        for i, detail in enumerate(samples[0].details)
    )


def write_results(path: Path, results: Results) -> None:
    """Writes a run, whole or not at all.

    Raises:
      StorageError: the file cannot be written.
    """
    write_atomic(path, canonical_json(results))


def read_results(path: Path) -> Results:
    """A run that was written before.

    Raises:
      StorageError: the file cannot be read, or is none of `write_results`.
    """
    try:
        return Results.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; write one with --out") from None
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"])) or "the file"
        raise StorageError(
            f"{path} holds no benchmark results: {place}: {fault['msg']}; write one with --out"
        ) from None
