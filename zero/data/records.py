"""Game records as Parquet, one row per game, so that pandas or DuckDB can read a shard; flat columns in memory.

Only visit counts above zero are stored. Equal records give equal bytes: the settings of the writer are fixed here.

| column | type | |
|---|---|---|
| game | int32 | number of the game in its generation |
| black, white | string | SHA-256 of the weights that played; in an imported game the name of the player |
| outcome | int8 | +1, 0, -1 for Black |
| margin | float32 | Black's area less White's less komi |
| end | string | how it ended; imported games have ends of their own (`zero.data.dataset.result`) |
| actions | list of int16, T long | |
| never_resigns | bool | a calibration game |
| ownership | list of int8, S*S long or empty | owner of each point at the end, +1, 0, -1 for Black |
| root_values | list of float32, T long | mean value of the search, seen by the player to move |
| best_values | list of float32, T long | mean value of the most visited action |
| visit_offsets | list of int32, T + 1 long | first entry of each move in the next two columns |
| visit_actions, visit_counts | lists of int16, uint16 | policy target by action; empty without full search |
| sample_weights | list of float32, T long | how often to draw the move for training; a column only if not all are 1 |
"""

import io
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zero.data.parquet_sizes import file_sizes
from zero.errors import StorageError
from zero.storage.manifests import GameRecord

NUM_ACTIONS_KEY = b"num_actions"
SCHEMA = pa.schema(
    [
        pa.field("game", pa.int32(), nullable=False),
        pa.field("black", pa.string(), nullable=False),
        pa.field("white", pa.string(), nullable=False),
        pa.field("outcome", pa.int8(), nullable=False),
        pa.field("margin", pa.float32(), nullable=False),
        pa.field("end", pa.string(), nullable=False),
        pa.field("never_resigns", pa.bool_(), nullable=False),
        pa.field("ownership", pa.list_(pa.int8()), nullable=False),
        pa.field("actions", pa.list_(pa.int16()), nullable=False),
        pa.field("root_values", pa.list_(pa.float32()), nullable=False),
        pa.field("best_values", pa.list_(pa.float32()), nullable=False),
        pa.field("visit_offsets", pa.list_(pa.int32()), nullable=False),
        pa.field("visit_actions", pa.list_(pa.int16()), nullable=False),
        pa.field("visit_counts", pa.list_(pa.uint16()), nullable=False),
    ]
)
WEIGHTS = "sample_weights"
WEIGHTS_SCHEMA = SCHEMA.append(pa.field(WEIGHTS, pa.list_(pa.float32()), nullable=False))
"""Schema of games whose moves have different weights as training samples."""
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3  # part of the bytes, as are the settings in `write_records`
SUMMARY_COLUMNS = [
    *("game", "black", "white", "outcome", "margin", "end", "never_resigns"),
    *("actions", "root_values", "best_values"),
]
STRING_COLUMNS = ["black", "white", "end"]
WIDE_COLUMNS = ("ownership", "visit_actions", "visit_counts")
"""Columns with more than one value per move."""
OFFSETS = ("ownership_offsets", "move_offsets", "visit_offsets")
VALUE_BYTES, NAMES_BYTES = 16, 1 << 20
"""Upper bounds: bytes of a value with its list levels and page headers; bytes of all names of players and ends."""
OTHER_COLUMNS = "does not have the columns of a shard of games"
RESTORE = "restore it with `dvc checkout --force`, or remove it from the store so that it is played again"


class Limits(NamedTuple):
    """Upper bounds of a shard's size: a few bytes of Parquet can decompress to more than the memory holds."""

    num_games: int
    num_moves: int  # values in a column with a value per move, of all games
    num_visits: int  # values in one of WIDE_COLUMNS, of all games


