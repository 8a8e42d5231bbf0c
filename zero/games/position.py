"""Positions of any game as flat arrays, and the constants of its rules. The moves are in `go`, `gomoku` and `othello`.

Point `row * columns + column` counts from row 0 at the top. The pass, if the game has one, is the last action. A kernel
works on one `Position` and one `History`; arrays of many games have a leading axis G.
"""

from typing import NamedTuple

import numpy as np

from zero.kernels import kernel

GO, GOMOKU, OTHELLO = 0, 1, 2
"""Games; `zero.games.rules.TRAITS` describes them."""

BLACK, WHITE, EMPTY = 1, -1, 0
WALL = 2
"""Colour of the one point outside the board, index `num_points`: a neighbour lookup needs no bounds check."""

NUM_HISTORY = 8
"""Number of positions in the network's input (paper, Methods, 'Neural network architecture')."""
NUM_PLANES = 2 * NUM_HISTORY + 1
WORD_BITS = 64

TO_PLAY, NUM_MOVES, NUM_PASSES, ENDED, WINNER, NUM_STATE = 0, 1, 2, 3, 4, 8
"""Indices of `Position.state`, and its length."""

NOT_ENDED, END_PASSES, END_LENGTH, END_LINE, END_FULL, END_BLOCKED = 0, 1, 2, 3, 4, 5
"""Values of `state[ENDED]`: two passes, the maximum number of moves, k in a row, a full board, no player can move."""

REMOVED_BLACK, REMOVED_WHITE = 1, 2
"""Bits of `Position.removed`."""


class Rules(NamedTuple):
    """The constants of a game on a board; an argument of the kernels."""

    game: int  # GO, GOMOKU, ...
    rows: int
    columns: int
    num_points: int
    num_actions: int
    komi: float
    allow_suicide: bool
    in_a_row: int
    max_moves: int
    num_words: int  # number of words of a bitboard
    full_board: np.ndarray  # [W] uint64, the bitboard of all points
    start: np.ndarray  # [S*S] int8, colour of each point before the first move
    neighbours: np.ndarray  # [S*S, 4] int16, `num_points` outside the board
    zobrist: np.ndarray  # [2, S*S] uint64, hash keys of Black's and White's stones
    symmetries: np.ndarray  # [K, A] int16, image of action a under symmetry k; symmetry 0 is the identity


class Position(NamedTuple):
    """One position. The chain arrays are for Go; one of its stones, the head, identifies a chain."""

    board: np.ndarray  # [S*S + 1] int8, colour of each point; the last one is WALL
    head: np.ndarray  # [S*S] int16, head of the stone's chain
    next_stone: np.ndarray  # [S*S] int16, next stone of the chain; the chain is a ring
    num_stones: np.ndarray  # [S*S] int16, number of stones of the chain, at its head
    # Pseudo-liberties of a chain, at its head: an empty point counts once for each stone of the chain next to it.
    # The chain has one liberty if and only if count * sum_of_squares == sum^2.
    liberty_count: np.ndarray  # [S*S] int32
    liberty_sum: np.ndarray  # [S*S] int32
    liberty_squares: np.ndarray  # [S*S] int32
    chain_hash: np.ndarray  # [S*S] uint64, xor of the keys of the stones, at the head
    removed: np.ndarray  # [S*S] int8, bits: a black (a white) stone was removed from this point
    state: np.ndarray  # [NUM_STATE] int32, see the indices above
    scratch: np.ndarray  # [2, S*S] int16, for flood fills


class History(NamedTuple):
    """All positions of a game; row t is the board after t moves.

    H is `max_moves + 1`, W is `rules.num_words`. A search writes its moves after those of the game.
    """

    hashes: np.ndarray  # [H] uint64
    boards: np.ndarray  # [H, 2, W] uint64, bitboards of Black and White


