"""The clock of a game on the page: each player has a main time, and gets an increment after each of its moves."""

import math
import time
from collections.abc import Callable

from zero.games.position import BLACK, WHITE


class GameClock:
    """The time that each player has left. It passes for one player at a time, or for none. Not thread-safe."""

    def __init__(
        self, main_seconds: float, increment_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Stands still until `run`.

        Args:
          main_seconds: time of each player at the start; infinite for a game without a limit.
          increment_seconds: time that a player gets after each of its moves.
          now: the present time in seconds; it never goes back.
        """
        self.increment_seconds, self._now = increment_seconds, now
        self.has_limit = main_seconds < math.inf
        self._left = {BLACK: main_seconds, WHITE: main_seconds}  # when `run` was last called
        self._history = [self._left.copy()]  # by number of moves, when the position came about
        self.running: int | None = None
        """The player whose time passes."""
        self._since = 0.0

    def left(self, colour: int) -> float:
        """Seconds that a player has left; 0 if its time is over."""
        used = self._now() - self._since if colour == self.running else 0.0
        return max(0.0, self._left[colour] - used)

    def run(self, colour: int | None) -> None:
        """Starts the clock of this player and stops the other clock; None: stops both."""
        if self.running is not None:
            self._left[self.running] = self.left(self.running)
        self.running, self._since = colour, self._now()

    def move(self, colour: int) -> None:
        """Stops both clocks, and adds the increment after a move of this player."""
        self.run(None)
        self._left[colour] += self.increment_seconds
        self._history.append(self._left.copy())

    def set_moves(self, num_moves: int) -> None:
        """Stops both clocks and restores the times of an earlier position. New moves from a file take no time."""
        self.run(None)
        del self._history[num_moves + 1 :]
        self._history += self._history[-1:] * (num_moves + 1 - len(self._history))
        self._left = self._history[num_moves].copy()