class GameColumns(NamedTuple):
    """The games of one or many shards, G games with M moves and V visited edges in all."""

    num_actions: int
    game: np.ndarray  # [G] int32
    black: tuple[str, ...]  # G
    white: tuple[str, ...]  # G
    outcome: np.ndarray  # [G] int8, +1, 0, -1 for Black
    margin: np.ndarray  # [G] float32
    end: tuple[str, ...]  # G
    never_resigns: np.ndarray  # [G] bool
    ownership_offsets: np.ndarray  # [G + 1] int64; a game has S*S owners or none
    ownership: np.ndarray  # [K] int8, +1, 0, -1 for Black
    move_offsets: np.ndarray  # [G + 1] int64, first move of each game
    actions: np.ndarray  # [M] int16
    root_values: np.ndarray  # [M] float32, seen by the player to move
    best_values: np.ndarray  # [M] float32, of the most visited action, seen by the player to move
    sample_weights: np.ndarray  # [M] float32, 1 if the file has none
    visit_offsets: np.ndarray  # [M + 1] int64, first visited edge of each move
    visit_actions: np.ndarray  # [V] int16
    visit_counts: np.ndarray  # [V] uint16

    @property
    def num_games(self) -> int:
        """G."""
        return len(self.game)

    @property
    def num_positions(self) -> int:
        """M, the number of positions in which a move was made, over all games."""
        return len(self.actions)


def write_records(records: Sequence[GameRecord]) -> bytes:
    """The Parquet file of one or more games, in the given order."""
    moves, edges = [0], [0]
    visit_offsets, visit_actions, visit_counts = [np.zeros(1, np.int64)], [], []
    for record in records:
        # Row by row: actions ascend within a move, as the data contract requires.
        move, action = np.nonzero(record.visit_counts)
        visit_offsets.append(edges[-1] + np.searchsorted(move, np.arange(1, len(record.actions) + 1)))
        moves.append(moves[-1] + len(record.actions))
        edges.append(edges[-1] + len(action))
        visit_actions.append(action)
        visit_counts.append(record.visit_counts[move, action])
    return write_columns(
        GameColumns(
            num_actions=records[0].visit_counts.shape[1],
            game=np.array([r.game for r in records], np.int32),
            black=tuple(r.black for r in records),
            white=tuple(r.white for r in records),
            outcome=np.array([r.outcome for r in records], np.int8),
            margin=np.array([r.margin for r in records], np.float32),
            end=tuple(r.end for r in records),
            never_resigns=np.array([r.never_resigns for r in records], np.bool_),
            ownership_offsets=np.cumsum([0, *(len(r.ownership) for r in records)]),
            ownership=_joined([r.ownership for r in records], np.int8),
            move_offsets=np.array(moves),
            actions=_joined([r.actions for r in records], np.int16),
            root_values=_joined([r.root_values for r in records], np.float32),
            best_values=_joined([r.best_values for r in records], np.float32),
            sample_weights=_joined([r.sample_weights for r in records], np.float32),
            visit_offsets=np.concatenate(visit_offsets),
            visit_actions=_joined(visit_actions, np.int16),
            visit_counts=_joined(visit_counts, np.uint16),
        )
    )


def write_columns(games: GameColumns) -> bytes:
    """The Parquet file of one or more games, in the given order."""
    first, end = games.move_offsets[:-1], games.move_offsets[1:]
    edges = games.visit_offsets[games.move_offsets]  # [G + 1], first visited edge of each game
    # In the file a game of T moves has T + 1 offsets, which count from its own first edge, so that a row can be read
    # without the rows before it.
    pairs = zip(first, end, strict=True)
    visit_offsets = np.concatenate([games.visit_offsets[a : b + 1] - games.visit_offsets[a] for a, b in pairs])
    columns = [
        _number_array(games.game, np.int32),
        _string_array(games.black),
        _string_array(games.white),
        _number_array(games.outcome, np.int8),
        _number_array(games.margin, np.float32),
        _string_array(games.end),
        _flag_array(games.never_resigns),
        _list_array(games.ownership_offsets, games.ownership, np.int8),
        _list_array(games.move_offsets, games.actions, np.int16),
        _list_array(games.move_offsets, games.root_values, np.float32),
        _list_array(games.move_offsets, games.best_values, np.float32),
        _list_array(games.move_offsets + np.arange(games.num_games + 1), visit_offsets, np.int32),
        _list_array(edges, games.visit_actions, np.int16),
        _list_array(edges, games.visit_counts, np.uint16),
    ]
    schema = SCHEMA
    if (games.sample_weights != 1.0).any():
        schema = WEIGHTS_SCHEMA
        columns.append(_list_array(games.move_offsets, games.sample_weights, np.float32))
    num_actions = str(games.num_actions).encode()
    table = pa.Table.from_arrays(columns, schema=schema.with_metadata({NUM_ACTIONS_KEY: num_actions}))
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        row_group_size=games.num_games,  # one row group: its size is known before the pages are read
        # Named even where they are today's defaults: another default of a newer pyarrow would change the bytes. They
        # also contain pyarrow's version, which is part of the execution profile.
        version="2.6",
        data_page_version="1.0",
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=STRING_COLUMNS,
    )
    return file.getvalue()


