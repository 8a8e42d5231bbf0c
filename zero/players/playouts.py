"""Random games from a position to the end, by the rules, in one kernel: how rollout search judges a position.

Every move is drawn uniformly. In Gomoku from all empty points; a game is over with the first line or the full board.
In Go from the legal points, positional superko included, that are no eye of the player's own: an eye is an empty point
all of whose neighbours are one's own stones, with at most one enemy stone on its diagonals, and none on the edge, where
one is enough to make it false. With no such point left the player passes; without that rule no group would live to the
end. Two passes end the game, and so does the rules' own limit, 2 * rows * columns moves from the empty board; what is
then on the board is counted by area.
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
    """Plays random moves to the end and returns the outcome, +1, 0, -1 for Black.

    The game has not ended. Writes into `position` (in Gomoku the board alone), `history` (beyond the position), `empty`
    ([W] uint64, scratch) and `stream`.
    """
    if rules.game == GO:
        while not position.state[ENDED]:
            play(rules, position, history, random_go_move(rules, position, history, empty, stream))
        return outcome(rules, position)
    return play_out_gomoku(rules, position, stream)


@kernel
def play_out_gomoku(rules: Rules, position: Position, stream: np.ndarray) -> int:
    """Plays random moves to the end and returns the outcome. Writes into `position` (board, scratch) and `stream`."""
    board, left = position.board, position.scratch[0]
    num_left = 0
    for point in range(rules.num_points):
        left[num_left] = point  # without a branch: written over where a stone is
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
    """A legal point that is no own eye, or the pass where there is none. Writes into `empty` and `stream`."""
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
    """True where the empty point is an eye of the player to move, see the top of this file."""
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
    """Bits of a word that are set."""
    word -= (word >> np.uint64(1)) & BITS_1
    word = (word & BITS_2) + ((word >> np.uint64(2)) & BITS_2)
    word = (word + (word >> np.uint64(4))) & BITS_4
    return int(np.int64((word * BYTES) >> np.uint64(56)))


@inline_kernel
def take_bit(bits: np.ndarray, index: int) -> int:
    """Clears set bit number `index`, which there is, and returns its point. Writes into `bits` ([W] uint64)."""
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
