"""A position with the game that led to it, for people and their programs: no search, one game."""

from collections.abc import Iterable

import numpy as np

from zero.errors import MoveError
from zero.games.legality import why_illegal
from zero.games.position import BLACK, EMPTY, GO, TO_PLAY, Rules, new_history, new_position, reset
from zero.games.rules import ended, legal_mask, margin, outcome, play, write_ownership


class Board:
    """The position after some actions. Every question is about it as it stands."""

    def __init__(self, rules: Rules, actions: Iterable[int] = ()) -> None:
        """Plays the actions from the empty board.

        Raises:
          MoveError: one of them is illegal; the message says why.
        """
        self.rules = rules
        self._position, self._history = new_position(rules), new_history(rules)
        self._mask = np.zeros(rules.num_actions, np.bool_)
        self._start(())
        for action in actions:
            self.play(action)

    def play(self, action: int) -> None:
        """Plays an action of whoever is to move.

        Raises:
          MoveError: it is illegal; nothing has changed.
        """
        if not self.is_legal(action):
            actions = self.actions
            why = why_illegal(self.rules, self._position, self._history, action)  # it writes into the position
            self._start(actions)
            raise MoveError(why)
        play(self.rules, self._position, self._history, int(action))
        self.actions += (int(action),)

    def is_legal(self, action: int) -> bool:
        """True where whoever is to move may play it; nobody may once the game is over."""
        legal_mask(self.rules, self._position, self._history, self._mask)
        return 0 <= action < self.rules.num_actions and bool(self._mask[action])

    @property
    def to_play(self) -> int:
        """Colour to move: +1 Black, -1 White."""
        return int(self._position.state[TO_PLAY])

    @property
    def is_over(self) -> bool:
        """True once the game has ended by the rules."""
        return bool(ended(self._position))

    @property
    def stones(self) -> np.ndarray:
        """Colour of each point, [S*S] int8."""
        return self._position.board[: self.rules.num_points].copy()

    def chains(self) -> list[list[int]]:
        """The points of each chain, by their numbers; in Gomoku every stone is alone."""
        chains: dict[int, list[int]] = {}
        for point in np.flatnonzero(self.stones != EMPTY):
            head = self._position.head[point] if self.rules.game == GO else point
            chains.setdefault(int(head), []).append(int(point))
        return sorted(chains.values())

    def num_captured(self, colour: int) -> int:
        """Stones of a colour that were taken off the board."""
        first = 0 if colour == BLACK else 1
        played = sum(action < self.rules.num_points for action in self.actions[first::2])
        return played - int((self.stones == colour).sum())

    def margin(self) -> float:
        """Black's area less White's less komi; 0 in a game without a score."""
        return float(margin(self.rules, self._position))

    def owners(self) -> np.ndarray:
        """Whose area each point of Go is, [S*S] int8."""
        owners = np.zeros(self.rules.num_points, np.int8)
        write_ownership(self.rules, self._position, owners)
        return owners

    def outcome(self) -> int:
        """+1, 0, -1 for Black in a game that is over."""
        return int(outcome(self.rules, self._position))

    def _start(self, actions: tuple[int, ...]) -> None:
        reset(self.rules, self._position, self._history)
        for action in actions:
            play(self.rules, self._position, self._history, action)
        self.actions = actions
