"""Rules of Gomoku: `in_a_row` or more stones in a row win; a full board is a draw; there is no pass.

Not for: the forbidden moves of Renju, or the exactly-five rule. Slow twin: tests/oracle/gomoku.py.
"""

import numpy as np

from zero.games.position import (
    EMPTY,
    END_FULL,
    END_LINE,
    ENDED,
    TO_PLAY,
    WINNER,
    Position,
    Rules,
    flip_bit,
    side,
)
from zero.kernels import kernel

DOWN, RIGHT = (0, 1, 1, 1), (1, 1, -1, 0)
"""Steps along the four directions of a line: horizontal, falling diagonal, rising diagonal, vertical."""


@kernel
def move(rules: Rules, position: Position, boards: np.ndarray, action: int, is_last: bool) -> np.uint64:
    """Plays a legal action and returns the change of the hash. Writes into `position` and `boards` ([2, W])."""
    state = position.state
    colour = state[TO_PLAY]
    flip_bit(boards[side(colour)], action)
    position.board[action] = colour
    if makes_line(rules, position.board, action):
        state[ENDED] = END_LINE
        state[WINNER] = colour
    elif is_last:
        state[ENDED] = END_FULL
    return np.uint64(rules.zobrist[side(colour), action])


@kernel
def makes_line(rules: Rules, board: np.ndarray, action: int) -> bool:
    """True if the stone on `action` is part of `in_a_row` or more stones of its colour in a row."""
    row, column = action // rules.columns, action % rules.columns
    colour = board[action]
    # Only lines through the new stone: the position before it had no line, or the game would be over.
    for direction in range(4):
        down, right = DOWN[direction], RIGHT[direction]
        length = 1
        for sign in (-1, 1):
            r, c = row + sign * down, column + sign * right
            while 0 <= r < rules.rows and 0 <= c < rules.columns and board[r * rules.columns + c] == colour:
                length += 1
                r += sign * down
                c += sign * right
        if length >= rules.in_a_row:
            return True
    return False


@kernel
def legal_mask(rules: Rules, position: Position, mask: np.ndarray) -> int:
    """Number of legal actions before the end of the game. Writes into `mask` ([A] bool)."""
    count = 0
    for point in range(rules.num_points):
        mask[point] = position.board[point] == EMPTY
        count += mask[point]
    return count
