"""The results of a run: figures with their spread, the machine and the settings, as one JSON file."""

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
    """A figure over several rounds."""

    median: float
    low: float
    high: float


class Detail(Manifest):
    """An additional figure of a row."""

    name: str
    value: float
    unit: str


class Sample(Manifest):
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
        values = {"figure": self.figure, "ratio": self.ratio}
        medians = [(target, values[target.of]) for target in self.targets]
        return all(spread is not None and target.reached_by(spread.median) for target, spread in medians)


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


def spread_of(values: Sequence[float]) -> Spread:
    """Median and range."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def median_details(samples: Sequence[Sample]) -> tuple[Detail, ...]:
    """The details of the samples, each with its median."""
    return tuple(
        detail.model_copy(update={"value": statistics.median(sample.details[i].value for sample in samples)})
        for i, detail in enumerate(samples[0].details)
    )


def write_results(path: Path, results: Results) -> None:
    """Writes the results of a run.

    Raises:
      StorageError: the file cannot be written.
    """
    write_atomic(path, canonical_json(results))


def read_results(path: Path) -> Results:
    """The results of an earlier run.

    Raises:
      StorageError: the file cannot be read, or does not contain results.
    """
    try:
        return Results.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; write one with --out") from None
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"])) or "the file"
        raise StorageError(
            f"{path} does not contain benchmark results: {field}: {fault['msg']}; write one with --out"
        ) from None
