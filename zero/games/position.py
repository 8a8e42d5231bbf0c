"""Positions of any game as flat arrays, and the rules they are played by. The moves are in `go` and `gomoku`.

Points are numbered `row * columns + column`, row 0 at the top; the pass, where a game has one, comes last. A kernel
works on one `Position` and one `History`; many games are the same arrays with a leading axis G.
"""

from typing import NamedTuple

import numpy as np

from zero.kernels import inline_kernel, kernel

GO, GOMOKU = 0, 1

BLACK, WHITE, EMPTY = 1, -1, 0
WALL = 2
"""Colour of the one point beyond every edge: index `num_points`."""

NUM_HISTORY = 8
"""Positions that the network sees (paper, Methods, 'Neural network architecture')."""
NUM_PLANES = 2 * NUM_HISTORY + 1
WORD_BITS = 64

# indices of Position.state
TO_PLAY, NUM_MOVES, NUM_PASSES, ENDED, WINNER, NUM_STATE = 0, 1, 2, 3, 4, 8

REMOVED_BLACK, REMOVED_WHITE = 1, 2
"""Bits of Position.removed."""


class Rules(NamedTuple):
    """A game on a board; an argument of every kernel."""

    game: int  # GO or GOMOKU
    rows: int
    columns: int
    num_points: int
    num_actions: int
    komi: float
    allow_suicide: bool
    in_a_row: int
    max_moves: int
    num_words: int  # words of a bitboard
    full_board: np.ndarray  # [W] uint64, the bitboard of all points
    neighbours: np.ndarray  # [S*S, 4] int16, `num_points` beyond an edge
    zobrist: np.ndarray  # [2, S*S] uint64, Black's and White's stones
    symmetries: np.ndarray  # [K, A] int16, where action a goes under symmetry k; 0 is the identity
    inverses: np.ndarray  # [K] int16, the symmetry that undoes k


class Position(NamedTuple):
    """One position. The chain arrays are Go's; a chain is known by one of its stones, its head."""

    board: np.ndarray  # [S*S + 1] int8, colour of each point; the last is WALL
    head: np.ndarray  # [S*S] int16, head of the chain a stone belongs to
    next_stone: np.ndarray  # [S*S] int16, next stone of the chain, in a ring
    num_stones: np.ndarray  # [S*S] int16, stones of the chain, at its head
    # Pseudo-liberties of a chain, at its head: an empty point counts once for each stone beside it.
    # All are one point exactly where count * sum_of_squares == sum^2.
    liberty_count: np.ndarray  # [S*S] int32
    liberty_sum: np.ndarray  # [S*S] int32
    liberty_squares: np.ndarray  # [S*S] int32
    chain_hash: np.ndarray  # [S*S] uint64, xor of the stones' keys, at the head
    removed: np.ndarray  # [S*S] int8, bits: a black, a white stone was once taken off this point
    state: np.ndarray  # [8] int32, see the indices above
    scratch: np.ndarray  # [2, S*S] int16, for flood fills


class History(NamedTuple):
    """All positions of a game; row t is the board after t moves. A search writes its own moves beyond the game's."""

    hashes: np.ndarray  # [H] uint64
    boards: np.ndarray  # [H, 2, W] uint64, bitboards of Black and White


def new_position(rules: Rules) -> Position:
    """The empty board, Black to play."""
    return _position(rules, ())


def new_history(rules: Rules) -> History:
    """The history of a game that has not begun."""
    return _history(rules, ())


def new_positions(rules: Rules, num_games: int) -> Position:
    """Empty boards, every array with a leading axis G."""
    return _position(rules, (num_games,))


def new_histories(rules: Rules, num_games: int) -> History:
    """Empty histories, every array with a leading axis G."""
    return _history(rules, (num_games,))


def _position(rules: Rules, lead: tuple[int, ...]) -> Position:
    points = rules.num_points
    board = np.zeros((*lead, points + 1), np.int8)
    board[..., points] = WALL
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


def _history(rules: Rules, lead: tuple[int, ...]) -> History:
    length = rules.max_moves + 1
    return History(
        hashes=np.zeros((*lead, length), np.uint64), boards=np.zeros((*lead, length, 2, rules.num_words), np.uint64)
    )


@kernel
def reset(rules: Rules, position: Position, history: History) -> None:
    """Sets up the empty board. Writes into `position` and `history`."""
    position.board[: rules.num_points] = EMPTY
    position.removed[:] = 0
    position.state[:] = 0
    position.state[TO_PLAY] = BLACK
    history.hashes[0] = np.uint64(0)
    history.boards[0] = np.uint64(0)


@kernel
def load(positions: Position, game: int, position: Position) -> None:
    """Copies game `game` out of many. Writes into `position` (all but its scratch)."""
    for point in range(position.head.shape[0]):
        position.board[point] = positions.board[game, point]
        position.head[point] = positions.head[game, point]
        position.next_stone[point] = positions.next_stone[game, point]
        position.num_stones[point] = positions.num_stones[game, point]
        position.liberty_count[point] = positions.liberty_count[game, point]
        position.liberty_sum[point] = positions.liberty_sum[game, point]
        position.liberty_squares[point] = positions.liberty_squares[game, point]
        position.chain_hash[point] = positions.chain_hash[game, point]
        position.removed[point] = positions.removed[game, point]
    for i in range(NUM_STATE):
        position.state[i] = positions.state[game, i]


@kernel
def store(position: Position, positions: Position, game: int) -> None:
    """Copies a position into game `game` of many. Writes into `positions` (all but its scratch)."""
    for point in range(position.head.shape[0]):
        positions.board[game, point] = position.board[point]
        positions.head[game, point] = position.head[point]
        positions.next_stone[game, point] = position.next_stone[point]
        positions.num_stones[game, point] = position.num_stones[point]
        positions.liberty_count[game, point] = position.liberty_count[point]
        positions.liberty_sum[game, point] = position.liberty_sum[point]
        positions.liberty_squares[game, point] = position.liberty_squares[point]
        positions.chain_hash[game, point] = position.chain_hash[point]
        positions.removed[game, point] = position.removed[point]
    for i in range(NUM_STATE):
        positions.state[game, i] = position.state[i]


@kernel
def history_of(histories: History, game: int) -> History:
    """View of the history of game `game`; shares its memory."""
    return History(histories.hashes[game], histories.boards[game])


@inline_kernel
def flip_bit(board: np.ndarray, point: int) -> None:
    """Flips the bit of `point`. Writes into `board` ([W] uint64)."""
    board[point >> 6] ^= np.uint64(1) << np.uint64(point & 63)


@inline_kernel
def side(colour: int) -> int:
    """0 for Black, 1 for White: the index of its keys and bitboards."""
    return (1 - colour) >> 1
