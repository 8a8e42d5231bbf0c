"""The common interface of all games: make rules, play, legal actions and results.

Every kernel dispatches on the integer `rules.game`, so search and play compile once for all games. Dispatch on function
arguments would bypass Numba's disk cache.
"""

from typing import NamedTuple

import numpy as np

from zero.config.params import GameParams, GomokuParams, GoParams, OthelloParams
from zero.games import go, gomoku, othello
from zero.games.position import (
    BLACK,
    ENDED,
    GO,
    GOMOKU,
    NUM_MOVES,
    OTHELLO,
    TO_PLAY,
    WHITE,
    WINNER,
    WORD_BITS,
    History,
    Position,
    Rules,
)
from zero.kernels import kernel

ZOBRIST_SEED = 20171018
"""Any number works: hashes only find candidates for a repetition, and the boards decide."""


class Traits(NamedTuple):
    """What differs between games outside of the kernels."""

    title: str  # name in messages
    sgf_number: int  # value of the SGF property GM
    has_pass: bool
    has_score: bool  # a game ends with a margin, not only with a winner or a draw


TRAITS = {
    GO: Traits("Go", 1, has_pass=True, has_score=True),
    GOMOKU: Traits("Gomoku", 4, has_pass=False, has_score=False),
    OTHELLO: Traits("Othello", 2, has_pass=True, has_score=True),
}


def go_rules(rows: int, columns: int, komi: float = 0.0, allow_suicide: bool = False) -> Rules:
    """Go on a board of `rows` x `columns`; the maximum number of moves is 2 * rows * columns."""
    points = rows * columns
    return _rules(GO, rows, columns, 2 * points, komi=komi, allow_suicide=allow_suicide)


def gomoku_rules(rows: int, columns: int, in_a_row: int) -> Rules:
    """Gomoku on a board of `rows` x `columns`."""
    return _rules(GOMOKU, rows, columns, rows * columns, in_a_row=in_a_row)


