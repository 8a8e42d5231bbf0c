"""The common interface of all games: make rules, play, legal actions and results.

Every kernel dispatches on the integer `rules.game`, so search and play compile once for all games. Dispatch on function
arguments would bypass Numba's disk cache.
"""

import numpy as np

from zero.config.params import GomokuParams, GoParams
from zero.games import go, gomoku
from zero.games.position import ENDED, GO, GOMOKU, WINNER, WORD_BITS, History, Position, Rules
from zero.games.symmetry import symmetry_table
from zero.kernels import kernel

ZOBRIST_SEED = 20171018
"""Any number works: hashes only find candidates for a repetition, and the boards decide."""


def go_rules(rows: int, columns: int, komi: float = 0.0, allow_suicide: bool = False) -> Rules:
    """Go on a board of `rows` x `columns`; the maximum number of moves is 2 * rows * columns."""
    points = rows * columns
    return _rules(GO, rows, columns, points + 1, komi, allow_suicide, 0, 2 * points)


def gomoku_rules(rows: int, columns: int, in_a_row: int) -> Rules:
    """Gomoku on a board of `rows` x `columns`."""
    points = rows * columns
    return _rules(GOMOKU, rows, columns, points, 0.0, False, in_a_row, points)


def rules_of(game: GoParams | GomokuParams) -> Rules:
    """The rules for a section of the parameters."""
    if isinstance(game, GoParams):
        return go_rules(game.size, game.size, game.komi, game.allow_suicide)
    return gomoku_rules(game.size, game.size, game.in_a_row)


@kernel
def play(rules: Rules, position: Position, history: History, action: int) -> None:
    """Plays a legal action; does nothing after the end of the game. Writes into `position` and `history`."""
    if rules.game == GO:
        go.play(rules, position, history, action)
    else:
        gomoku.play(rules, position, history, action)


@kernel
def legal_mask(rules: Rules, position: Position, history: History, mask: np.ndarray) -> int:
    """Number of legal actions. Writes into `mask` ([A] bool): all False after the end of the game."""
    if rules.game == GO:
        return go.legal_mask(rules, position, history, mask)
    return gomoku.legal_mask(rules, position, mask)


@kernel
def margin(rules: Rules, position: Position) -> float:
    """Black's area minus White's area minus komi; 0 in a game without a score. Writes into the position's scratch."""
    if rules.game == GO:
        return go.margin(rules, position)
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
    num_actions: int,
    komi: float,
    allow_suicide: bool,
    in_a_row: int,
    max_moves: int,
) -> Rules:
    points = rows * columns
    neighbours = np.full((points, 4), points, np.int16)  # `points` is the WALL
    for point in range(points):
        row, column = divmod(point, columns)
        around = ((row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column))
        inside = [r * columns + c for r, c in around if 0 <= r < rows and 0 <= c < columns]
        neighbours[point, : len(inside)] = inside
    # From 1: a key of 0 would hide its stone from the hash.
    keys = np.random.Generator(np.random.Philox(ZOBRIST_SEED)).integers(1, 2**64, (2, points), np.uint64)
    symmetries, inverses = symmetry_table(rows, columns, num_actions)
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
        neighbours=neighbours,
        zobrist=keys,
        symmetries=symmetries,
        inverses=inverses,
    )
