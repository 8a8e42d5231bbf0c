"""The text of the Go Text Protocol: reads lines, parses commands and their arguments, formats answers.

Input is cleaned as the protocol requires: control characters and comments are removed, empty lines have no answer. Any
wrong argument is a `syntax error`.

Lines are read from the file descriptor, without a thread. So an analysis can check for the next command, and a program
that ends does not wait for one.
"""

import math
import os
import re
import select
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from zero.errors import ZeroError
from zero.games.coordinates import name_to_action
from zero.games.position import BLACK, WHITE, Rules

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""All control characters except tab and newline."""
ID = re.compile(r"[0-9]+")
WORD = re.compile(r"[^ \t\n]+")
COUNT = re.compile(r"[0-9]{1,9}")
COLOURS = {"b": BLACK, "black": BLACK, "w": WHITE, "white": WHITE}
SYNTAX_ERROR = "syntax error"
MAX_NUMBER = 2**31 - 1
IGNORED_LIMITS = ("avoid", "allow")
"""Analysis options with a colour, points and a number of moves that are accepted and ignored; Lizzie sends them."""
CENTISECONDS = 100.0
DEFAULT_INTERVAL_SECONDS = 1.0


class CommandError(ZeroError):
    """A command failed; the message is the answer after the question mark."""


class Command(NamedTuple):
    """One command."""

    id: str  # digits; empty if the controller sent none
    name: str  # empty if nothing follows the id
    arguments: tuple[str, ...]


class TimeSettings(NamedTuple):
    """Arguments of `time_settings`. A period with 0 stones means no time limit."""

    main_seconds: float
    period_seconds: float
    period_stones: int


class TimeLeft(NamedTuple):
    """Time of one player: seconds of the main time (0 stones), or of a period for the remaining stones."""

    seconds: float
    stones: int


class AnalysisRequest(NamedTuple):
    """What a controller wants to be reported of a search."""

    colour: int | None  # the colour to move; None: as the game stands
    interval_seconds: float  # between two reports
    max_moves: int | None  # in a report; None: all


class Lines:
    """The lines of a stream. Non-ASCII bytes are decoded like file names, so that `loadsgf` finds any file."""

    def __init__(self, stream: IO[Any]) -> None:
        """Reads the stream's file descriptor. Nothing may have been read through the stream's buffer before."""
        self._file = stream.fileno()
        self._read = b""
        self._at_end = False

    def next(self) -> str | None:
        """Next line without its newline, which the last line may lack; None at the end of the stream."""
        while b"\n" not in self._read and not self._at_end:
            self._fill()
        if not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return os.fsdecode(line)

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds` for a complete line or the end of the stream; returns True if it has come."""
        while b"\n" not in self._read and not self._at_end:
            if not select.select([self._file], [], [], seconds)[0]:
                return False
            self._fill()
            seconds = 0.0  # half a line has come; do not wait for the rest, the caller polls again
        return True

    def _fill(self) -> None:
        """Reads the next bytes; blocks until they come or the stream ends."""
        data = os.read(self._file, 1 << 16)
        self._at_end = not data
        self._read += data


def parse_command(line: str) -> Command | None:
    """Parses a line; None if it is empty or a comment."""
    words = WORD.findall(CONTROL.sub("", line).partition("#")[0])
    if not words:
        return None
    number = words.pop(0) if ID.fullmatch(words[0]) else ""
    return Command(number, words[0] if words else "", tuple(words[1:]))


def format_answer(sign: str, command_id: str, text: str) -> str:
    """An answer; `sign` is `=`, or `?` if the command failed. Its text loses empty lines, which would end it."""
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    return " ".join([f"{sign}{command_id}", *lines[:1]]) + "".join(f"\n{line}" for line in lines[1:]) + "\n\n"


def parse_colour(text: str) -> int:
    """Parses BLACK or WHITE."""
    if (colour := COLOURS.get(text.lower())) is None:
        raise CommandError(SYNTAX_ERROR)
    return colour


def parse_action(rules: Rules, text: str) -> int:
    """Parses a point or `pass` into an action."""
    try:
        return name_to_action(rules, text)
    except ValueError:
        raise CommandError(SYNTAX_ERROR) from None


def parse_count(text: str) -> int:
    """Parses an integer of at least 0."""
    if not COUNT.fullmatch(text):
        raise CommandError(SYNTAX_ERROR)
    return int(text)


def parse_number(text: str) -> float:
    """Parses a finite number whose size is at most `MAX_NUMBER`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_NUMBER:  # this form rejects NaN too
        raise CommandError(SYNTAX_ERROR)
    return value


def parse_time_settings(arguments: Sequence[str]) -> TimeSettings:
    """Parses `main_seconds period_seconds period_stones`."""
    main, period = parse_number(arguments[0]), parse_number(arguments[1])
    if main < 0 or period < 0:
        raise CommandError(SYNTAX_ERROR)
    return TimeSettings(main, period, parse_count(arguments[2]))


def parse_time_left(arguments: Sequence[str]) -> tuple[int, TimeLeft]:
    """Parses `colour seconds stones`. Some controllers send negative seconds; they count as 0."""
    return parse_colour(arguments[0]), TimeLeft(max(0.0, parse_number(arguments[1])), parse_count(arguments[2]))


def parse_analysis(arguments: Sequence[str]) -> AnalysisRequest:
    """Parses `[colour] [interval in centiseconds] [name value]...`."""
    left = list(arguments)
    colour, interval, max_moves = None, DEFAULT_INTERVAL_SECONDS, None
    if left and left[0].lower() in COLOURS:
        colour = parse_colour(left.pop(0))
    if left and left[0].isdecimal():
        interval = parse_count(left.pop(0)) / CENTISECONDS
    while left:
        name = left.pop(0).lower()
        if not left:
            raise CommandError(SYNTAX_ERROR)
        if name == "interval":
            interval = parse_count(left.pop(0)) / CENTISECONDS
        elif name == "maxmoves":
            max_moves = max(1, parse_count(left.pop(0)))  # an empty line would end the answer
        elif name == "minmoves":  # every move with a visit is reported anyway
            del left[0]
        elif name in IGNORED_LIMITS and len(left) >= 3:
            del left[:3]
        else:
            raise CommandError(SYNTAX_ERROR)
    return AnalysisRequest(colour, interval, max_moves)
