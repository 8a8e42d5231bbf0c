"""Shards of games as files and as columns."""

import contextlib
import gc
import io
import itertools
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.made_games import GO5, made_records
from zero.data.parquet_sizes import file_sizes
from zero.data.records import Limits, concatenate, game_record, read_records, select_games, write_columns, write_records
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.storage.manifests import GameRecord

RULES = rules_of(GO5)
RECORDS = made_records(RULES, 4)
DATA = write_records(RECORDS)


def assert_equal(found: GameRecord, expected: GameRecord) -> None:
    for name, one, other in zip(GameRecord._fields, found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert type(one) is type(other), name
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None), name


def test_games_are_read_back_equal():
    columns = read_records(DATA, "shard")
    assert (columns.num_games, columns.num_actions) == (4, 26)
    for index, record in enumerate(RECORDS):
        assert_equal(game_record(columns, index), record)


def test_a_move_without_visits_is_read_back():
    visit_counts = RECORDS[0].visit_counts.copy()
    visit_counts[[0, 3, -1]] = 0
    record = RECORDS[0]._replace(visit_counts=visit_counts)
    assert_equal(game_record(read_records(write_records([RECORDS[1], record]), "shard"), 1), record)


WEIGHTED = [
    record._replace(sample_weights=np.linspace(0.5, 1.5, len(record.actions), dtype=np.float32)) for record in RECORDS
]


def test_weights_of_samples_are_a_column_only_if_they_differ():
    assert "sample_weights" not in pq.read_table(io.BytesIO(DATA)).column_names
    assert pq.read_table(io.BytesIO(write_records(WEIGHTED))).column_names[-1] == "sample_weights"


def test_games_with_and_without_weights_are_in_one_window():
    parts = [read_records(write_records(part), "shard") for part in (RECORDS[:2], WEIGHTED[2:])]
    columns = concatenate(parts)
    for index, record in enumerate([*RECORDS[:2], *WEIGHTED[2:]]):
        assert_equal(game_record(columns, index), record)
    assert_equal(game_record(select_games(columns, 3), 0), WEIGHTED[3])
    assert write_columns(select_games(columns, 2)) == write_records(WEIGHTED[2:])


def test_a_list_of_weights_of_another_length_is_rejected():
    table = pq.read_table(io.BytesIO(write_records(WEIGHTED)))
    weights = [values.as_py()[:-1] for values in table.column("sample_weights")]
    index, field = table.num_columns - 1, table.schema.field("sample_weights")
    file = io.BytesIO()
    pq.write_table(table.set_column(index, field, pa.array(weights, field.type)), file)
    with pytest.raises(StorageError, match="columns of different lengths"):
        read_records(file.getvalue(), "shard")


def test_equal_games_give_equal_bytes():
    assert write_records(made_records(RULES, 4)) == DATA
    assert write_records(RECORDS[:3]) != DATA


def test_the_columns_are_those_of_the_table():
    table = pq.read_table(io.BytesIO(DATA))
    game = table.slice(1, 1).to_pylist()[0]
    assert table.num_rows == 4
    assert game["actions"] == RECORDS[1].actions.tolist()
    assert game["outcome"] == RECORDS[1].outcome
    move, action = np.nonzero(RECORDS[1].visit_counts)
    assert game["visit_actions"] == action.tolist()
    assert game["visit_counts"] == RECORDS[1].visit_counts[move, action].tolist()
    assert game["visit_offsets"] == [int((move < t).sum()) for t in range(len(RECORDS[1].actions) + 1)]


def test_shards_are_concatenated_in_order():
    columns = concatenate(
        [read_records(write_records(part), "shard") for part in (RECORDS[:1], RECORDS[1:3], RECORDS[3:])]
    )
    assert columns.num_positions == sum(len(record.actions) for record in RECORDS)
    for index, record in enumerate(RECORDS):
        assert_equal(game_record(columns, index), record)


def test_concatenation_has_one_part_in_memory_beside_the_result():
    def parts():
        for _ in range(200):
            yield read_records(DATA, "shard")

    size = sum(array.nbytes for array in read_records(DATA, "shard") if isinstance(array, np.ndarray))
    concatenate(parts())
    tracemalloc.start()
    try:
        columns = concatenate(parts())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert columns.num_games == 800
    assert peak < 220 * size


def test_the_oldest_games_can_be_left_out():
    columns = select_games(read_records(DATA, "shard"), 2)
    assert columns.num_games == 2
    assert_equal(game_record(columns, 0), RECORDS[2])
    assert_equal(game_record(columns, 1), RECORDS[3])
    assert columns.move_offsets[0] == columns.visit_offsets[0] == 0
    assert len(columns.visit_counts) == columns.visit_offsets[-1]


