"""Describes the first difference of two files that should be equal: the game and move, tensor, field or line.

`then` is the recorded file, `now` the recomputed one. Games, moves and lines count from 0.
"""

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zero.storage.files import sha256_bytes
from zero.storage.manifests import MANIFEST_FILE

GAME, ACTIONS, VISIT_OFFSETS = "game", "actions", "visit_offsets"
VISIT_COLUMNS = ("visit_actions", "visit_counts")
"""Columns of a shard whose entries belong to the moves given by VISIT_OFFSETS."""
TENSOR_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,  # the bits, because NumPy has no bf16
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
HEADER_LENGTH_BYTES = 8  # of a safetensors file
MAX_TEXT = 80


class Column(NamedTuple):
    """A column of a shard, game by game."""

    values: np.ndarray  # all entries of all games
    offsets: np.ndarray | None  # [G + 1] first entry of each game; None: one entry a game

    def of_game(self, index: int) -> np.ndarray:
        """The entries of one game."""
        if self.offsets is None:
            return self.values[index : index + 1]
        return self.values[self.offsets[index] : self.offsets[index + 1]]


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
    describe = READERS.get(suffix, _bytes_difference)
    try:
        found = describe(then, now)
    except (pa.ArrowException, OSError, ValueError, KeyError, IndexError):
        found = None  # one of them does not have the format of its suffix
    return found or _bytes_difference(then, now)


def shard_difference(then: bytes, now: bytes) -> str | None:
    """The first game and move at which two shards differ, and the columns that differ there."""
    old, new = _columns(then), _columns(now)
    if odd := sorted(old.keys() ^ new.keys()):
        return f"column {odd[0]} exists {'then' if odd[0] in old else 'now'} only"
    num_games = {len(each[GAME].values) for each in (old, new)}
    if len(num_games) > 1:
        return f"{len(old[GAME].values)} games then, {len(new[GAME].values)} now"
    for index in range(num_games.pop()):
        faults = [(_move(old, new, name, index), name) for name in old if not _same(old[name], new[name], index)]
        if faults:
            move = min(move for move, _ in faults)
            names = ", ".join(name for found, name in faults if found == move)
            where = "" if move < 0 else f", move {move}"
            return f"game {old[GAME].values[index]}{where}, column {names}"
    return None


def tensor_difference(then: bytes, now: bytes) -> str | None:
    """The first tensor in which two safetensors files differ, and the number and size of its differences."""
    old, new = _tensors(then), _tensors(now)
    for name in [*old, *(each for each in new if each not in old)]:
        if name not in old or name not in new:
            return f"tensor {name} exists {'then' if name in old else 'now'} only"
        a, b = old[name], new[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"tensor {name} is {a.dtype} {list(a.shape)} then, {b.dtype} {list(b.shape)} now"
        different = a.reshape(-1).view(np.uint8) != b.reshape(-1).view(np.uint8)
        if count := int(different.reshape(-1, a.itemsize).any(axis=1).sum()):
            farthest = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
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
    ".sgf": line_difference,
    ".dvc": line_difference,
}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _columns(data: bytes) -> dict[str, Column]:
    table = pq.ParquetFile(BytesIO(data)).read(use_threads=False).combine_chunks()
    return {name: _column(table.column(name).chunk(0)) for name in table.column_names}


def _column(array: pa.Array) -> Column:
    if pa.types.is_list(array.type):
        return Column(array.values.to_numpy(zero_copy_only=False), array.offsets.to_numpy())
    return Column(array.to_numpy(zero_copy_only=False), None)


def _same(old: Column, new: Column, index: int) -> bool:
    a, b = old.of_game(index), new.of_game(index)
    if a.dtype == object or b.dtype == object:
        return bool(np.array_equal(a, b))
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _move(old: dict[str, Column], new: dict[str, Column], name: str, index: int) -> int:
    """Move of a game at which a column first differs; -1 if its entries do not belong to moves."""
    a, b = old[name].of_game(index), new[name].of_game(index)
    num_entries = min(len(a), len(b))
    different = np.flatnonzero(a[:num_entries] != b[:num_entries])
    entry = int(different[0]) if len(different) else num_entries
    if name in VISIT_COLUMNS:
        return int(np.searchsorted(old[VISIT_OFFSETS].of_game(index), entry, side="right")) - 1
    if name == VISIT_OFFSETS:
        return max(0, entry - 1)  # entry t + 1 is the end of move t
    num_moves = len(old[ACTIONS].of_game(index)) if ACTIONS in old else -1
    return entry if old[name].offsets is not None and len(a) == num_moves else -1


def _tensors(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file in the order of the file."""
    start = HEADER_LENGTH_BYTES + int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
    header = json.loads(data[HEADER_LENGTH_BYTES:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: (item[1]["data_offsets"], item[0])):
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[start + first : start + last], TENSOR_TYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
    return tensors


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
