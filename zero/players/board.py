"""One game by the rules, without a search: its position, its history and what people and programs ask about them."""

from collections.abc import Iterable

import numpy as np

from zero.errors import MoveError
from zero.games.legality import why_illegal
from zero.games.position import BLACK, EMPTY, ENDED, GO, TO_PLAY, Position, Rules, new_history, new_position, reset
from zero.games.rules import ended, legal_mask, margin, outcome, play
from zero.play.slots import END_NAMES


def colour_to_play(num_moves: int) -> int:
    """Colour to move after a number of moves, of which Black makes the first: +1 Black, -1 White."""
    return BLACK if num_moves % 2 == 0 else -BLACK


class Board:
    """The position after some actions."""

    def __init__(self, rules: Rules, actions: Iterable[int] = ()) -> None:
        """Plays the actions from the start of the game.

        Raises:
          MoveError: one of them is illegal; the message says why.
        """
        self.rules = rules
        self.positions = new_position(rules, 1)  # search kernels take positions with the axis G
        self.history = new_history(rules)
        self._position = Position(*(array[0] for array in self.positions))  # views of the same memory
        self._mask = np.zeros(rules.num_actions, np.bool_)
        self._replay(())
        for action in actions:
            self.play(action)

    def play(self, action: int) -> None:
        """Plays an action of the colour to move.

        Raises:
          MoveError: it is illegal; the board is unchanged.
        """
        if not self.is_legal(action):
            actions = self.actions
            why = why_illegal(self.rules, self._position, self.history, action)
            self._replay(actions)  # `why_illegal` tries the action on the position
            raise MoveError(why)
        play(self.rules, self._position, self.history, int(action))
        self.actions += (int(action),)

    def is_legal(self, action: int) -> bool:
        """True if the colour to move may play the action. After the end of the game no action is legal."""
        legal_mask(self.rules, self._position, self.history, self._mask)
        return 0 <= action < self.rules.num_actions and bool(self._mask[action])

    def legal_actions(self) -> np.ndarray:
        """The legal actions in ascending order, [number of them] int64."""
        legal_mask(self.rules, self._position, self.history, self._mask)
        return np.flatnonzero(self._mask)

    @property
    def to_play(self) -> int:
        """Colour to move: +1 Black, -1 White."""
        return int(self._position.state[TO_PLAY])

    @property
    def is_over(self) -> bool:
        """True if the game has ended by the rules."""
        return bool(ended(self._position))

    @property
    def end(self) -> str:
        """How a game ended that is over by the rules, one of `END_NAMES`."""
        return END_NAMES[self._position.state[ENDED]]

    @property
    def stones(self) -> np.ndarray:
        """Colour of each point, [S*S] int8."""
        return self._position.board[: self.rules.num_points].copy()

    def chains(self) -> list[list[int]]:
        """Points of each chain of stones, sorted. In other games than Go each stone is its own chain."""
        chains: dict[int, list[int]] = {}
        for point in np.flatnonzero(self.stones != EMPTY):
            head = self._position.head[point] if self.rules.game == GO else point
            chains.setdefault(int(head), []).append(int(point))
        return sorted(chains.values())

    def num_captured(self, colour: int) -> int:
        """Number of stones of a colour that were captured; 0 in other games than Go."""
        if self.rules.game != GO:
            return 0
        first = 0 if colour == BLACK else 1
        played = sum(action < self.rules.num_points for action in self.actions[first::2])
        return played - int((self.stones == colour).sum())

    def margin(self) -> float:
        """Black's area minus White's area minus komi; 0 in a game without a score."""
        return float(margin(self.rules, self._position))

    def margin_text(self) -> str:
        """The margin as `B+3.5`; `0` if it is 0."""
        margin = self.margin()
        return f"{'B' if margin > 0 else 'W'}+{abs(margin):g}" if margin else "0"

    def outcome(self) -> int:
        """Outcome of a finished game for Black: +1, 0 or -1."""
        return int(outcome(self.rules, self._position))

    def _replay(self, actions: tuple[int, ...]) -> None:
        """Plays legal actions from the start of the game."""
        reset(self.rules, self._position, self.history)
        for action in actions:
            play(self.rules, self._position, self.history, action)
        self.actions = actions