@pytest.mark.parametrize("data", [b"", b"PAR1", DATA[:-1], DATA[: len(DATA) // 2], b"x" * 4096])
def test_a_broken_file_is_rejected(data):
    with pytest.raises(StorageError, match=r"shard-7 is not a shard of games.*dvc checkout"):
        read_records(data, "shard-7")


def changed(change: Callable[[pa.Table], pa.Table]) -> bytes:
    file = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(DATA))), file)
    return file.getvalue()


def with_column(name: str, values: Sequence[Sequence[float]] | list[str]) -> bytes:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))

    return changed(change)


def changed_values(name: str, game: int, change: Callable[[list[float]], object]) -> bytes:
    """A file in which a list of one game is changed in place."""
    values = pq.read_table(io.BytesIO(DATA)).column(name).to_pylist()
    change(values[game])
    return with_column(name, values)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: changed(lambda table: table.drop_columns(["margin"])), "does not have the columns"),
        (lambda: changed_values("actions", 2, lambda v: v.__setitem__(0, 26)), "out of range"),
        (lambda: changed_values("root_values", 0, lambda v: v.append(0.0)), "different lengths"),
        (lambda: changed_values("visit_offsets", 1, lambda v: v.__setitem__(-1, v[-1] - 1)), "different lengths"),
        (lambda: changed_values("visit_offsets", 1, lambda v: v.__setitem__(1, v[2] + 1)), "out of range"),
    ],
    ids=["a column lost", "an action beyond the board", "a value too many", "visits lost", "offsets that fall"],
)
def test_columns_that_do_not_fit_are_rejected(data, message):
    with pytest.raises(StorageError, match=message):
        read_records(data(), "shard")


def test_a_string_that_is_not_utf_8_is_rejected():
    def change(table: pa.Table) -> pa.Table:
        field = table.schema.field("end")
        bad = [b"\xff\xfe", *(word.encode() for word in table.column("end").to_pylist()[1:])]
        values = pa.array(bad, pa.binary())
        declared = pa.StringArray.from_buffers(len(values), *values.buffers()[1:])
        return table.set_column(table.schema.get_field_index("end"), field, declared)

    with pytest.raises(StorageError, match=r"shard-7 is not a shard of games: .*UTF8.*dvc checkout"):
        read_records(changed(change), "shard-7")


def test_a_shard_within_its_limits_is_read():
    longest = max(len(column.values) for column in pq.read_table(io.BytesIO(DATA)).column("visit_counts").chunks)
    values = sum(len(record.actions) + 1 for record in RECORDS)
    assert read_records(DATA, "shard", Limits(4, values, longest)).num_games == 4
    with pytest.raises(StorageError, match=f"has {longest} values in visit_actions, at most {longest - 1} are"):
        read_records(DATA, "shard", Limits(4, values, longest - 1))
    with pytest.raises(StorageError, match=f"has {values} values in visit_offsets, at most {values - 1} are"):
        read_records(DATA, "shard", Limits(4, values - 1, longest))
    with pytest.raises(StorageError, match="shard has 4 games, at most 3 are possible"):
        read_records(DATA, "shard", Limits(3, values, longest))


def test_a_bomb_is_rejected_before_decompression():
    """Run-length encoding stores three million equal values in a few bytes."""
    bomb = with_column("actions", [[0] * 3_000_000, [0], [0], [0]])
    assert len(bomb) < 20_000
    gc.collect()
    before = pa.total_allocated_bytes()
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(StorageError, match="has 3000003 values in actions, at most 100000 are possible"):
        read_records(bomb, "shard", Limits(4, 100_000, 100_000))
    assert pa.total_allocated_bytes() <= before, "what other tests left may be freed meanwhile"
    assert pa.default_memory_pool().max_memory() == peak


def with_lie(data: bytes, value: int, lie: int) -> bytes:
    """A file whose footer has another number wherever it had `value`."""

    def number(value: int, length: int = 0) -> bytes:
        value, found = 2 * value, bytearray()  # zigzag, then 7 bits a byte; trailing zeros do not change the value
        while value >= 0x80 or len(found) + 1 < length:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*found, value])

    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    old = number(value)
    assert data.count(old, start)
    return data[:start] + data[start:].replace(old, number(lie, len(old)))


def test_a_footer_that_hides_values_is_rejected_before_decompression():
    bomb = with_lie(with_column("actions", [[0] * 3_000_000, [0], [0], [0]]), 3_000_003, 200)
    assert pq.ParquetFile(io.BytesIO(bomb)).metadata.row_group(0).column(8).num_values == 200
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(StorageError, match="pages of 3000003 values, but the footer says 200; restore"):
        read_records(bomb, "shard", Limits(4, 100_000, 100_000))
    assert pa.default_memory_pool().max_memory() == peak


def test_a_footer_that_hides_bytes_is_rejected_before_decompression():
    bomb = with_column("end", ["x" * 50_000_000, "full", "full", "full"])
    column = pq.ParquetFile(io.BytesIO(bomb)).metadata.row_group(0).column(5)
    bomb = with_lie(bomb, column.total_uncompressed_size, 100)
    peak = pa.default_memory_pool().max_memory()
    with pytest.raises(StorageError, match=r"has 500\d+ bytes, at most \d+ are possible"):
        read_records(bomb, "shard", Limits(4, 10_000, 10_000))
    assert pa.default_memory_pool().max_memory() == peak


