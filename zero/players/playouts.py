"""Playouts: random games from a position to the end, as the leaf evaluation of `rollout`.

Each move is drawn uniformly. In Gomoku it is drawn from the empty points; a line or the full board ends the game.
In Go it is drawn from the legal points (positional superko included) that are not an eye of the player's own colour;
without such a point the player passes. An eye is an empty point whose neighbours all have that colour. At most one of
its diagonal points may hold an enemy stone, and none at the edge. Without that rule no group would survive. Two passes
or the rules' limit of 2 * rows * columns moves end the game, and the areas are scored as they are.
Slow twin: tests/oracle/rollout.py.
"""

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from zero.games.go import is_legal_point, play
from zero.games.gomoku import makes_line
from zero.games.position import EMPTY, ENDED, GO, NUM_MOVES, TO_PLAY, WALL, History, Position, Rules
from zero.games.rules import outcome
from zero.kernels import inline_kernel, kernel
from zero.search.streams import next_below

BITS_1 = np.uint64(0x5555555555555555)
BITS_2 = np.uint64(0x3333333333333333)
BITS_4 = np.uint64(0x0F0F0F0F0F0F0F0F)
BYTES = np.uint64(0x0101010101010101)


@kernel
def play_out(rules: Rules, position: Position, history: History, empty: np.ndarray, stream: np.ndarray) -> int:
    """Plays random moves to the end. Writes into `position`, `history` (beyond the position), `empty` and `stream`.

    Returns the outcome for Black: +1, 0 or -1. The game has not ended. In Gomoku only the board of `position` is
    written. `empty` ([W] uint64) is scratch.
    """
    if rules.game == GO:
        while not position.state[ENDED]:
            play(rules, position, history, random_go_move(rules, position, history, empty, stream))
        return outcome(rules, position)
    return play_out_gomoku(rules, position, stream)


@kernel
def play_out_gomoku(rules: Rules, position: Position, stream: np.ndarray) -> int:
    """Plays Gomoku to the end; returns the outcome for Black. Writes into `position` (board, scratch) and `stream`."""
    board, left = position.board, position.scratch[0]
    num_left = 0
    for point in range(rules.num_points):
        left[num_left] = point  # branch-free: the next point overwrites an occupied one
        num_left += board[point] == EMPTY
    colour = position.state[TO_PLAY]
    for _ in range(min(num_left, rules.max_moves - position.state[NUM_MOVES])):
        drawn = next_below(stream, num_left)
        num_left -= 1
        point = left[drawn]
        left[drawn] = left[num_left]
        board[point] = colour
        if makes_line(rules, board, point):
            return int(colour)
        colour = -colour
    return 0


@kernel
def random_go_move(rules: Rules, position: Position, history: History, empty: np.ndarray, stream: np.ndarray) -> int:
    """A random legal point that is not an own eye, or the pass without one. Writes into `empty` and `stream`."""
    stones = history.boards[position.state[NUM_MOVES]]
    num_left = 0
    for word in range(rules.num_words):
        empty[word] = rules.full_board[word] & ~(stones[0, word] | stones[1, word])
        num_left += num_bits(empty[word])
    while num_left > 0:
        point = take_bit(empty, next_below(stream, num_left))
        num_left -= 1
        if not is_own_eye(rules, position, point) and is_legal_point(rules, position, history, point):
            return point
    return int(rules.num_points)


@kernel
def is_own_eye(rules: Rules, position: Position, point: int) -> bool:
    """True if the empty point is an eye of the colour to move, as defined at the top of this file."""
    colour, board = position.state[TO_PLAY], position.board
    for i in range(4):
        content = board[rules.neighbours[point, i]]
        if content != colour and content != WALL:
            return False
    row, column = point // rules.columns, point % rules.columns
    num_enemies, on_edge = 0, False
    for down in (-1, 1):
        for right in (-1, 1):
            r, c = row + down, column + right
            if 0 <= r < rules.rows and 0 <= c < rules.columns:
                num_enemies += board[r * rules.columns + c] == -colour
            else:
                on_edge = True
    return num_enemies + on_edge < 2


@inline_kernel
def num_bits(word: np.uint64) -> int:
    """Number of set bits in a word (SWAR population count)."""
    word -= (word >> np.uint64(1)) & BITS_1
    word = (word & BITS_2) + ((word >> np.uint64(2)) & BITS_2)
    word = (word + (word >> np.uint64(4))) & BITS_4
    return int(np.int64((word * BYTES) >> np.uint64(56)))


@inline_kernel
def take_bit(bits: np.ndarray, index: int) -> int:
    """Clears the set bit number `index` and returns its point. Writes into `bits` ([W] uint64)."""
    word = 0
    count = num_bits(bits[0])
    while index >= count:
        index -= count
        word += 1
        count = num_bits(bits[word])
    left = bits[word]
    for _ in range(index):
        left &= left - np.uint64(1)
    bits[word] &= ~(left & (~left + np.uint64(1)))
    return (word << 6) + int(np.int64(trailing_zeros(left)))
