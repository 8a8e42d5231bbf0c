"""Two histograms of self-play games for `dvc plots`: lengths, and how well the search's values are calibrated.

Their bins do not depend on the games, so that two generations can be drawn over each other.
"""

import math

import numpy as np

from zero.data.records import GameColumns
from zero.data.validation import moves_of

NUM_BINS = 20


class GameHistograms:
    """Counts of games by length, and of positions by root value. Shards are added one after the other."""

    def __init__(self, max_moves: int) -> None:
        """Starts with no game; `max_moves` is the maximum length of a game."""
        self._bin_moves = math.ceil(max_moves / NUM_BINS)
        self._games = np.zeros(NUM_BINS, np.int64)
        self._positions = np.zeros(NUM_BINS, np.int64)
        self._outcomes = np.zeros(NUM_BINS, np.int64)  # sums, seen by the player to move

    def add(self, games: GameColumns) -> None:
        """Adds the games of a shard."""
        lengths = np.diff(games.move_offsets)
        self._games += np.bincount(np.maximum(lengths - 1, 0) // self._bin_moves, minlength=NUM_BINS)
        moves = moves_of(games)
        bins = np.clip((games.root_values + 1.0) * (NUM_BINS / 2), 0, NUM_BINS - 1).astype(np.int64)
        self._positions += np.bincount(bins, minlength=NUM_BINS)
        # Sums of whole numbers, so that the order of the shards does not matter.
        np.add.at(self._outcomes, bins, games.outcome[moves.game] * moves.mover)

    def lengths_text(self) -> str:
        """CSV: games by length; `moves` is the longest length of a bin."""
        rows = [f"{(index + 1) * self._bin_moves},{count}" for index, count in enumerate(self._games)]
        return "\n".join(["moves,games", *rows, ""])

    def values_text(self) -> str:
        """CSV: mean outcome by root value, both seen by the player to move; `value` is the middle of a bin.

        A calibrated value equals the mean outcome. Bins without a position are left out.
        """
        rows = [
            f"{(2 * index + 1) / NUM_BINS - 1:.2f},{self._outcomes[index] / count:.5f},{count}"
            for index, count in enumerate(self._positions)
            if count
        ]
        return "\n".join(["value,outcome,positions", *rows, ""])
