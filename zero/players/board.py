"""The board of one game, for a player that needs no more than the rules."""

import numpy as np

from zero.games.position import NUM_MOVES, Position, Rules, new_history, new_positions
from zero.games.rules import legal_mask, play


class Board:
    """A position and all before it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.positions = new_positions(rules, 1)  # with the axis G that `load` asks for
        self.position = Position(*(array[0] for array in self.positions))  # the same memory
        self.history = new_history(rules)

    @property
    def num_moves(self) -> int:
        """Moves played so far."""
        return int(self.position.state[NUM_MOVES])

    def play(self, action: int) -> None:
        """Plays a legal action."""
        play(self._rules, self.position, self.history, action)

    def legal_actions(self) -> np.ndarray:
        """The legal actions, ascending."""
        mask = np.zeros(self._rules.num_actions, np.bool_)
        legal_mask(self._rules, self.position, self.history, mask)
        return np.flatnonzero(mask)