def read_records(data: bytes, source: str, limits: Limits | None = None) -> GameColumns:
    """The games of a shard, after checks of its columns and the ranges of its values.

    Args:
      data: the file.
      source: name of the file in an error.
      limits: upper bounds of its size, which also bound the memory; None for a file that was checked when it was
        recorded.

    Raises:
      StorageError: the file is not a shard, exceeds the limits, or its columns are inconsistent.
    """
    try:
        # Before Arrow opens the file, because it allocates as much as the page headers ask for.
        if limits is not None:
            _check_sizes(data, source, limits)
        # Strings stay dictionary-encoded: a long name that all games refer to would fill the memory if copied.
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=STRING_COLUMNS)
        num_actions = int((file.schema_arrow.metadata or {}).get(NUM_ACTIONS_KEY, b"0"))
        if _types(file.schema_arrow) not in (_types(SCHEMA), _types(WEIGHTS_SCHEMA)):
            raise StorageError(f"{source} {OTHER_COLUMNS}; {RESTORE}")
        # One thread: the shard processes already use all cores.
        table = file.read(use_threads=False).combine_chunks()
        table.validate(full=True)  # strings are UTF-8
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise StorageError(f"{source} is not a shard of games: {' '.join(str(error).split())}; {RESTORE}") from None
    if num_actions < 1 or table.num_rows < 1 or _has_nulls(table):
        raise StorageError(f"{source} {OTHER_COLUMNS}; {RESTORE}")
    move_offsets, actions = _flat(table, "actions")
    value_offsets, root_values = _flat(table, "root_values")
    best_offsets, best_values = _flat(table, "best_values")
    ownership_offsets, ownership = _flat(table, "ownership")
    offset_offsets, visit_offsets = _flat(table, "visit_offsets")
    edge_offsets, visit_actions = _flat(table, "visit_actions")
    count_offsets, visit_counts = _flat(table, "visit_counts")
    weight_offsets, sample_weights = move_offsets, np.ones(len(actions), np.float32)
    if WEIGHTS in table.column_names:
        weight_offsets, sample_weights = _flat(table, WEIGHTS)
    # Offsets of a game begin at 0 and end at the number of its edges. Those between are checked as differences below.
    if not (
        np.array_equal(move_offsets, value_offsets)
        and np.array_equal(move_offsets, best_offsets)
        and np.array_equal(move_offsets, weight_offsets)
        and np.array_equal(np.diff(offset_offsets), np.diff(move_offsets) + 1)
        and np.array_equal(edge_offsets, count_offsets)
        and np.array_equal(visit_offsets[offset_offsets[:-1]], np.zeros(table.num_rows))
        and np.array_equal(visit_offsets[offset_offsets[1:] - 1], np.diff(edge_offsets))
    ):
        raise StorageError(f"{source} has columns of different lengths; {RESTORE}")
    # the last offset of a game is the first of the next one
    starts = np.delete(visit_offsets, offset_offsets[1:] - 1) + np.repeat(edge_offsets[:-1], np.diff(move_offsets))
    columns = GameColumns(
        num_actions=num_actions,
        game=_numbers(table, "game"),
        black=_names(table, "black"),
        white=_names(table, "white"),
        outcome=_numbers(table, "outcome"),
        margin=_numbers(table, "margin"),
        end=_names(table, "end"),
        never_resigns=np.array(table.column("never_resigns").to_pylist()),
        ownership_offsets=ownership_offsets,
        ownership=ownership,
        move_offsets=move_offsets,
        actions=actions,
        root_values=root_values,
        best_values=best_values,
        sample_weights=sample_weights,
        visit_offsets=np.append(starts, edge_offsets[-1]),
        visit_actions=visit_actions,
        visit_counts=visit_counts,
    )
    if not (
        _within(columns.actions, 0, num_actions - 1)
        and _within(columns.visit_actions, 0, num_actions - 1)
        and _within(columns.outcome, -1, 1)
        and _within(columns.ownership, -1, 1)
        and _within(columns.sample_weights, 0, float(np.finfo(np.float32).max))  # neither NaN nor infinite
        and _within(np.diff(columns.visit_offsets), 0, num_actions)
    ):
        raise StorageError(f"{source} holds an action, outcome or sample weight out of range; {RESTORE}")
    return columns


