"""True sizes of a Parquet file, read from its footer and page headers before any page is decompressed.

Arrow's reader allocates what row counts and page headers say, and other sizes in the footer can lie. Arrow's own
classes for metadata abort the process on some damaged footers, so this module parses the bytes itself. It accepts only
files with the features that `zero.data.records` writes.

Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, in the compact protocol of
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

MAGIC = b"PAR1"
DATA_PAGE, DICTIONARY_PAGE = 0, 2
ENCODINGS = (0, 2, 8)
"""PLAIN, PLAIN_DICTIONARY and RLE_DICTIONARY. Others can store long strings in a few bytes."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
"""Types of the compact protocol."""
BITS = {I16: 16, I32: 32, I64: 64}
LONG_LIST = 15
"""Size in the head of a list whose size follows as a number."""
MAX_DEPTH = 16
MAX_FOOTER_BYTES, MAX_HEADER_BYTES = 1 << 20, 1 << 16
"""Limits of the bytes that are parsed: as Python objects they take many times their size. Real ones have some kB."""

ROW_GROUPS = (4, LIST)  # of FileMetaData
COLUMNS, NUM_ROWS = (1, LIST), (3, I64)  # of RowGroup
META_DATA = (3, STRUCT)  # of ColumnChunk
COLUMN_VALUES, COMPRESSED_SIZE, DATA_OFFSET, DICTIONARY_OFFSET = (5, I64), (7, I64), (9, I64), (11, I64)
"""Fields of ColumnMetaData."""
PAGE_TYPE, PAGE_UNCOMPRESSED, PAGE_COMPRESSED = (1, I32), (2, I32), (3, I32)
DATA_HEADER, DICTIONARY_HEADER = (5, STRUCT), (7, STRUCT)
"""Fields of PageHeader."""
PAGE_VALUES, ENCODING = (1, I32), (2, I32)
"""Fields of DataPageHeader and DictionaryPageHeader."""

Field = tuple[int, int]
"""Number and type: like Arrow's reader, a lookup does not find a field of another type."""
Struct = dict[Field, Any]


class FileSizes(NamedTuple):
    """Sizes of a file with one row group."""

    num_rows: int
    num_values: tuple[int, ...]  # by column; of the pages or of a dictionary, whichever has more
    num_bytes: int  # of all pages, uncompressed, with their headers


def file_sizes(data: bytes, num_columns: Sequence[int]) -> FileSizes:
    """Sizes of a file with one row group, whose number of columns is one of `num_columns`.

    Raises:
      ValueError: the file has another structure, other features, or a footer that does not match its pages.
    """
    # A file ends with the footer, its length (4 bytes, little-endian) and PAR1.
    length, view = int.from_bytes(data[-8:-4], "little"), memoryview(data)
    if data[-4:] != MAGIC or length > min(len(data) - 8, MAX_FOOTER_BYTES):
        raise ValueError("no Parquet footer, or one that is too long")
    footer, _ = _struct(view[len(data) - 8 - length : -8], 0, 0)
    groups = footer.get(ROW_GROUPS, [])
    if len(groups) != 1 or len(columns := _get(groups[0], COLUMNS)) not in num_columns:
        raise ValueError(f"not one row group of {' or '.join(map(str, num_columns))} columns")
    sizes = [_column_sizes(view, _get(column, META_DATA)) for column in columns]
    return FileSizes(
        num_rows=_get(groups[0], NUM_ROWS),
        num_values=tuple(num_values for num_values, _ in sizes),
        num_bytes=sum(num_bytes for _, num_bytes in sizes),
    )


