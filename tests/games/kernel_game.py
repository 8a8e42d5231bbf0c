"""A game played through the kernels, with names of points and drawn boards.

A drawing has one line per row, the top row first: `X` Black, `O` White, `.` empty.
"""

from typing import Self

import numpy as np

from tests.oracle.bitboards import unpack
from tests.oracle.go import Board, all_points
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.planes import expand_planes, write_planes
from zero.games.position import (
    BLACK,
    ENDED,
    NUM_MOVES,
    NUM_PLANES,
    TO_PLAY,
    WHITE,
    History,
    Position,
    Rules,
    new_history,
    new_position,
)
from zero.games.rules import go_rules, legal_mask, margin, outcome, play

SYMBOLS = {BLACK: "X", WHITE: "O", 0: "."}


class KernelGame:
    """Rules, a position and a history."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.position = new_position(rules)
        self.history = new_history(rules)

    def copy(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.rules = self.rules
        twin.position = Position(*(array.copy() for array in self.position))
        twin.history = History(*(array.copy() for array in self.history))
        return twin

    @property
    def to_play(self) -> int:
        return int(self.position.state[TO_PLAY])

    @property
    def num_moves(self) -> int:
        return int(self.position.state[NUM_MOVES])

    @property
    def ended(self) -> bool:
        return bool(self.position.state[ENDED])

    @property
    def pass_action(self) -> int:
        return self.rules.num_points

    def play(self, action: int) -> Self:
        """Plays a legal action."""
        assert self.mask()[action], f"{action_to_name(self.rules, action)} is illegal on\n{self.drawing()}"
        play(self.rules, self.position, self.history, int(action))
        return self

    def play_names(self, names: str) -> Self:
        """Plays legal moves given as `"A1 B2 pass"`."""
        for name in names.split():
            self.play(name_to_action(self.rules, name))
        return self

    def is_legal(self, name: str) -> bool:
        return bool(self.mask()[name_to_action(self.rules, name)])

    def mask(self) -> np.ndarray:
        """Legal actions, [A] bool."""
        mask = np.ones(self.rules.num_actions, np.bool_)
        count = legal_mask(self.rules, self.position, self.history, mask)
        assert count == mask.sum()
        return mask

    def legal_actions(self) -> set[int]:
        return {int(action) for action in np.flatnonzero(self.mask())}

    def planes(self, symmetry: int = 0) -> np.ndarray:
        """The input planes of the network, [17, S*S]."""
        bits = np.full((1, NUM_PLANES, self.rules.num_words), 2**64 - 1, np.uint64)
        write_planes(self.rules, self.position, self.history, symmetry, bits[0])
        numbers = np.full((1, self.rules.num_points, NUM_PLANES), np.nan, np.float32)
        expand_planes(bits, numbers)
        np.testing.assert_array_equal(numbers[0].T, unpack(bits[0], self.rules.num_points))
        drawn: np.ndarray = numbers[0].T
        return drawn

    def outcome(self) -> int:
        return int(outcome(self.rules, self.position))

    def margin(self) -> float:
        return float(margin(self.rules, self.position))

    def board(self) -> Board:
        """The stones in the form of the slow twins."""
        return self._board(lambda point: int(self.position.board[point]))

    def past_board(self, time: int) -> Board:
        """The stones after `time` moves, from the bitboards of the history."""
        words = self.history.boards[time]

        def colour(point: int) -> int:
            black, white = ((int(words[side, point // 64]) >> (point % 64)) & 1 for side in (0, 1))
            assert not (black and white)
            return black - white

        return self._board(colour)

    def hash_of_board(self) -> np.uint64:
        """The hash of the position, computed from its stones."""
        total = np.uint64(0)
        for point in range(self.rules.num_points):
            if self.position.board[point]:
                total ^= self.rules.zobrist[0 if self.position.board[point] == BLACK else 1, point]
        return total

    def drawing(self) -> str:
        colours = self.position.board[:-1].reshape(self.rules.rows, self.rules.columns)
        return "\n".join("".join(SYMBOLS[int(colour)] for colour in row) for row in colours)

    def _board(self, colour_of) -> Board:
        points = all_points(self.rules.rows, self.rules.columns)
        colours = {(r, c): colour_of(r * self.rules.columns + c) for r, c in points}
        return Board(
            frozenset(p for p, colour in colours.items() if colour == BLACK),
            frozenset(p for p, colour in colours.items() if colour == WHITE),
        )


def lines(drawing: str) -> str:
    """A drawing without its indentation and blanks."""
    return "\n".join(line.replace(" ", "") for line in drawing.strip().splitlines())


def drawn_go(drawing: str, to_play: int, komi: float = 0.0, allow_suicide: bool = False) -> KernelGame:
    """A game of Go at the drawn position, after moves that filled in the stones row by row."""
    rows = lines(drawing).splitlines()
    rules = go_rules(len(rows), len(rows[0]), komi, allow_suicide)
    game = KernelGame(rules._replace(max_moves=10 * rules.num_points))
    stones = {colour: [i for i, s in enumerate("".join(rows)) if s == SYMBOLS[colour]] for colour in (BLACK, WHITE)}
    while stones[BLACK] or stones[WHITE]:
        own = stones[game.to_play]
        game.play(own.pop(0) if own else game.pass_action)
    if game.to_play != to_play:
        game.play(game.pass_action)
    assert game.drawing() == lines(drawing)
    return game
