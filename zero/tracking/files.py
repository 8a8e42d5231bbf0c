"""A generation as the files of its tag tell it, and the git note with its costs.

Of the data that DVC holds nothing is needed here but its hashes.
"""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from zero.config.params import Params, load_params
from zero.errors import LineageError, StorageError
from zero.network.health import Health, recorded_health
from zero.record.costs import GenerationCosts, read_note
from zero.record.ledger import generation_tag, read_ledger
from zero.record.provenance import Statement, read_envelope
from zero.storage.files import canonical_line, read_manifest
from zero.storage.layout import (
    CONSTRAINTS_FILE,
    DVC_LOCK_FILE,
    METRICS_DIR,
    PROVENANCE_FILE,
    SELFPLAY_METRICS,
    TRAINING_CURVE,
    TRAINING_METRICS,
    WINDOW_DIR,
)
from zero.storage.manifests import LedgerEntry, Window


class Point(NamedTuple):
    """One value of a curve."""

    name: str
    value: float
    step: int


class TrainingData(NamedTuple):
    """What a network was trained on."""

    name: str
    digest: str  # MD5 of DVC: 36 characters with its ".dir", which is MLflow's limit
    source: str
    profile: dict[str, int]


class Generation(NamedTuple):
    """A generation; at number 0 all that a stage writes is empty."""

    folder: Path
    tag: str
    params: Params
    ledger: tuple[LedgerEntry, ...]  # up to this generation
    requirements: tuple[str, ...]  # lines of constraints.txt
    provenance: Statement | None
    selfplay: dict[str, float]
    training: dict[str, float]
    curve: tuple[Point, ...]
    data: TrainingData | None
    costs: GenerationCosts | None
    checks: tuple[tuple[str, float], ...] = ()  # metrics of replay and verification, as "replay/num_games"
    health: Health | None = None  # None: made before there were health checks

    @property
    def entry(self) -> LedgerEntry:
        """The ledger's line of this generation."""
        return self.ledger[-1]

    @property
    def line(self) -> bytes:
        """The same, as it is in the file."""
        return canonical_line(self.entry)

    @property
    def lineage(self) -> str:
        """Name of the lineage."""
        return self.entry.lineage

    @property
    def number(self) -> int:
        """Number of the generation."""
        return self.entry.generation


def read_generation(folder: Path, tag: str) -> Generation:
    """The generation whose files are in `folder`.

    Raises:
      LineageError: the folder is not at `tag`, or its ledger is damaged.
      StorageError: a file of the record is missing or damaged.
      ParamsError: params.yaml is not valid.
    """
    params = load_params(folder)
    ledger = read_ledger(folder)
    found = generation_tag(ledger[-1].lineage, ledger[-1].generation) if ledger else "no generation"
    if found != tag:
        raise LineageError(f"{folder} is at {found}, not at {tag}; track a folder that is checked out at {tag}")
    requirements = tuple(line.partition("#")[0].strip() for line in _text(folder / CONSTRAINTS_FILE).splitlines())
    start = Generation(folder, tag, params, ledger, requirements, None, {}, {}, (), None, None)
    if start.entry.decision is None:
        return start
    return start._replace(
        provenance=_statement(folder / PROVENANCE_FILE),
        selfplay=_numbers(folder / SELFPLAY_METRICS, ("num_games", "mean_length")),
        training=_numbers(folder / TRAINING_METRICS, ("step", "loss")),
        curve=_curve(folder / TRAINING_CURVE),
        data=_training_data(folder, start.lineage, tag),
        costs=read_note(folder, start.lineage, tag),
        checks=tuple(_checks(folder / METRICS_DIR)),
        health=recorded_health(_text(folder / TRAINING_METRICS).encode(), str(folder / TRAINING_METRICS)),
    )


def _training_data(folder: Path, lineage: str, tag: str) -> TrainingData:
    path = folder / DVC_LOCK_FILE
    try:
        stages = yaml.safe_load(_text(path))["stages"].values()
        digest = next(out["md5"] for stage in stages for out in stage.get("outs", []) if out["path"] == WINDOW_DIR)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, StopIteration):
        raise _damaged(path) from None
    profile: dict[str, int] = {}
    if (folder / "data" / "window" / "manifest.json").exists():  # not needed for the rest, so nobody has to pull it
        window = read_manifest(folder / "data" / "window", Window)
        profile = {"num_games": window.num_games, "num_positions": window.num_positions}
    return TrainingData(f"{lineage}-window", str(digest), f"{tag}:data/window", profile)


def _numbers(path: Path, needed: tuple[str, ...]) -> dict[str, float]:
    """Numbers of a metrics file by name; `{"ended": {"passes": 9}}` gives `ended_passes`."""
    try:
        numbers = dict(_flat_numbers(json.loads(_text(path)), ""))
    except (ValueError, AttributeError):
        raise _damaged(path) from None
    if not numbers.keys() >= set(needed):
        raise _damaged(path)
    return numbers


def _flat_numbers(tree: dict[str, object], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat_numbers(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            yield prefix + name, float(value)


def _checks(folder: Path) -> Iterator[tuple[str, float]]:
    for stage, needed in (("replay", "num_games"), ("verification", "selfplay_num_games")):
        path = folder / f"{stage}.json"
        if path.exists():  # a lineage's older code has none
            for name, value in _numbers(path, (needed,)).items():
                yield f"{stage}/{name}", value


def _curve(path: Path) -> tuple[Point, ...]:
    try:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(_text(path).splitlines())]
        for row in rows:
            if row.get("constant_value_loss", 0.0) > 0.0:
                row["explained_variance"] = 1.0 - row["value_loss"] / row["constant_value_loss"]
        points = [Point(n, value, int(row["step"])) for row in rows for n, value in row.items() if n != "step"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(path) from None
    return tuple(point for point in points if math.isfinite(point.value))


def _statement(path: Path) -> Statement:
    return read_envelope(_text(path).encode(), str(path)).statement


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        raise StorageError(f"cannot read {path}; restore it with `git checkout` at the generation's tag") from None


def _damaged(path: Path) -> StorageError:
    return StorageError(f"{path} is damaged; restore it with `git checkout` at the generation's tag")
