"""Converts time settings into the seconds for one move, with a margin against losing on time.

Settings are those of the protocol: a main time, then periods of a number of seconds for a number of stones (Canadian
byo-yomi).
"""

from zero.games.position import BLACK, WHITE
from zero.interop.gtp_protocol import TimeLeft, TimeSettings

USED_FRACTION = 0.9
"""Fraction of the time of a move that a search may use."""
LAG_SECONDS = 0.2
"""Time of each move that is left for the controller and its connection."""
MIN_SECONDS = 0.01
MOVES_PER_POINT = 0.4
"""Expected moves of one player in a game, for each point of the board."""
MIN_MOVES_LEFT = 10
"""Minimum number of moves that are expected to follow, however long the game has lasted."""


class Clock:
    """Time of both players. Between the controller's reports (`time_left`) it subtracts the time that was spent."""

    def __init__(self) -> None:
        """Starts without a time limit."""
        self._settings: TimeSettings | None = None
        self._is_unlimited = False  # by the settings, so that `time_left` does not set a limit
        self._left: dict[int, TimeLeft] = {}

    def configure(self, settings: TimeSettings) -> None:
        """Takes new settings and restarts both clocks."""
        self._is_unlimited = settings.period_seconds > 0 and settings.period_stones == 0
        self._settings = None if self._is_unlimited else settings
        self.restart()

    def restart(self) -> None:
        """Gives both players all their time, for a new game."""
        self._left = {}
        if self._settings:
            self._left = {BLACK: TimeLeft(self._settings.main_seconds, 0)}
            self._left[WHITE] = self._left[BLACK]

    def set_left(self, colour: int, left: TimeLeft) -> None:
        """Sets the time of a player, as the controller reports it."""
        if not self._is_unlimited:
            self._left[colour] = left

    def spend(self, colour: int, seconds: float) -> None:
        """Subtracts the time of a move."""
        if (left := self._left.get(colour)) is None:
            return
        if left.stones > 1:
            self._left[colour] = TimeLeft(max(0.0, left.seconds - seconds), left.stones - 1)
        elif left.stones == 1 or left.seconds < seconds:
            self._left[colour] = self._period(0.0 if left.stones else seconds - left.seconds)
        else:
            self._left[colour] = TimeLeft(left.seconds - seconds, 0)

    def seconds_for_move(self, colour: int, num_points: int, num_moves: int) -> float | None:
        """Seconds that the player may search now; None without a limit.

        Args:
          colour: the player.
          num_points: points of the board.
          num_moves: moves of both players so far.
        """
        if (left := self._left.get(colour)) is None:
            return None
        if left.stones > 0:
            return _with_margin(left.seconds / left.stones, left.seconds)
        # a share of the main time, or a move of the first period if that is longer
        moves_left = max(MIN_MOVES_LEFT, MOVES_PER_POINT * num_points - num_moves / 2)
        period = self._period(0.0)
        after = period.seconds / period.stones if period.stones else 0.0
        in_main_time = left.seconds / moves_left
        return _with_margin(max(in_main_time, after), left.seconds + after)

    def _period(self, used_seconds: float) -> TimeLeft:
        """A new period, after one move of `used_seconds` if that is not 0."""
        if self._settings is None or not self._settings.period_stones:
            return TimeLeft(0.0, 0)
        stones = self._settings.period_stones
        if used_seconds and stones > 1:
            return TimeLeft(max(0.0, self._settings.period_seconds - used_seconds), stones - 1)
        return TimeLeft(self._settings.period_seconds, stones)


def _with_margin(seconds: float, limit: float) -> float:
    """`seconds` less the margins; the player loses on time at `limit`."""
    return max(MIN_SECONDS, min(seconds * USED_FRACTION, limit - LAG_SECONDS, max(seconds - LAG_SECONDS, seconds / 2)))
