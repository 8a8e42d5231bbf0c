"""Values of SGF properties as people and servers write them: results (RE), ratings (BR, WR) and komi (KM)."""

import re
from typing import NamedTuple

from zero.data.sgf import FORFEIT, OUT_OF_TIME
from zero.storage.manifests import RESIGNATION

SCORE, UNKNOWN_END = "score", "unknown"
"""Ends of imported games besides RESIGNATION, OUT_OF_TIME and FORFEIT: counted; a winner without a reason."""
NO_SCORE = {
    "": UNKNOWN_END,
    "r": RESIGNATION,
    "res": RESIGNATION,
    "resign": RESIGNATION,
    "resignation": RESIGNATION,
    "t": OUT_OF_TIME,
    "time": OUT_OF_TIME,
    "f": FORFEIT,
    "forf": FORFEIT,
    "forfeit": FORFEIT,
}
"""Text after `B+` for a result without a margin: FF[4] and the longer forms of KGS."""
DRAWS = ("0", "draw", "jigo")
WIN = re.compile(r"([bw])\s*\+\s*(.*?)\.?", re.ASCII)
MARGIN = re.compile(r"\d{1,3}([.,]\d*)?", re.ASCII)

RANK = re.compile(r"(\d{1,2}(?:\.\d+)?)\s*(k|kyu|d|dan|p|pro|级|段)\s*[?*]?", re.ASCII | re.IGNORECASE)
NUMBER = re.compile(r"(\d{1,4}(?:\.\d+)?)\s*[?*]?", re.ASCII)
HIGHEST_AMATEUR = 9.0
"""9 dan; 1p is one above it."""


class GameResult(NamedTuple):
    """The result of a game."""

    outcome: int  # +1, 0, -1 for Black
    margin: float  # points for Black; 0 if there are none
    end: str


class DeclaredRating(NamedTuple):
    """A rating; two of the same scale can be compared."""

    is_rank: bool  # True: kyu and dan; False: a number such as an Elo rating
    value: float  # ranks: 1d is 1, 1k is 0, 2k is -1, 1p is 10


def parse_result(text: str) -> GameResult | None:
    """The result in a property RE; None if there is none (`?`, `Void`, empty, or not a result)."""
    text = text.strip().lower()
    if text in DRAWS:
        return GameResult(0, 0.0, SCORE)
    if (match := WIN.fullmatch(text)) is None:
        return None
    outcome = 1 if match[1] == "b" else -1
    if (end := NO_SCORE.get(match[2])) is not None:
        return GameResult(outcome, 0.0, end)
    if not MARGIN.fullmatch(match[2]) or (points := float(match[2].replace(",", "."))) == 0.0:
        return None
    return GameResult(outcome, outcome * points, SCORE)


def parse_rating(text: str) -> DeclaredRating | None:
    """The rating in BR or WR: `5d`, `12k?`, `3p`, `1850`; None if there is none."""
    text = text.strip()
    if match := RANK.fullmatch(text):
        value, unit = float(match[1]), match[2].lower()
        if unit in ("k", "kyu", "级"):
            value = 1.0 - value
        elif unit in ("p", "pro"):
            value += HIGHEST_AMATEUR
        return DeclaredRating(True, value)
    return DeclaredRating(False, float(match[1])) if (match := NUMBER.fullmatch(text)) else None
