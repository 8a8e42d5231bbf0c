"""Calibration of the resignation threshold (paper, Methods, 'Self-play').

In a share of the self-play games, the calibration games, resignation is disabled. They show which games a threshold
would have ended, and how many of those the resigning player did not lose: the false positives. A draw is a false
positive too, because it is worth more than a loss. A player resigns if both the root value and the value of the best
child are below the threshold (`zero.play.moves.resigns`). The threshold found in one generation is used in the next.
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
"""Highest threshold that may be chosen, because the next player can differ from the one measured. The first network of
a lineage lost all of 257 games in which its value fell below -0.5; its successor won or drew 10 of 53 (RESULTS.md), and
3 of 44 below -0.8."""
THRESHOLD_STEPS = 20
"""Number of candidate thresholds between NO_RESIGNATION and the highest, 0.01 apart."""
FEWEST_GAMES = 20
"""Calibration games that a threshold must end before its rate counts; fewer cannot show a rate of 5 %."""


class ResignationTraces(NamedTuple):
    """Values that decide when a player resigns, for G calibration games with M moves in total."""

    value: np.ndarray  # [M] float32, the greater of root value and best child's value; +inf where no one may resign
    mover: np.ndarray  # [M] int8, +1 Black, -1 White
    game: np.ndarray  # [M] int64, index of the game
    outcome: np.ndarray  # [G] int8, +1 Black won, -1 White won


def calibrate(games: "GameColumns", threshold: float, target: float) -> Resignation:
    """Measures the threshold in use, and chooses the next one for a target rate of false positives."""
    traces = resignation_traces(games)
    return Resignation(
        resigned_games=games.end.count(RESIGNATION),
        target=target,
        used=measure(traces, threshold),
        following=next_threshold(traces, target),
    )


def next_threshold(traces: ResignationTraces, target: float) -> Calibration:
    """The highest threshold with enough games and a rate within the target, or NO_RESIGNATION if there is none."""
    step = (HIGHEST_THRESHOLD - NO_RESIGNATION) / THRESHOLD_STEPS
    for index in range(THRESHOLD_STEPS, 0, -1):
        # Rounded, so that the files show -0.83 and not -0.8300000000000001.
        found = measure(traces, round(NO_RESIGNATION + step * index, 6))
        if found.would_resign >= FEWEST_GAMES and found.false_positive_rate <= target:
            return found
    return measure(traces, NO_RESIGNATION)


def measure(traces: ResignationTraces, threshold: float) -> Calibration:
    """Effect of a threshold on the calibration games; in each game the first player below it would resign."""
    game, result = would_resign_in(traces, threshold)
    would_resign, would_have_won = len(game), int((result >= 0).sum())
    rate = would_have_won / would_resign if would_resign else 0.0
    return Calibration(
        threshold=threshold,
        num_games=len(traces.outcome),
        would_resign=would_resign,
        would_have_won=would_have_won,
        false_positive_rate=rate,
        interval=wilson_interval(rate, would_resign) if would_resign else (0.0, 1.0),
    )


def would_resign_in(traces: ResignationTraces, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """The calibration games that a threshold would have ended, and how they went on for the resigning player.

    Returns:
      [K] indices among the calibration games, and [K] results for that player: +1 won, 0 drawn, -1 lost.
    """
    # `value` is the greater of the two values, so it is below the threshold exactly if both are.
    below = np.flatnonzero(traces.value < threshold)
    game, first = np.unique(traces.game[below], return_index=True)  # `first`: the first move below, per game
    return game, traces.outcome[game] * traces.mover[below[first]]


def resignation_traces(games: "GameColumns") -> ResignationTraces:
    """Extracts the traces of the calibration games."""
    from zero.play.moves import FIRST_RESIGNATION  # imports the kernels, which reading a calibration does not need

    lengths = np.diff(games.move_offsets)
    game = np.repeat(np.arange(games.num_games), lengths)
    move = np.arange(games.num_positions) - np.repeat(games.move_offsets[:-1], lengths)
    value = np.where(move >= FIRST_RESIGNATION, np.maximum(games.root_values, games.best_values), np.float32(math.inf))
    is_calibration = games.never_resigns[game]
    calibration_index = np.cumsum(games.never_resigns) - 1  # [all games], index among the calibration games
    return ResignationTraces(
        value=value[is_calibration],
        mover=np.where(move % 2 == 0, 1, -1).astype(np.int8)[is_calibration],
        game=calibration_index[game[is_calibration]],
        outcome=games.outcome[games.never_resigns],
    )