def test_a_long_name_of_all_games_is_in_memory_once():
    records = [record._replace(white="w" * 300_000) for record in RECORDS] * 50
    data = write_records(records)
    tracemalloc.start()
    try:
        columns = read_records(data, "shard", Limits(200, 100_000, 100_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert columns.white[0] is columns.white[-1]
    assert peak < 10_000_000


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_encodings_that_the_writer_does_not_use_are_rejected(encoding):
    file = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(DATA)), file, use_dictionary=False, column_encoding={"end": encoding})
    with pytest.raises(StorageError, match="page of unsupported encoding"):
        read_records(file.getvalue(), "shard", Limits(4, 10_000, 10_000))


def test_several_row_groups_are_rejected():
    file = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(DATA)), file, row_group_size=2)
    with pytest.raises(StorageError, match="not one row group of 14 or 15 columns"):
        read_records(file.getvalue(), "shard", Limits(4, 10_000, 10_000))


def test_every_flipped_byte_is_rejected_or_within_the_limits():
    longest = max(len(column.values) for column in pq.read_table(io.BytesIO(DATA)).column("visit_counts").chunks)
    for position in range(0, len(DATA), 17):
        damaged = bytearray(DATA)
        damaged[position] ^= 0x55
        try:
            columns = read_records(bytes(damaged), "shard", Limits(4, longest, longest))
        except StorageError:
            continue
        assert columns.num_games == 4 and len(columns.visit_counts) <= longest


def test_a_damaged_footer_is_an_error_of_the_file():
    start = len(DATA) - 8 - int.from_bytes(DATA[-8:-4], "little")
    values = (0x09, 0x18, 0x19, 0x1C, 0x29, 0x5C, 0xFF)  # heads of lists, binaries and structs
    for position, value in zip(range(start, len(DATA) - 8), itertools.cycle(values), strict=False):
        damaged = bytearray(DATA)
        damaged[position] = value
        with contextlib.suppress(ValueError):
            file_sizes(bytes(damaged), (14,))


def test_a_list_of_numbers_beyond_the_end_of_the_footer_is_an_error():
    """Eight bytes each, which are skipped: 2 ** 62 of them."""
    footer = bytes([0x19, 0xF7, *[0xFF] * 8, 0x3F])  # field 1: a long list of doubles
    with pytest.raises(ValueError, match="beyond the end"):
        file_sizes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1", (14,))


def test_a_dictionary_counts_with_its_own_values():
    """Arrow allocates what the head of the page says before it reads the page."""
    column = pq.ParquetFile(io.BytesIO(DATA)).metadata.row_group(0).column(5)
    assert column.path_in_schema == "end"
    head = slice(column.dictionary_page_offset, column.dictionary_page_offset + 16)
    number = len(pq.read_table(io.BytesIO(DATA)).column("end").unique())
    count = bytes([0x4C, 0x15, 2 * number])  # field 7, a struct; its field 1, a number in zigzag
    assert DATA[head].count(count) == 1
    damaged = bytearray(DATA)
    damaged[head] = DATA[head].replace(count, bytes([0x4C, 0x15, 126]))
    assert file_sizes(DATA, (14,)).num_values[5] == 4
    assert file_sizes(bytes(damaged), (14,)).num_values[5] == 63


@pytest.mark.parametrize("weight", [np.nan, np.inf, -0.5])
def test_an_impossible_weight_is_rejected(weight):
    weights = WEIGHTED[0].sample_weights.copy()
    weights[3] = weight
    with pytest.raises(StorageError, match="sample weight out of range"):
        read_records(write_records([WEIGHTED[0]._replace(sample_weights=weights)]), "shard")


@pytest.mark.parametrize(("name", "missing"), [("outcome", None), ("actions", [None])])
def test_a_missing_value_is_rejected(name, missing):
    def change(table: pa.Table) -> pa.Table:
        field = table.schema.field(name)
        values = pa.array([missing, *table.column(name).to_pylist()[1:]], field.type)
        return table.set_column(table.schema.get_field_index(name), pa.field(name, field.type), values)

    with pytest.raises(StorageError, match="does not have the columns"):
        read_records(changed(change), "shard")


def test_a_process_that_writes_and_reads_imports_no_pandas(tmp_path):
    """The import would take longer than writing and reading."""
    (tmp_path / "shard").write_bytes(DATA)
    code = (
        "import pathlib, sys; from zero.data.records import *; "
        "columns = read_records(pathlib.Path(sys.argv[1]).read_bytes(), ''); "
        "write_records([game_record(columns, 0)]); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "shard")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pyarrow.parquet" in result.stdout.split()
    assert "pandas" not in result.stdout.split()
