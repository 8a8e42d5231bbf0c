"""Describes the first difference of two files that should be equal: the game and move, tensor, field or line.

`then` is the recorded file, `now` the recomputed one. Games, moves and lines count from 0.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from zero.data.records import read_records
from zero.errors import StorageError
from zero.stages.verification import game_difference
from zero.storage.files import sha256_bytes
from zero.storage.manifests import MANIFEST_FILE

MAX_TEXT = 80


def first_difference(then: Path, now: Path) -> str | None:
    """The first difference of two files or folders; None if they are equal.

    In a folder the data is compared before the manifest, which differs whenever the data does.
    """
    if not then.is_dir():
        return file_difference(then.read_bytes(), now.read_bytes(), then.suffix)
    files = {folder: {path.relative_to(folder).as_posix() for path in _files(folder)} for folder in (then, now)}
    for name in sorted(files[then] | files[now], key=lambda each: (each.endswith(MANIFEST_FILE), each)):
        if name not in files[now] or name not in files[then]:
            return f"{name} exists {'then' if name in files[then] else 'now'} only"
        if found := file_difference((then / name).read_bytes(), (now / name).read_bytes(), Path(name).suffix):
            return f"{name}: {found}"
    return None


def file_difference(then: bytes, now: bytes, suffix: str) -> str | None:
    """The first difference of two files' contents, described by their format; None if they are equal."""
    if then == now:
        return None
    try:
        found = READERS.get(suffix, _bytes_difference)(then, now)
    except (StorageError, ValueError, RecursionError):
        found = None  # one of them does not have the format of its suffix
    return found or _bytes_difference(then, now)


def shard_difference(then: bytes, now: bytes) -> str | None:
    """The first game and move at which two shards differ, and both values of the field.

    Raises:
      StorageError: one of them is not a shard.
    """
    old, new = read_records(then, "then"), read_records(now, "now")
    if old.num_games != new.num_games:
        return f"{old.num_games} games then, {new.num_games} now"
    found = game_difference(old, new)
    return str(found) if found else None


def tensor_difference(then: bytes, now: bytes) -> str | None:
    """The first tensor in which two safetensors files differ, and the number and size of its differences.

    Raises:
      ValueError: one of them is not a safetensors file.
    """
    try:
        old, new = safetensors.numpy.load(then), safetensors.numpy.load(now)
    except safetensors.SafetensorError as error:
        raise ValueError(error) from None
    for name in [*old, *(each for each in new if each not in old)]:
        if name not in old or name not in new:
            return f"tensor {name} exists {'then' if name in old else 'now'} only"
        a, b = old[name], new[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"tensor {name} is {a.dtype} {[*a.shape]} then, {b.dtype} {[*b.shape]} now"
        # as bytes: a NaN equals itself, and the zeros of both signs differ
        different = a.reshape(-1, 1).view(np.uint8) != b.reshape(-1, 1).view(np.uint8)
        if count := int(different.any(axis=1).sum()):
            farthest = float(np.abs(a.astype(np.float64) - b).max())
            return f"tensor {name}: {count} of {a.size} numbers, by up to {farthest:.3g}"
    return None


def json_difference(then: bytes, now: bytes) -> str | None:
    """The first field, in the order of the file, in which two JSON files differ."""
    return next(_tree_differences(json.loads(then), json.loads(now), ""), None)


def line_difference(then: bytes, now: bytes) -> str | None:
    """The first line in which two texts differ."""
    old, new = then.decode().splitlines(), now.decode().splitlines()
    for number, (a, b) in enumerate(zip(old, new, strict=False)):
        if a != b:
            return f"line {number}: {_short(a)} then, {_short(b)} now"
    return f"{len(old)} lines then, {len(new)} now" if len(old) != len(new) else None


READERS: dict[str, Callable[[bytes, bytes], str | None]] = {
    ".parquet": shard_difference,
    ".safetensors": tensor_difference,
    ".json": json_difference,
    ".csv": line_difference,
}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _tree_differences(then: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(each for each in now if each not in then)]:
            path = f"{name}.{key}" if name else key
            if key not in then or key not in now:
                yield f"{path} exists {'then' if key in then else 'now'} only"
            else:
                yield from _tree_differences(then[key], now[key], path)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (a, b) in enumerate(zip(then, now, strict=True)):
            yield from _tree_differences(a, b, f"{name}[{index}]")
    elif then != now:
        yield f"{name}: {_short(json.dumps(then))} then, {_short(json.dumps(now))} now"


def _bytes_difference(then: bytes, now: bytes) -> str:
    shorter = min(len(then), len(now))
    a, b = (np.frombuffer(data[:shorter], np.uint8) for data in (then, now))
    different = np.flatnonzero(a != b)
    place = int(different[0]) if len(different) else shorter
    return f"byte {place} ({sha256_bytes(then)[:12]} then, {sha256_bytes(now)[:12]} now)"


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
