"""Time settings as seconds for one move. It would rather move early than lose on time.

Settings are the protocol's: a main time, then periods of so many seconds for so many stones (Canadian). KGS says a
Japanese byo-yomi, where each period is for one stone, in a command of its own.
"""

from typing import NamedTuple

from zero.games.position import BLACK, WHITE

SHARE = 0.9
"""Of the time that a move may take: the rest is for the way to the controller and back."""
LAG_SECONDS = 0.2
"""Of each move, for the same."""
LEAST_SECONDS = 0.01
MOVES_PER_POINT = 0.4
"""Moves of one player in a game, for each point of the board."""
LEAST_MOVES_LEFT = 10
"""However long the game has lasted, so many moves may be to come."""


class TimeSettings(NamedTuple):
    """The protocol's three numbers; a period without stones means no limit at all."""

    main_seconds: float
    period_seconds: float
    period_stones: int
    is_byoyomi: bool = False  # periods of one stone each, of which a controller tells how many are left


class TimeLeft(NamedTuple):
    """Of one player: seconds of the main time (no stones), or of a period for so many stones."""

    seconds: float
    stones: int


class Clock:
    """The time of both players, as far as it was told; what a player uses is counted until it is told again."""

    def __init__(self) -> None:
        """Knows of no limit."""
        self._settings: TimeSettings | None = None
        self._is_unlimited = False  # was told so, which a word on the time left does not change
        self._left: dict[int, TimeLeft] = {}

    def set(self, settings: TimeSettings | None) -> None:
        """Starts both clocks; None: no limit."""
        unlimited = settings is None or (settings.period_seconds > 0 and settings.period_stones == 0)
        self._settings = None if unlimited else settings
        self._is_unlimited = unlimited
        self.restart()

    def restart(self) -> None:
        """A new game: both players have all their time."""
        self._left = {}
        if self._settings:
            self._left = {BLACK: TimeLeft(self._settings.main_seconds, 0)}
            self._left[WHITE] = self._left[BLACK]

    def tell(self, colour: int, left: TimeLeft) -> None:
        """The controller's word on a player's time; of Japanese byo-yomi the stones are the periods left."""
        if self._is_unlimited:
            return
        if self._settings and self._settings.is_byoyomi and left.stones > 0:
            left = left._replace(stones=1)
        self._left[colour] = left

    def use(self, colour: int, seconds: float) -> None:
        """A player has thought for so long."""
        if (left := self._left.get(colour)) is None:
            return
        if left.stones > 1:
            self._left[colour] = TimeLeft(max(0.0, left.seconds - seconds), left.stones - 1)
        elif left.stones == 1 or left.seconds < seconds:
            self._left[colour] = self._period(0.0 if left.stones else seconds - left.seconds)
        else:
            self._left[colour] = TimeLeft(left.seconds - seconds, 0)

    def seconds_for_move(self, colour: int, num_points: int, num_moves: int) -> float | None:
        """How long the player may think now; None: as long as it likes.

        Args:
          colour: the player.
          num_points: of the board.
          num_moves: of the game so far, of both players.
        """
        if (left := self._left.get(colour)) is None:
            return None
        if left.stones > 0:
            return _with_care(left.seconds / left.stones, left.seconds)
        moves_left = max(LEAST_MOVES_LEFT, MOVES_PER_POINT * num_points - num_moves / 2)
        period = self._period(0.0)
        after = period.seconds / period.stones if period.stones else 0.0
        in_main_time = left.seconds / moves_left
        return _with_care(max(in_main_time, min(after, left.seconds + after)), left.seconds + after)

    def _period(self, used_seconds: float) -> TimeLeft:
        """A period of which some seconds, and with them one stone, are used."""
        if self._settings is None or not self._settings.period_stones:
            return TimeLeft(0.0, 0)
        stones = self._settings.period_stones
        if used_seconds and stones > 1:
            return TimeLeft(max(0.0, self._settings.period_seconds - used_seconds), stones - 1)
        return TimeLeft(self._settings.period_seconds, stones)


def _with_care(seconds: float, at_most: float) -> float:
    """`seconds` less what the way takes; `at_most` is where time is lost."""
    return max(LEAST_SECONDS, min(seconds * SHARE, at_most - LAG_SECONDS, max(seconds - LAG_SECONDS, seconds / 2)))
