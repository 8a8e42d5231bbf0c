"""Finds the games in a stream of SGF, and decodes them.

Files are cut into games as bytes, because each game of a collection may name a character set of its own. In Shift-JIS,
GBK and Big5 the second byte of a character can be `]` or a backslash, so these need a pattern of their own.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_GAME_BYTES = 4 << 20
"""Longest game. A game of 400 moves with its chat has about 100 kB."""
CHUNK_BYTES = 1 << 16
HEAD_BYTES = 4096
"""Bytes at the start of a game that are searched for its character set."""
TAIL_BYTES = 256
"""Bytes that are kept when a gap between two games is skipped, since they may be the first bytes of a game."""
MAX_SEARCHES = 20
"""Broken games make a file be searched again from their second byte on: so many times its length in total.

Then the search goes on behind the bytes that were searched. Without a limit, a damaged file in which every few bytes
look like the start of a game would take days.
"""

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
    num_bytes: int
    """Bytes that were searched for its end."""
    is_too_large: bool = False


class _Window:
    """The part of a stream that is in memory."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self.data = b""
        self.position = 0
        self.num_dropped = 0  # bytes of the stream before `data`
        self.at_end = False  # the stream has ended; `data` has its last bytes

    def fill(self, num_bytes: int) -> None:
        """Reads until at least `num_bytes` bytes follow the position, or the stream ends."""
        while not self.at_end and len(self.data) - self.position < num_bytes:
            rest = self.data[self.position :]
            self.num_dropped += self.position
            chunk = self._read(max(CHUNK_BYTES, num_bytes - len(rest)))
            self.data, self.position, self.at_end = rest + chunk, 0, not chunk

    def skip_to(self, pattern: re.Pattern[bytes], offset: int) -> bool:
        """Moves the position to the next match, at least `offset` bytes ahead; False if there is none."""
        self.position += offset
        while True:
            self.fill(CHUNK_BYTES)
            if match := pattern.search(self.data, self.position):
                self.position = match.start()
                return True
            if self.at_end:
                return False
            self.position = max(self.position, len(self.data) - TAIL_BYTES)


def games_of(read: Callable[[int], bytes]) -> Iterator[bytes | BrokenGame]:
    """The games of a stream, as bytes; text between games is skipped.

    The memory holds one game, twice MAX_GAME_BYTES at most. After an incomplete game the next one starts at the next
    header of a game.

    Args:
      read: returns at most the requested number of bytes, and b"" at the end of the stream.
    """
    window = _Window(read)
    pattern, offset = GAME_START, 0
    num_searched = searched_to = 0  # by broken games
    while window.skip_to(pattern, offset):
        start = window.num_dropped + window.position
        game = _next_game(window)
        yield game
        if not isinstance(game, BrokenGame):
            pattern, offset = GAME_START, len(game)
            continue
        pattern, offset = NEW_GAME, 1
        num_searched += game.num_bytes
        searched_to = max(searched_to, start + game.num_bytes)
        if num_searched > MAX_SEARCHES * (start + MAX_GAME_BYTES):
            offset = max(1, searched_to - TAIL_BYTES - start)


def _next_game(window: _Window) -> bytes | BrokenGame:
    """The game at the position of a window."""
    size = CHUNK_BYTES
    while True:
        window.fill(size)
        end, fault = _end_of_game(window.data, window.position, window.at_end)
        num_bytes = end - window.position
        if fault is None and num_bytes <= MAX_GAME_BYTES:
            return window.data[window.position : end]
        if fault is None or size > MAX_GAME_BYTES:
            return BrokenGame(f"the game has more than {MAX_GAME_BYTES >> 20} MiB", num_bytes, is_too_large=True)
        if fault:
            return BrokenGame(fault, num_bytes)
        if window.at_end:
            return BrokenGame("the game is incomplete: its end is missing", num_bytes)
        size *= 2  # doubled, so that the cost of searching stays linear


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


def _end_of_game(data: bytes, start: int, at_end: bool) -> tuple[int, str | None]:
    """The end of the game at `start`, and why it is broken: None if it is not, "" if the data end before the game."""
    is_double = _charset(data[start : start + HEAD_BYTES]) in DOUBLE_BYTE.values()
    end, fault = _scan(data, start, BETWEEN_MARKS_DOUBLE if is_double else BETWEEN_MARKS)
    if fault == "" and at_end and not is_double:
        # Perhaps Shift-JIS that is not named: a character then hides the end of a value.
        again = _scan(data, start, BETWEEN_MARKS_DOUBLE)
        if again[1] is None:
            return again
    return end, fault


def _scan(data: bytes, start: int, between: re.Pattern[bytes]) -> tuple[int, str | None]:
    depth, position = 0, start
    while True:
        position = between.match(data, position).end()  # type: ignore[union-attr]
        mark = data[position : position + 1]
        if mark == b"(":
            if depth and NEW_GAME.match(data, position):
                return position, "the game is incomplete: another game starts before its end"
            depth += 1
        elif mark == b")":
            depth -= 1
            if depth == 0:
                return position + 1, None
        else:
            return len(data), ""  # the end of the data, perhaps inside of a value
        position += 1
