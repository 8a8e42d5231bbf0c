"""Rules of Othello: a stone must flip stones of the opponent; a player who cannot place one passes; more stones win.

The game ends when neither player can place a stone. Empty points count for no one. Slow twin: tests/oracle/othello.py.
"""

import numpy as np

from zero.games.position import (
    EMPTY,
    END_BLOCKED,
    ENDED,
    TO_PLAY,
    WINNER,
    Position,
    Rules,
    flip_bit,
    side,
)
from zero.kernels import kernel

DOWN, RIGHT = (-1, -1, -1, 0, 0, 1, 1, 1), (-1, 0, 1, -1, 1, -1, 0, 1)
"""Steps in the eight directions."""


@kernel
def num_flips(rules: Rules, board: np.ndarray, point: int, colour: int, direction: int) -> int:
    """Number of stones that a stone of `colour` on `point` flips in one direction."""
    down, right = DOWN[direction], RIGHT[direction]
    r, c = point // rules.columns + down, point % rules.columns + right
    length = 0
    while 0 <= r < rules.rows and 0 <= c < rules.columns and board[r * rules.columns + c] == -colour:
        length += 1
        r += down
        c += right
    is_closed = 0 <= r < rules.rows and 0 <= c < rules.columns and board[r * rules.columns + c] == colour
    return length if is_closed else 0


@kernel
def is_legal_point(rules: Rules, board: np.ndarray, point: int, colour: int) -> bool:
    """True if `point` is empty and a stone of `colour` there flips others."""
    direction = 0 if board[point] == EMPTY else len(DOWN)
    while direction < len(DOWN) and num_flips(rules, board, point, colour, direction) == 0:
        direction += 1
    return direction < len(DOWN)


@kernel
def can_place(rules: Rules, board: np.ndarray, colour: int) -> bool:
    """True if `colour` has a legal point."""
    point = 0
    while point < rules.num_points and not is_legal_point(rules, board, point, colour):
        point += 1
    return point < rules.num_points


@kernel
def move(rules: Rules, position: Position, boards: np.ndarray, action: int, is_last: bool) -> np.uint64:
    """Plays a legal action and returns the change of the hash. Writes into `position` and `boards` ([2, W])."""
    state, board = position.state, position.board
    colour = state[TO_PLAY]
    change = np.uint64(0)
    if action < rules.num_points:
        for direction in range(len(DOWN)):
            point = action
            for _ in range(num_flips(rules, board, action, colour, direction)):
                point += DOWN[direction] * rules.columns + RIGHT[direction]
                board[point] = colour
                for own in range(2):
                    change ^= rules.zobrist[own, point]
                    flip_bit(boards[own], point)
        board[action] = colour
        change ^= rules.zobrist[side(colour), action]
        flip_bit(boards[side(colour)], action)
    if is_last or not (can_place(rules, board, -colour) or can_place(rules, board, colour)):
        state[ENDED] = END_BLOCKED
        state[WINNER] = np.sign(margin(rules, position))
    return change


@kernel
def legal_mask(rules: Rules, position: Position, mask: np.ndarray) -> int:
    """Number of legal actions before the end of the game. Writes into `mask` ([A] bool)."""
    count = 0
    for point in range(rules.num_points):
        mask[point] = is_legal_point(rules, position.board, point, position.state[TO_PLAY])
        count += mask[point]
    mask[rules.num_points] = count == 0
    return max(count, 1)


@kernel
def margin(rules: Rules, position: Position) -> float:
    """Number of Black's stones minus number of White's."""
    total = 0
    for point in range(rules.num_points):
        total += position.board[point]  # colours are +1 and -1
    return float(total)