def new_position(rules: Rules, *lead: int) -> Position:
    """The position before the first move, Black to play; `lead` are leading axes, such as G."""
    points = rules.num_points
    board = np.full((*lead, points + 1), WALL, np.int8)
    board[..., :points] = rules.start
    state = np.zeros((*lead, NUM_STATE), np.int32)
    state[..., TO_PLAY] = BLACK
    return Position(
        board=board,
        head=np.zeros((*lead, points), np.int16),
        next_stone=np.zeros((*lead, points), np.int16),
        num_stones=np.zeros((*lead, points), np.int16),
        liberty_count=np.zeros((*lead, points), np.int32),
        liberty_sum=np.zeros((*lead, points), np.int32),
        liberty_squares=np.zeros((*lead, points), np.int32),
        chain_hash=np.zeros((*lead, points), np.uint64),
        removed=np.zeros((*lead, points), np.int8),
        state=state,
        scratch=np.zeros((*lead, 2, points), np.int16),
    )


def new_history(rules: Rules, *lead: int) -> History:
    """The history of a game without moves; `lead` are leading axes, such as G."""
    # Enough for simulations too: the rules end a game at `max_moves`, wherever the search starts.
    length = rules.max_moves + 1
    history = History(
        hashes=np.zeros((*lead, length), np.uint64), boards=np.zeros((*lead, length, 2, rules.num_words), np.uint64)
    )
    first = History(np.zeros(1, np.uint64), np.zeros((1, 2, rules.num_words), np.uint64))
    write_start(rules, first)
    history.hashes[..., :1], history.boards[..., :1, :, :] = first
    return history


@kernel
def reset(rules: Rules, position: Position, history: History) -> None:
    """Sets up the position before the first move. Writes into `position` and `history`."""
    for point in range(rules.num_points):
        position.board[point] = rules.start[point]
    # The chain arrays keep old data: `go.place_stone` initialises the entries of a point that gets a stone.
    position.removed[:] = 0
    position.state[:] = 0
    position.state[TO_PLAY] = BLACK
    write_start(rules, history)


@kernel
def write_start(rules: Rules, history: History) -> None:
    """Writes the position before the first move into row 0 of `history`."""
    history.hashes[0] = np.uint64(0)
    history.boards[0] = np.uint64(0)
    for point in range(rules.num_points):
        if rules.start[point] != EMPTY:
            own = side(rules.start[point])
            history.hashes[0] ^= rules.zobrist[own, point]
            flip_bit(history.boards[0, own], point)


@kernel
def load(positions: Position, game: int, position: Position) -> None:
    """Copies game `game` of many into `position`. Writes into `position`, except its scratch."""
    copy_row(positions.board[game], position.board)
    copy_row(positions.head[game], position.head)
    copy_row(positions.next_stone[game], position.next_stone)
    copy_row(positions.num_stones[game], position.num_stones)
    copy_row(positions.liberty_count[game], position.liberty_count)
    copy_row(positions.liberty_sum[game], position.liberty_sum)
    copy_row(positions.liberty_squares[game], position.liberty_squares)
    copy_row(positions.chain_hash[game], position.chain_hash)
    copy_row(positions.removed[game], position.removed)
    copy_row(positions.state[game], position.state)


@kernel
def store(position: Position, positions: Position, game: int) -> None:
    """Copies a position into game `game` of many. Writes into `positions`, except its scratch."""
    copy_row(position.board, positions.board[game])
    copy_row(position.head, positions.head[game])
    copy_row(position.next_stone, positions.next_stone[game])
    copy_row(position.num_stones, positions.num_stones[game])
    copy_row(position.liberty_count, positions.liberty_count[game])
    copy_row(position.liberty_sum, positions.liberty_sum[game])
    copy_row(position.liberty_squares, positions.liberty_squares[game])
    copy_row(position.chain_hash, positions.chain_hash[game])
    copy_row(position.removed, positions.removed[game])
    copy_row(position.state, positions.state[game])


@kernel
def copy_row(source: np.ndarray, target: np.ndarray) -> None:
    """Copies a one-dimensional array. Writes into `target`. LLVM can vectorise this loop."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@kernel
def history_of(histories: History, game: int) -> History:
    """A view of the history of game `game`, without a copy."""
    return History(histories.hashes[game], histories.boards[game])


@kernel
def flip_bit(board: np.ndarray, point: int) -> None:
    """Flips the bit of `point`. Writes into `board` ([W] uint64)."""
    board[point >> 6] ^= np.uint64(1) << np.uint64(point & 63)


@kernel
def side(colour: int) -> int:
    """Index of the keys and bitboards of a colour: 0 for Black, 1 for White."""
    return (1 - colour) >> 1