def _column_sizes(data: memoryview, column: Struct) -> tuple[int, int]:
    """Values of a column, and bytes of all its pages.

    A dictionary counts with its own values: Arrow allocates them before it decompresses the page.
    """
    start = _get(column, DATA_OFFSET)
    if 0 < column.get(DICTIONARY_OFFSET, 0) < start:  # the rule of Arrow's reader
        start = column[DICTIONARY_OFFSET]
    end = start + _get(column, COMPRESSED_SIZE)
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"column at bytes {start} to {end} of a file of {len(data)}")
    num_values = num_bytes = dictionary_values = 0
    # A column chunk is a row of pages: a header in the compact protocol, then the compressed bytes.
    position = start
    while position < end:
        header, header_bytes = _struct(data[position : position + MAX_HEADER_BYTES], 0, 0)
        kind, compressed = _get(header, PAGE_TYPE), _get(header, PAGE_COMPRESSED)
        uncompressed = _get(header, PAGE_UNCOMPRESSED)
        if kind not in (DATA_PAGE, DICTIONARY_PAGE):
            raise ValueError(f"page of unsupported type {kind} at byte {position}")
        details = _get(header, DATA_HEADER if kind == DATA_PAGE else DICTIONARY_HEADER)
        if _get(details, ENCODING) not in ENCODINGS:
            raise ValueError(f"page of unsupported encoding {details[ENCODING]} at byte {position}")
        values = _get(details, PAGE_VALUES)
        if min(compressed, uncompressed, values) < 0:
            raise ValueError(f"page of negative size at byte {position}")
        if kind == DATA_PAGE:
            num_values += values
        else:
            dictionary_values = max(dictionary_values, values)
        num_bytes += header_bytes + uncompressed
        position += header_bytes + compressed
    if position != end:
        raise ValueError(f"pages that do not end with their column at byte {end}")
    if num_values != _get(column, COLUMN_VALUES):
        raise ValueError(f"pages of {num_values} values, but the footer says {column[COLUMN_VALUES]}")
    return max(num_values, dictionary_values), num_bytes


def _get(fields: Struct, field: Field) -> Any:
    # A damaged file can have another type in place of a struct.
    if not isinstance(fields, dict) or field not in fields:
        raise ValueError(f"field {field[0]} is missing")
    return fields[field]


def _struct(data: memoryview, position: int, depth: int) -> tuple[Struct, int]:
    """A struct, and the position after it."""
    fields: Struct = {}
    number = 0
    while True:
        head, position = _byte(data, position)
        if head == 0:
            return fields, position
        # The head of a field: its type in the lower 4 bits, and in the upper ones its number less the one before. 0
        # there means that the number follows; a head of 0 ends the struct.
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, position = _integer(data, position, I16)
        if kind in (TRUE, FALSE):
            fields[number, kind] = kind == TRUE  # the value is in the type
        else:
            fields[number, kind], position = _value(data, position, kind, depth)


def _value(data: memoryview, position: int, kind: int, depth: int) -> tuple[Any, int]:
    """A value of a struct or a list, and the position after it; the content of doubles and binaries is skipped."""
    if depth > MAX_DEPTH:
        raise ValueError(f"structs nested too deeply at byte {position}")
    if kind in BITS:
        return _integer(data, position, kind)
    # Only as an element of a list does a boolean take a byte.
    if kind in (TRUE, FALSE, BYTE):
        return _byte(data, position)
    if kind == DOUBLE:
        return None, _inside(data, position + 8)
    if kind == BINARY:
        length, position = _varint(data, position)
        return None, _inside(data, position + length)
    if kind == LIST:
        head, position = _byte(data, position)
        size = head >> 4
        if size == LONG_LIST:
            size, position = _varint(data, position)
        values = []
        for _ in range(size):  # each takes a byte or more, so that a huge size ends at the end of the data
            value, position = _value(data, position, head & 0x0F, depth + 1)
            values.append(value)
        return values, position
    if kind == STRUCT:
        return _struct(data, position, depth + 1)
    raise ValueError(f"field of unsupported type {kind} at byte {position}")


def _integer(data: memoryview, position: int, kind: int) -> tuple[int, int]:
    """A zigzag number, cut to the bits of its type like Arrow's reader does."""
    value, position = _varint(data, position)
    value &= (1 << BITS[kind]) - 1
    # Zigzag: 0, -1, 1, -2 are stored as 0, 1, 2, 3.
    return (value >> 1) ^ -(value & 1), position


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, position = _byte(data, position)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        # 64 bits take at most ten bytes of seven bits.
        if shift > 63:
            raise ValueError(f"number too long at byte {position}")


def _byte(data: memoryview, position: int) -> tuple[int, int]:
    end = _inside(data, position + 1)
    return data[position], end


def _inside(data: memoryview, position: int) -> int:
    """The position; an error if it is beyond the end."""
    if position > len(data):
        raise ValueError("structure beyond the end of its bytes")
    return position
