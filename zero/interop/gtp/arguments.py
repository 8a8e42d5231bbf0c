"""What the words after a command's name mean. Whatever is wrong with them is a `syntax error`."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from zero.games.coordinates import name_to_action
from zero.games.position import BLACK, WHITE, Rules
from zero.interop.gtp.clock import TimeLeft, TimeSettings
from zero.interop.gtp.protocol import CommandError

COLOURS = {"b": BLACK, "black": BLACK, "w": WHITE, "white": WHITE}
SYNTAX_ERROR = "syntax error"
MAX_NUMBER = 2**31 - 1
"""The protocol's integers have 31 bits."""
IGNORED_SWITCHES = (
    *("ownership", "ownershipstdev", "movesownership", "movesownershipstdev", "pvvisits", "pvedgevisits"),
    *("rootinfo", "nogoodmoves", "minmoves"),
)
"""Of an analysis, each with one value: what we cannot tell, or what every analysis of ours fulfils."""
IGNORED_LIMITS = ("avoid", "allow")
"""Of an analysis, each with a colour, points and a number of moves."""
KGS_NUMBERS = {"none": 0, "absolute": 1, "byoyomi": 3, "canadian": 3}
CENTISECONDS = 100.0
DEFAULT_INTERVAL_SECONDS = 1.0


class AnalysisWish(NamedTuple):
    """What a controller wants to be told of a search."""

    colour: int | None  # who is to move; None: whoever is
    interval_seconds: float
    max_moves: int | None


def colour_of(word: str) -> int:
    """BLACK or WHITE."""
    if (colour := COLOURS.get(word.lower())) is None:
        raise CommandError(SYNTAX_ERROR)
    return colour


def action_of(rules: Rules, word: str) -> int:
    """The action of a point or `pass`."""
    try:
        return name_to_action(rules, word)
    except ValueError:
        raise CommandError(SYNTAX_ERROR) from None


def whole_number(word: str) -> int:
    """A number from 0 up."""
    if not (word.isascii() and word.isdecimal()) or len(word) > 10 or int(word) > MAX_NUMBER:
        raise CommandError(SYNTAX_ERROR)
    return int(word)


def number(word: str) -> float:
    """Any number of a size that can be meant; an infinite one is none."""
    try:
        value = float(word) if word.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_NUMBER:  # nor where it is none
        raise CommandError(SYNTAX_ERROR)
    return value


def seconds_of(word: str) -> float:
    """A time, from 0 up."""
    if (value := number(word)) < 0:
        raise CommandError(SYNTAX_ERROR)
    return value


def time_settings(words: Sequence[str]) -> TimeSettings:
    """Of `main period stones`."""
    return TimeSettings(seconds_of(words[0]), seconds_of(words[1]), whole_number(words[2]))


def kgs_time_settings(words: Sequence[str]) -> TimeSettings | None:
    """Of `none`, `absolute main`, `canadian main period stones` or `byoyomi main period periods`; None: no limit."""
    kind, numbers = words[0].lower(), words[1:]
    if len(numbers) != KGS_NUMBERS.get(kind):
        raise CommandError(SYNTAX_ERROR)
    if kind == "none":
        return None
    if kind == "absolute":
        return TimeSettings(seconds_of(numbers[0]), 0.0, 0)
    settings = time_settings(numbers)
    return settings if kind == "canadian" else settings._replace(period_stones=1, is_byoyomi=True)


def time_left(words: Sequence[str]) -> tuple[int, TimeLeft]:
    """Of `colour seconds stones`: whose time, and what is left of it; controllers may tell less than nothing."""
    return colour_of(words[0]), TimeLeft(max(0.0, number(words[1])), whole_number(words[2]))


def analysis_wish(words: Sequence[str]) -> AnalysisWish:
    """The wish of `[colour] [interval in centiseconds] [name value]...`."""
    left = list(words)
    colour, interval, max_moves = None, DEFAULT_INTERVAL_SECONDS, None
    if left and left[0].lower() in COLOURS:
        colour = colour_of(left.pop(0))
    if left and left[0].isdecimal():
        interval = whole_number(left.pop(0)) / CENTISECONDS
    while left:
        name = left.pop(0).lower()
        if not left:
            raise CommandError(SYNTAX_ERROR)
        if name == "interval":
            interval = whole_number(left.pop(0)) / CENTISECONDS
        elif name == "maxmoves":
            max_moves = max(1, whole_number(left.pop(0)))  # an empty line would end the answer
        elif name in IGNORED_LIMITS and len(left) >= 3:
            del left[:3]
        elif name in IGNORED_SWITCHES:
            del left[0]
        else:
            raise CommandError(SYNTAX_ERROR)
    return AnalysisWish(colour, interval, max_moves)
