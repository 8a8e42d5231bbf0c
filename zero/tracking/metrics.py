"""Numbers that MLflow shows of a generation, read from the metrics and curves that git holds."""

import csv
import json
import math
from collections.abc import Iterator
from typing import NamedTuple

from zero.errors import StorageError
from zero.record.generation import Generation
from zero.storage.layout import REPLAY_METRICS, TRAINING_CURVE, VERIFICATION_METRICS, WINDOW_DIR


class Point(NamedTuple):
    """One value of a curve."""

    name: str
    value: float
    step: int


class TrainingData(NamedTuple):
    """What a network was trained on, for MLflow's page of data sets."""

    name: str
    digest: str  # MD5 of DVC: 36 characters with its ".dir", which is MLflow's limit
    source: str
    profile: dict[str, int]


def read_text(generation: Generation, path: str) -> str:
    """A text file of a generation.

    Raises:
      StorageError: it is missing or is not text.
    """
    content = generation.file(path)
    try:
        if content is not None:
            return content.decode()
    except UnicodeDecodeError:
        pass
    raise StorageError(f"cannot read {path} of {generation.tag}; restore it with `git checkout` at the tag")


def read_numbers(generation: Generation, path: str, needed: tuple[str, ...]) -> dict[str, float]:
    """Numbers of a metrics file by name; `{"ended": {"passes": 9}}` gives `ended_passes`.

    Raises:
      StorageError: the file is missing or damaged, or lacks one of the names in `needed`.
    """
    text = read_text(generation, path)
    try:
        numbers = dict(_flat_numbers(json.loads(text), ""))
    except (ValueError, AttributeError):
        raise _damaged(generation, path) from None
    if not numbers.keys() >= set(needed):
        raise _damaged(generation, path)
    return numbers


def check_metrics(generation: Generation) -> Iterator[tuple[str, float]]:
    """Metrics of the stages replay and verification, as `replay/num_games`. Older lineages have none.

    Raises:
      StorageError: one of the files is damaged.
    """
    for stage, path, needed in (
        ("replay", REPLAY_METRICS, "num_games"),
        ("verification", VERIFICATION_METRICS, "selfplay_num_games"),
    ):
        if generation.file(path) is not None:
            for name, value in read_numbers(generation, path, (needed,)).items():
                yield f"{stage}/{name}", value


def training_curve(generation: Generation) -> tuple[Point, ...]:
    """The finite values of `plots/training.csv`, and the explained variance if the constant predictor's loss is known.

    Raises:
      StorageError: the file is missing or damaged.
    """
    lines = read_text(generation, TRAINING_CURVE).splitlines()
    try:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
        for row in rows:
            if row.get("constant_value_loss", 0.0) > 0.0:
                row["explained_variance"] = 1.0 - row["value_loss"] / row["constant_value_loss"]
        points = [Point(n, value, int(row["step"])) for row in rows for n, value in row.items() if n != "step"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(generation, TRAINING_CURVE) from None
    return tuple(point for point in points if math.isfinite(point.value))


def training_data(generation: Generation) -> TrainingData:
    """The window that the network was trained on; its size only if the window's manifest is on this machine.

    Raises:
      StorageError: dvc.lock is missing or damaged.
    """
    out = generation.outs.get(WINDOW_DIR)
    if out is None:
        read_text(generation, "dvc.lock")
        raise _damaged(generation, "dvc.lock")
    window, profile = generation.window, {}
    if window is not None:
        profile = {"num_games": window.num_games, "num_positions": window.num_positions}
    return TrainingData(f"{generation.lineage}-window", out.md5, f"{generation.tag}:{WINDOW_DIR}", profile)


def _flat_numbers(tree: dict[str, object], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat_numbers(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            yield prefix + name, float(value)


def _damaged(generation: Generation, path: str) -> StorageError:
    return StorageError(f"{path} of {generation.tag} is damaged; restore it with `git checkout` at the tag")
