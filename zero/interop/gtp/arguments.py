"""Parses the arguments of commands. Any error is a `syntax error`, as the protocol requires."""

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
"""Integers of the protocol have 31 bits."""
IGNORED_SWITCHES = (
    *("ownership", "ownershipstdev", "movesownership", "movesownershipstdev", "pvvisits", "pvedgevisits"),
    *("rootinfo", "nogoodmoves", "minmoves"),
)
"""Analysis options with one value that are accepted and ignored: the search has no such data, or always obeys them."""
IGNORED_LIMITS = ("avoid", "allow")
"""Analysis options with a colour, points and a number of moves that are accepted and ignored; Lizzie sends them."""
CENTISECONDS = 100.0
DEFAULT_INTERVAL_SECONDS = 1.0


class AnalysisRequest(NamedTuple):
    """What a controller wants to be reported of a search."""

    colour: int | None  # the colour to move; None: as the game stands
    interval_seconds: float  # between two reports
    max_moves: int | None  # in a report; None: all


def colour_of(text: str) -> int:
    """Parses BLACK or WHITE."""
    if (colour := COLOURS.get(text.lower())) is None:
        raise CommandError(SYNTAX_ERROR)
    return colour


def action_of(rules: Rules, text: str) -> int:
    """Parses a point or `pass` into an action."""
    try:
        return name_to_action(rules, text)
    except ValueError:
        raise CommandError(SYNTAX_ERROR) from None


def non_negative_int(text: str) -> int:
    """Parses an integer of at least 0."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or int(text) > MAX_NUMBER:
        raise CommandError(SYNTAX_ERROR)
    return int(text)


def number(text: str) -> float:
    """Parses a finite number whose size is at most `MAX_NUMBER`."""
    try:
        value = float(text) if text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_NUMBER:  # this form rejects NaN too
        raise CommandError(SYNTAX_ERROR)
    return value


def time_settings(arguments: Sequence[str]) -> TimeSettings:
    """Parses `main_seconds period_seconds period_stones`."""
    main, period = number(arguments[0]), number(arguments[1])
    if main < 0 or period < 0:
        raise CommandError(SYNTAX_ERROR)
    return TimeSettings(main, period, non_negative_int(arguments[2]))


def time_left(arguments: Sequence[str]) -> tuple[int, TimeLeft]:
    """Parses `colour seconds stones`. Some controllers send negative seconds; they count as 0."""
    return colour_of(arguments[0]), TimeLeft(max(0.0, number(arguments[1])), non_negative_int(arguments[2]))


def analysis_request(arguments: Sequence[str]) -> AnalysisRequest:
    """Parses `[colour] [interval in centiseconds] [name value]...`."""
    left = list(arguments)
    colour, interval, max_moves = None, DEFAULT_INTERVAL_SECONDS, None
    if left and left[0].lower() in COLOURS:
        colour = colour_of(left.pop(0))
    if left and left[0].isdecimal():
        interval = non_negative_int(left.pop(0)) / CENTISECONDS
    while left:
        name = left.pop(0).lower()
        if not left:
            raise CommandError(SYNTAX_ERROR)
        if name == "interval":
            interval = non_negative_int(left.pop(0)) / CENTISECONDS
        elif name == "maxmoves":
            max_moves = max(1, non_negative_int(left.pop(0)))  # an empty line would end the answer
        elif name in IGNORED_LIMITS and len(left) >= 3:
            del left[:3]
        elif name in IGNORED_SWITCHES:
            del left[0]
        else:
            raise CommandError(SYNTAX_ERROR)
    return AnalysisRequest(colour, interval, max_moves)