def othello_rules(rows: int, columns: int) -> Rules:
    """Othello on a board of `rows` x `columns`, both even and at least 4."""
    start = np.zeros((rows, columns), np.int8)
    centre = slice(rows // 2 - 1, rows // 2 + 1), slice(columns // 2 - 1, columns // 2 + 1)
    start[centre] = [[WHITE, BLACK], [BLACK, WHITE]]
    # After a pass the opponent places a stone, or the game would be over.
    return _rules(OTHELLO, rows, columns, 2 * (rows * columns - 4), start=start)


def rules_of(game: GameParams) -> Rules:
    """The rules for a section of the parameters."""
    match game:
        case GoParams():
            return go_rules(game.size, game.size, game.komi, game.allow_suicide)
        case GomokuParams():
            return gomoku_rules(game.size, game.size, game.in_a_row)
        case OthelloParams():
            return othello_rules(game.size, game.size)


def resized(rules: Rules, size: int) -> Rules | None:
    """The same game on a square board of another size; None if the game has no such board."""
    if rules.game == GO:
        return go_rules(size, size, rules.komi, rules.allow_suicide)
    if rules.game == GOMOKU:
        return gomoku_rules(size, size, rules.in_a_row)
    if rules.game == OTHELLO and size >= 4 and size % 2 == 0:
        return othello_rules(size, size)
    return None


@kernel
def play(rules: Rules, position: Position, history: History, action: int) -> None:
    """Plays a legal action; does nothing after the end of the game. Writes into `position` and `history`."""
    state = position.state
    if state[ENDED]:
        return
    time = state[NUM_MOVES]
    boards = history.boards
    # The next row starts as a copy; the game flips the bits of the points that change.
    for word in range(rules.num_words):
        boards[time + 1, 0, word] = boards[time, 0, word]
        boards[time + 1, 1, word] = boards[time, 1, word]
    is_last = time + 1 >= rules.max_moves
    if rules.game == GO:
        change = go.move(rules, position, boards[time + 1], action, is_last)
    elif rules.game == GOMOKU:
        change = gomoku.move(rules, position, boards[time + 1], action, is_last)
    else:
        change = othello.move(rules, position, boards[time + 1], action, is_last)
    history.hashes[time + 1] = history.hashes[time] ^ change
    state[NUM_MOVES] = time + 1
    state[TO_PLAY] = -state[TO_PLAY]


@kernel
def legal_mask(rules: Rules, position: Position, history: History, mask: np.ndarray) -> int:
    """Number of legal actions. Writes into `mask` ([A] bool): all False after the end of the game."""
    if position.state[ENDED]:
        mask[:] = False
        return 0
    if rules.game == GO:
        return go.legal_mask(rules, position, history, mask)
    if rules.game == GOMOKU:
        return gomoku.legal_mask(rules, position, mask)
    return othello.legal_mask(rules, position, mask)


@kernel
def margin(rules: Rules, position: Position) -> float:
    """Black's score minus White's, komi included; 0 in a game without a score. Writes into the position's scratch."""
    if rules.game == GO:
        return go.margin(rules, position)
    if rules.game == OTHELLO:
        return othello.margin(rules, position)
    return 0.0


@kernel
def outcome(rules: Rules, position: Position) -> int:
    """Result of an ended game: +1, 0, -1 for Black. Writes into the position's scratch."""
    if rules.game == GO:
        points = go.margin(rules, position)
        return int(points > 0) - int(points < 0)
    return int(position.state[WINNER])


@kernel
def ended(position: Position) -> bool:
    """True after the end of the game."""
    return bool(position.state[ENDED] != 0)


def _rules(
    game: int,
    rows: int,
    columns: int,
    max_moves: int,
    komi: float = 0.0,
    allow_suicide: bool = False,
    in_a_row: int = 0,
    start: np.ndarray | None = None,
) -> Rules:
    points = rows * columns
    num_actions = points + TRAITS[game].has_pass
    start = np.zeros(points, np.int8) if start is None else start.reshape(points)
    neighbours = np.full((points, 4), points, np.int16)  # `points` is the WALL
    for point in range(points):
        row, column = divmod(point, columns)
        around = ((row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column))
        inside = [r * columns + c for r, c in around if 0 <= r < rows and 0 <= c < columns]
        neighbours[point, : len(inside)] = inside
    # From 1: a key of 0 would hide its stone from the hash.
    keys = np.random.Generator(np.random.Philox(ZOBRIST_SEED)).integers(1, 2**64, (2, points), np.uint64)
    symmetries = _symmetries(rows, columns, num_actions, start)
    num_words = (points + WORD_BITS - 1) // WORD_BITS
    # Python integers have any size, so the bits beyond the last point are 0 in the last word.
    words = [((1 << points) - 1) >> (WORD_BITS * word) & (2**WORD_BITS - 1) for word in range(num_words)]
    return Rules(
        game=game,
        rows=rows,
        columns=columns,
        num_points=points,
        num_actions=num_actions,
        komi=float(komi),
        allow_suicide=bool(allow_suicide),
        in_a_row=in_a_row,
        max_moves=max_moves,
        num_words=num_words,
        full_board=np.array(words, np.uint64),
        start=start,
        neighbours=neighbours,
        zobrist=keys,
        symmetries=symmetries,
    )


def _symmetries(rows: int, columns: int, num_actions: int, start: np.ndarray) -> np.ndarray:
    """The image of each action under each symmetry of the board that keeps `start`.

    Returns:
      [K, A] int16; K = 8 on an empty square board, 4 on an empty rectangle. Symmetry 0 is the identity;
      a pass stays a pass.
    """
    points = np.arange(rows * columns).reshape(rows, columns)
    # `source` gives, for each point, the point that moves there; the table is its inverse.
    sources = [np.rot90(points, turns) for turns in range(4) if rows == columns or turns % 2 == 0]
    # The order is part of every recorded game: its random stream draws a symmetry by the index in this list.
    sources += [np.fliplr(source) for source in sources]
    table = np.empty((len(sources), num_actions), np.int16)
    table[:] = np.arange(num_actions)
    for k, source in enumerate(sources):
        table[k, source.reshape(-1)] = np.arange(rows * columns)
    return table[[np.array_equal(start[row[: rows * columns]], start) for row in table]]
