"""Finds the games in a file of SGF, and decodes them.

Files are cut into games as bytes, because each game of a collection may name a character set of its own. In Shift-JIS,
GBK and Big5 the second byte of a character can be `]` or a backslash, so these need a pattern of their own.
"""

import mmap
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_GAME_BYTES = 4 << 20
"""Longest game. A game of 400 moves with its chat has about 100 kB."""
HEAD_BYTES = 4096
"""Bytes at the start of a game that are searched for its character set."""

GAME_START = re.compile(rb"\(\s*;")
NEW_GAME = re.compile(rb"\(\s*;\s*(?:GM|FF|SZ|CA|AP|PB|PW)\s*\[")
"""Start of a game rather than of a variation: its first property belongs to a game."""
CHARSET = re.compile(rb"(?<![A-Za-z])CA\s*\[\s*([\w:.-]{1,40})\s*\]")
BETWEEN_MARKS = re.compile(rb"(?:[^()\[]++|\[(?:[^\]\\]++|\\.)*+\])*+", re.DOTALL)
BETWEEN_MARKS_DOUBLE = re.compile(
    rb"(?:[^()\[]++|\[(?:[^\]\\\x81-\xfe]++|\\[\x81-\xfe]?.|[\x81-\xfe].)*+\])*+", re.DOTALL
)
"""Everything up to the next parenthesis outside of a value; the second one for two-byte characters."""

HIDDEN_BACKSLASH = re.compile(rb"[\x81-\x9f\xe0-\xfc]\\\]")
"""A value that ends in a Shift-JIS character whose second byte is a backslash."""

UTF_8, LATIN_1, SHIFT_JIS = "utf-8", "latin-1", "cp932"
SINGLE_BYTE = {
    **dict.fromkeys(("utf-8", "utf8", "us-ascii", "ascii"), UTF_8),
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "windows-1252", "cp1252"), "cp1252"),
    **dict.fromkeys(("iso-8859-2", "latin2", "latin-2"), "iso8859-2"),
    **dict.fromkeys(("windows-1250", "cp1250"), "cp1250"),
    **dict.fromkeys(("windows-1251", "cp1251"), "cp1251"),
    "koi8-r": "koi8-r",
    "iso-8859-15": "iso8859-15",
    **dict.fromkeys(("euc-jp", "eucjp"), "euc-jp"),
    **dict.fromkeys(("euc-kr", "euckr"), "euc-kr"),
}
DOUBLE_BYTE = {
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "windows-31j", "cp932", "ms_kanji"), SHIFT_JIS),
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "cp936"), "gb18030"),
    **dict.fromkeys(("big5", "big5-hkscs", "cp950"), "big5hkscs"),
    **dict.fromkeys(("cp949", "ks_c_5601-1987", "uhc"), "cp949"),
}
"""Names in the property CA, in small letters, and the codec of Python. EUC has no ASCII inside a character."""


class BrokenGame(NamedTuple):
    """A part of a file that is not a complete game."""

    detail: str
    is_too_large: bool = False


def games_of(data: bytes | mmap.mmap) -> Iterator[bytes | BrokenGame]:
    """The games of a file; text between games is skipped.

    After an incomplete game the next one starts at the next header of a game.
    """
    pattern, position = GAME_START, 0
    while match := pattern.search(data, position):
        game = _game_at(data, match.start())
        yield game
        if isinstance(game, BrokenGame):
            pattern, position = NEW_GAME, match.start() + 1
        else:
            pattern, position = GAME_START, match.start() + len(game)


def _game_at(data: bytes | mmap.mmap, start: int) -> bytes | BrokenGame:
    limit = min(len(data), start + MAX_GAME_BYTES)
    is_double = _charset(data[start : start + HEAD_BYTES]) in DOUBLE_BYTE.values()
    end, fault = _scan(data, start, limit, BETWEEN_MARKS_DOUBLE if is_double else BETWEEN_MARKS)
    if fault == "" and limit == len(data) and not is_double:
        # Perhaps Shift-JIS that is not named: a character then hides the end of a value.
        again = _scan(data, start, limit, BETWEEN_MARKS_DOUBLE)
        end, fault = again if again[1] is None else (end, fault)
    if fault is None:
        return data[start:end]
    if fault == "" and limit < len(data):
        return BrokenGame(f"the game has more than {MAX_GAME_BYTES >> 20} MiB", is_too_large=True)
    return BrokenGame(fault or "the game is incomplete: its end is missing")


def decodings(data: bytes) -> Iterator[str]:
    """The texts that the bytes of a game can mean, the most likely first.

    They are read in the character set that the game names, UTF-8, Latin-1 (the standard's default), and Shift-JIS.
    """
    codecs = [_charset(data), UTF_8, LATIN_1, SHIFT_JIS]
    if HIDDEN_BACKSLASH.search(data):
        codecs[2:] = [SHIFT_JIS, LATIN_1]  # else a property could be read as a part of the one before
    for index, codec in enumerate(codecs):
        if codec is None or codec in codecs[:index]:
            continue
        try:
            yield data.decode(codec)
        except UnicodeDecodeError:
            continue
        if data.isascii():
            return


def has_another_header(data: bytes) -> bool:
    """True if another game seems to start inside of a game, because the first one is damaged."""
    return NEW_GAME.search(data, 2) is not None


def _charset(data: bytes) -> str | None:
    """The codec that a game names; None if it names none, or one that is not supported."""
    match = CHARSET.search(data, 0, HEAD_BYTES)
    if match is None:
        return None
    name = match[1].decode("ascii", "replace").lower()
    return SINGLE_BYTE.get(name) or DOUBLE_BYTE.get(name)


def _scan(data: bytes | mmap.mmap, start: int, limit: int, between: re.Pattern[bytes]) -> tuple[int, str | None]:
    """The end of the game at `start`, and why it is broken: None if it is not, "" if its end is not before `limit`."""
    depth, position = 0, start
    while True:
        position = between.match(data, position, limit).end()  # type: ignore[union-attr]
        mark = data[position : min(position + 1, limit)]
        if mark == b"(":
            if depth and NEW_GAME.match(data, position):
                return position, "the game is incomplete: another game starts before its end"
            depth += 1
        elif mark == b")":
            depth -= 1
            if depth == 0:
                return position + 1, None
        else:
            return limit, ""  # perhaps inside of a value
        position += 1
