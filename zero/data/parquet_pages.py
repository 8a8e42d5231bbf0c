"""Sizes of the pages of a Parquet column, read from the page headers.

The footer of a file can lie about sizes, but the reader allocates what the page headers say. This module reads the
headers without decompressing any page. It accepts only the pages that `zero.data.records` writes.

Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, in the compact protocol of
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from typing import NamedTuple

DATA_PAGE, DICTIONARY_PAGE = 0, 2
ENCODINGS = (0, 2, 8)
"""PLAIN, PLAIN_DICTIONARY and RLE_DICTIONARY. Others can store long strings in a few bytes."""
PAGE_TYPE, UNCOMPRESSED_SIZE, COMPRESSED_SIZE, DATA_HEADER, DICTIONARY_HEADER = 1, 2, 3, 5, 7
"""Field numbers of PageHeader."""
NUM_VALUES, ENCODING = 1, 2
"""Field numbers of DataPageHeader and DictionaryPageHeader."""
TRUE, FALSE, BYTE, I16, I32, I64, BINARY, STRUCT = 1, 2, 3, 4, 5, 6, 8, 12
"""Types of the compact protocol that a page header can have."""
MAX_DEPTH = 4

Struct = dict[int, "int | Struct"]


class ColumnSizes(NamedTuple):
    """Sizes of a column chunk."""

    num_values: int  # in data pages
    num_bytes: int  # uncompressed, with headers


def column_sizes(data: bytes, start: int, end: int) -> ColumnSizes:
    """Sizes of the column chunk in `data[start:end]`.

    Raises:
      ValueError: the chunk is not a sequence of supported pages.
    """
    num_values = num_bytes = 0
    position = start
    while position < end:
        header, page = _struct(data, position, 0)
        kind, compressed, uncompressed = (_number(header, i) for i in (PAGE_TYPE, COMPRESSED_SIZE, UNCOMPRESSED_SIZE))
        details = header.get(DATA_HEADER if kind == DATA_PAGE else DICTIONARY_HEADER)
        if kind not in (DATA_PAGE, DICTIONARY_PAGE) or not isinstance(details, dict):
            raise ValueError(f"page of unsupported type {kind} at byte {position}")
        if _number(details, ENCODING) not in ENCODINGS:
            raise ValueError(f"page of unsupported encoding {_number(details, ENCODING)} at byte {position}")
        values = _number(details, NUM_VALUES)
        if min(compressed, uncompressed, values) < 0:
            raise ValueError(f"page of negative size at byte {position}")
        num_values += values if kind == DATA_PAGE else 0
        num_bytes += page - position + uncompressed
        position = page + compressed
    if position != end:
        raise ValueError(f"page beyond the end of its column at byte {end}")
    return ColumnSizes(num_values, num_bytes)


def _struct(data: bytes, position: int, depth: int) -> tuple[Struct, int]:
    """A struct by field number, without its binary fields, and the position after it."""
    if depth > MAX_DEPTH:
        raise ValueError(f"page header nested too deeply at byte {position}")
    fields: Struct = {}
    number = 0
    while True:
        head, position = _byte(data, position)
        if head == 0:
            return fields, position
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, position = _zigzag(data, position)
        if kind in (TRUE, FALSE):
            fields[number] = int(kind == TRUE)
        elif kind == BYTE:
            fields[number], position = _byte(data, position)
        elif kind in (I16, I32, I64):
            fields[number], position = _zigzag(data, position)
        elif kind == BINARY:
            length, position = _varint(data, position)
            position += length
        elif kind == STRUCT:
            fields[number], position = _struct(data, position, depth + 1)
        else:
            raise ValueError(f"field of unsupported type {kind} in a page header at byte {position}")


def _number(fields: Struct, number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int):
        raise ValueError(f"page header without field {number}")
    return value


def _byte(data: bytes, position: int) -> tuple[int, int]:
    if position >= len(data):
        raise ValueError("page header beyond the end of the file")
    return data[position], position + 1


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, position = _byte(data, position)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f"number too long in a page header at byte {position}")


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value, position = _varint(data, position)
    return (value >> 1) ^ -(value & 1), position
