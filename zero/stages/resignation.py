"""When a player gives up: the threshold, set so that few of the games given up would have been won.

In a share of the self-play games nobody resigns. They tell which games a threshold v would have ended (root value and
best child's value below v, `zero.play.moves.resigns`), and how many of those were not lost by the player who gives up:
the false positives. A draw counts as one, for it was worth more than the loss. The threshold found in one generation is
used in the next (paper, Methods, 'Self-play').
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zero.record.metrics import Calibration, Resignation
from zero.statistics import wilson_interval
from zero.storage.manifests import NO_RESIGNATION, RESIGNATION

if TYPE_CHECKING:
    from zero.data.records import GameColumns

HIGHEST_THRESHOLD = -0.8
"""No position above it is given up, however seldom it was turned: the next player may be another one. The first network
of a lineage turned none of 257 games below -0.5, its successor 10 of 53 (RESULTS.md); below -0.8 it was 3 of 44."""
THRESHOLD_STEPS = 20
"""Thresholds tried between NO_RESIGNATION and the highest, 0.01 apart."""
FEWEST_GAMES = 20
"""Calibration games that a threshold must end before it is believed; fewer say nothing about 5 %."""


class Falls(NamedTuple):
    """How low the values fell in calibration games, G games with M moves in all."""

    lowest: np.ndarray  # [M] float32, the greater of root value and best value; +inf where no one may resign
    mover: np.ndarray  # [M] int8, +1 Black, -1 White
    game: np.ndarray  # [M] int64, index of the game
    outcome: np.ndarray  # [G] int8


def calibrate(games: "GameColumns", threshold: float, target: float) -> Resignation:
    """Measures the threshold in use, and finds the next one."""
    falls = falls_of(games)
    return Resignation(
        resigned_games=games.end.count(RESIGNATION),
        target=target,
        used=measure(falls, threshold),
        following=next_threshold(falls, target),
    )


def next_threshold(falls: Falls, target: float) -> Calibration:
    """The highest threshold whose rate is within the target; NO_RESIGNATION where none has enough games."""
    step = (HIGHEST_THRESHOLD - NO_RESIGNATION) / THRESHOLD_STEPS
    for index in range(THRESHOLD_STEPS, 0, -1):
        found = measure(falls, round(NO_RESIGNATION + step * index, 6))
        if found.would_resign >= FEWEST_GAMES and found.false_positive_rate <= target:
            return found
    return measure(falls, NO_RESIGNATION)


def measure(falls: Falls, threshold: float) -> Calibration:
    """What a threshold would have done: the first player below it gives up."""
    below = np.flatnonzero(falls.lowest < threshold)
    game, first = np.unique(falls.game[below], return_index=True)
    result = falls.outcome[game] * falls.mover[below[first]]
    would_resign, would_have_won = len(game), int((result >= 0).sum())
    rate = would_have_won / would_resign if would_resign else 0.0
    return Calibration(
        threshold=threshold,
        num_games=len(falls.outcome),
        would_resign=would_resign,
        would_have_won=would_have_won,
        false_positive_rate=rate,
        interval=wilson_interval(rate, would_resign) if would_resign else (0.0, 1.0),
    )


def falls_of(games: "GameColumns") -> Falls:
    """The values of the calibration games."""
    from zero.play.moves import FIRST_RESIGNATION  # the kernels; who reads or shows a calibration needs none

    lengths = np.diff(games.move_offsets)
    game = np.repeat(np.arange(games.num_games), lengths)
    move = np.arange(games.num_positions) - np.repeat(games.move_offsets[:-1], lengths)
    lowest = np.where(move >= FIRST_RESIGNATION, np.maximum(games.root_values, games.best_values), np.float32(math.inf))
    chosen = games.never_resigns[game]
    number = np.cumsum(games.never_resigns) - 1
    return Falls(
        lowest=lowest[chosen],
        mover=np.where(move % 2 == 0, 1, -1).astype(np.int8)[chosen],
        game=number[game[chosen]],
        outcome=games.outcome[games.never_resigns],
    )