def read_summaries(data: bytes, source: str) -> GameColumns:
    """The games of a shard without ownership, visits and sample weights, which take most of the time and memory.

    Args:
      data: the file, whose content was checked before.
      source: name of the file in an error.

    Raises:
      StorageError: the file is not a shard.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=STRING_COLUMNS)
        num_actions = int((file.schema_arrow.metadata or {}).get(NUM_ACTIONS_KEY, b"0"))
        table = file.read(columns=SUMMARY_COLUMNS, use_threads=False).combine_chunks()
        move_offsets, actions = _flat(table, "actions")
        return GameColumns(
            num_actions=num_actions,
            game=_numbers(table, "game"),
            black=_names(table, "black"),
            white=_names(table, "white"),
            outcome=_numbers(table, "outcome"),
            margin=_numbers(table, "margin"),
            end=_names(table, "end"),
            never_resigns=np.array(table.column("never_resigns").to_pylist()),
            ownership_offsets=np.zeros(table.num_rows + 1, np.int64),
            ownership=np.zeros(0, np.int8),
            move_offsets=move_offsets,
            actions=actions,
            root_values=_flat(table, "root_values")[1],
            best_values=_flat(table, "best_values")[1],
            sample_weights=np.ones(len(actions), np.float32),
            visit_offsets=np.zeros(len(actions) + 1, np.int64),
            visit_actions=np.zeros(0, np.int16),
            visit_counts=np.zeros(0, np.uint16),
        )
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise StorageError(f"{source} is not a shard of games: {' '.join(str(error).split())}; {RESTORE}") from None


def game_record(columns: GameColumns, index: int) -> GameRecord:
    """One game of the columns as a record."""
    moves = slice(columns.move_offsets[index], columns.move_offsets[index + 1])
    num_moves = moves.stop - moves.start
    edge_offsets = columns.visit_offsets[moves.start : moves.stop + 1]
    edges = slice(edge_offsets[0], edge_offsets[-1])
    visit_counts = np.zeros((num_moves, columns.num_actions), np.uint16)
    move = np.repeat(np.arange(num_moves), np.diff(edge_offsets))
    visit_counts[move, columns.visit_actions[edges]] = columns.visit_counts[edges]
    return GameRecord(
        actions=columns.actions[moves],
        visit_counts=visit_counts,
        root_values=columns.root_values[moves],
        best_values=columns.best_values[moves],
        sample_weights=columns.sample_weights[moves],
        ownership=columns.ownership[columns.ownership_offsets[index] : columns.ownership_offsets[index + 1]],
        outcome=int(columns.outcome[index]),
        margin=float(columns.margin[index]),
        end=columns.end[index],
        never_resigns=bool(columns.never_resigns[index]),
        game=int(columns.game[index]),
        black=columns.black[index],
        white=columns.white[index],
    )


def select_games(columns: GameColumns, first: int) -> GameColumns:
    """The games from index `first`."""
    moves = columns.move_offsets[first:]
    edges = columns.visit_offsets[moves[0] :]
    return GameColumns(
        num_actions=columns.num_actions,
        game=columns.game[first:],
        black=columns.black[first:],
        white=columns.white[first:],
        outcome=columns.outcome[first:],
        margin=columns.margin[first:],
        end=columns.end[first:],
        never_resigns=columns.never_resigns[first:],
        ownership_offsets=columns.ownership_offsets[first:] - columns.ownership_offsets[first],
        ownership=columns.ownership[columns.ownership_offsets[first] :],
        move_offsets=moves - moves[0],
        actions=columns.actions[moves[0] :],
        root_values=columns.root_values[moves[0] :],
        best_values=columns.best_values[moves[0] :],
        sample_weights=columns.sample_weights[moves[0] :],
        visit_offsets=edges - edges[0],
        visit_actions=columns.visit_actions[edges[0] :],
        visit_counts=columns.visit_counts[edges[0] :],
    )


def concatenate(parts: Iterable[GameColumns]) -> GameColumns:
    """Concatenates shards of the same game, in the given order.

    The result grows in place, and only one part is in memory beside it: a window of games can fill most of the memory.
    """
    names: dict[str, list[str]] = {name: [] for name in STRING_COLUMNS}
    arrays: dict[str, np.ndarray] = {}
    num_actions = 0
    for part in parts:
        assert num_actions in (0, part.num_actions)
        num_actions = part.num_actions
        for name, values in part._asdict().items():
            if name in names:
                names[name].extend(map(sys.intern, values))  # a window has millions of names, few different
            elif name in OFFSETS:
                # The first offset of a part is 0 and equals the last one of the parts before it, so it is left out.
                offsets = arrays.setdefault(name, np.zeros(1, np.int64))
                _append(offsets, values[1:] + offsets[-1])
            elif name != "num_actions":
                _append(arrays.setdefault(name, np.zeros(0, values.dtype)), values)
    fields: dict[str, Any] = {name: tuple(values) for name, values in names.items()} | arrays
    return GameColumns(num_actions=num_actions, **fields)


def _append(array: np.ndarray, values: np.ndarray) -> None:
    """Appends to an array that owns its memory and has no views. Writes into `array`."""
    size = len(array)
    array.resize(size + len(values), refcheck=False)  # realloc remaps the pages of a large array instead of copying
    array[size:] = values


def _joined(values: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([value.astype(dtype, casting="unsafe") for value in values])


def _list_array(offsets: np.ndarray, values: np.ndarray, dtype: type) -> pa.ListArray:
    return pa.ListArray.from_arrays(_number_array(offsets, np.int32), _number_array(values, dtype))


# `pa.array` and `to_numpy` import pandas if it is installed: 0.4 s in each process that plays or reads shards.


def _number_array(values: Sequence[float] | np.ndarray, dtype: type) -> pa.Array:
    data: np.ndarray = np.ascontiguousarray(values, dtype)
    return pa.Array.from_buffers(pa.from_numpy_dtype(data.dtype), len(data), [None, pa.py_buffer(data)])


def _flag_array(values: np.ndarray) -> pa.BooleanArray:
    # In Arrow's bitmaps the first value is the lowest bit.
    bits = np.packbits(values, bitorder="little")
    return pa.BooleanArray.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def _string_array(values: Sequence[str]) -> pa.StringArray:
    data = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(b"".join(data)))


def _check_sizes(data: bytes, source: str, limits: Limits) -> None:
    """Checks the sizes of a file before any page is decompressed.

    Raises:
      StorageError: the file has more games, values or bytes than `limits`.
      ValueError: it is not a file of this module, or its footer does not match its pages.
    """
    sizes = file_sizes(data, (len(SCHEMA), len(WEIGHTS_SCHEMA)))
    # A small file can also name huge pages that hold few values, so bytes have a limit of their own.
    names = WEIGHTS_SCHEMA.names[: len(sizes.num_values)]
    most = [limits.num_visits if name in WIDE_COLUMNS else limits.num_moves for name in names]
    columns = zip(names, sizes.num_values, most, strict=True)
    max_bytes = VALUE_BYTES * sum(most) + NAMES_BYTES
    for number, limit, unit in (
        (sizes.num_rows, limits.num_games, "games"),
        *((values, limit, f"values in {name}") for name, values, limit in columns),
        (sizes.num_bytes, max_bytes, "bytes"),
    ):
        if number > limit:
            raise StorageError(f"{source} has {number} {unit}, at most {limit} are possible; {RESTORE}")


def _types(schema: pa.Schema) -> list[tuple[str, bool, pa.DataType]]:
    """Name, whether it is a list, and value type of each column; Parquet names the items of a list differently."""
    return [
        (field.name, pa.types.is_list(field.type), field.type.value_type if _is_nested(field.type) else field.type)
        for field in schema
    ]


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_dictionary(kind))


def _has_nulls(table: pa.Table) -> bool:
    columns = [column.chunk(0) for column in table.columns]
    return any(c.null_count or (pa.types.is_list(c.type) and c.values.null_count) for c in columns)


def _flat(table: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Offsets [G + 1] int64 and values of a list column."""
    # `read_records` has combined the chunks, so there is one. The arrays share Arrow's memory.
    column = table.column(name).chunk(0)
    return np.from_dlpack(column.offsets).astype(np.int64), np.from_dlpack(column.values)


def _names(table: pa.Table, name: str) -> tuple[str, ...]:
    """A string column; equal names share one object."""
    column = table.column(name).chunk(0)
    names = column.dictionary.to_pylist()
    return tuple(names[index] for index in column.indices.to_pylist())


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return np.from_dlpack(table.column(name).chunk(0))


def _within(values: np.ndarray, low: float, high: float) -> bool:
    return len(values) == 0 or bool(values.min() >= low and values.max() <= high)
