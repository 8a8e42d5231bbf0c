"""Go against published numbers, and counts by the slow twin.

Sources: Tromp and Farneback, 'Combinatorics of Go' (positions and games); van der Werf (2003, margins).
"""

from itertools import product

import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle.gnugo import GnuGo, needs_gnugo
from tests.oracle.go import Board, GoGame, all_points, is_legal_board
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules

NO_LIMIT = 200
"""More moves than any game below: the published numbers have no maximum length."""

PERFT_2X2 = [5, 21, 68, 156, 316, 604, 1088, 2184]
"""Sequences of 1, 2, ... moves on 2x2: no suicide, passes are moves, two of them end the game."""
PERFT_2X2_SIMPLE_KO = [5, 21, 68, 156, 316, 604, 1168, 2592]
"""The same under simple ko: only the immediate recapture of a single stone is forbidden."""

LEGAL_POSITIONS = {(1, 1): 1, (1, 2): 5, (1, 3): 15, (1, 4): 41, (2, 2): 57, (2, 3): 489, (3, 3): 12675}

GAMES = {1: 1, 2: 9, 3: 907}
"""Number of simple paths from the empty 1xn board by moves of either colour in any order, with and without suicide."""

MARGINS = {(1, 1): 0, (1, 2): 0, (1, 3): 3, (1, 4): 4, (1, 5): 0, (2, 2): 1}
"""Black's margins under best play, without suicide."""


def kernel_game(rows: int, columns: int, allow_suicide: bool = False) -> KernelGame:
    return KernelGame(go_rules(rows, columns, 0.0, allow_suicide)._replace(max_moves=NO_LIMIT))


def test_perft_of_2x2_by_the_kernels():
    assert [perft(kernel_game(2, 2), depth) for depth in range(1, 9)] == PERFT_2X2


def test_perft_of_2x2_by_the_slow_twin():
    assert [perft(GoGame(2, 2, 0.0, False, NO_LIMIT), depth) for depth in range(1, 9)] == PERFT_2X2


@needs_gnugo
@pytest.mark.parametrize(("ko_rule", "counts"), [("positional-superko", PERFT_2X2), ("simple-ko", PERFT_2X2_SIMPLE_KO)])
def test_perft_of_2x2_by_gnugo(ko_rule, counts):
    with GnuGo(f"--{ko_rule}", "--forbid-suicide") as gnugo:
        gnugo.ask("boardsize 2")
        assert [gnugo_perft(gnugo, depth, "black") for depth in range(1, len(counts) + 1)] == counts


def gnugo_perft(gnugo: GnuGo, depth: int, colour: str, passed: bool = False) -> int:
    """Number of sequences of `depth` legal moves; GNU Go itself continues after two passes."""
    names = [*gnugo.ask(f"all_legal {colour}").split(), "pass"]
    if depth == 1:
        return len(names)
    count = 0
    for name in names:
        if not (passed and name == "pass"):
            gnugo.ask(f"play {colour} {name}")
            count += gnugo_perft(gnugo, depth - 1, "white" if colour == "black" else "black", name == "pass")
            gnugo.ask("undo")
    return count


def perft(game: KernelGame | GoGame, depth: int) -> int:
    """Number of sequences of `depth` legal actions."""
    if depth == 0:
        return 1
    count = 0
    for action in game.legal_actions():
        following = game.copy()
        following.play(action)
        count += perft(following, depth - 1)
    return count


@pytest.mark.parametrize(("rows", "columns"), LEGAL_POSITIONS)
def test_number_of_legal_positions_by_the_kernels(rows, columns):
    assert num_positions(kernel_game(rows, columns), 0) == LEGAL_POSITIONS[rows, columns]


def num_positions(game: KernelGame, point: int) -> int:
    """Number of ways to fill the board from `point` on without a capture.

    A subset of a legal position's stones in this order is legal too, so each legal position is counted once.
    """
    if point == game.rules.num_points:
        return 1
    count = num_positions(game, point + 1)
    for colour in (BLACK, WHITE):
        turn = game.copy()
        if turn.to_play != colour:
            turn.play(turn.pass_action)
        if turn.mask()[point]:
            num_stones = len(game.board().black | game.board().white)
            turn.play(point)
            if len(turn.board().black | turn.board().white) == num_stones + 1:
                count += num_positions(turn, point + 1)
    return count


@pytest.mark.parametrize(("rows", "columns"), LEGAL_POSITIONS)
def test_number_of_legal_positions_by_the_slow_twin(rows, columns):
    points = all_points(rows, columns)
    count = 0
    for colours in product((BLACK, WHITE, 0), repeat=len(points)):
        black = frozenset(point for point, colour in zip(points, colours, strict=True) if colour == BLACK)
        white = frozenset(point for point, colour in zip(points, colours, strict=True) if colour == WHITE)
        count += is_legal_board(rows, columns, Board(black, white))
    assert count == LEGAL_POSITIONS[rows, columns]


@pytest.mark.parametrize("allow_suicide", [False, True])
@pytest.mark.parametrize("columns", GAMES)
def test_number_of_games(columns, allow_suicide):
    assert num_games(kernel_game(1, columns, allow_suicide)) == GAMES[columns]


def num_games(game: KernelGame) -> int:
    """Number of sequences of stones of either colour (a pass changes the player to move) that repeat no position."""
    count = 1
    passed = game.copy().play(game.pass_action)
    for turn in (game, passed):
        for action in turn.legal_actions() - {game.pass_action}:
            count += num_games(turn.copy().play(action))
    return count


@pytest.mark.parametrize(("rows", "columns"), MARGINS)
def test_margin_under_best_play(rows, columns):
    points = rows * columns
    assert best_margin(kernel_game(rows, columns), -points, points) == MARGINS[rows, columns]


def test_black_in_the_centre_of_3x3_owns_the_complete_board():
    opened = KernelGame(go_rules(3, 3)).play_names("B2")
    assert best_margin(opened, 8, 9) == 9


def best_margin(game: KernelGame, low: float, high: float) -> float:
    """Black's margin under best play, by alpha-beta search; exact between `low` and `high`."""
    if game.ended:
        return game.margin()
    black = game.to_play == BLACK
    is_enough = game.margin() >= high if black else game.margin() <= low
    points = sorted(game.legal_actions() - {game.pass_action}, key=lambda point: distance_to_centre(game, point))
    for action in [game.pass_action, *points] if is_enough else [*points, game.pass_action]:
        margin = best_margin(game.copy().play(action), low, high)
        if black:
            low = max(low, margin)
        else:
            high = min(high, margin)
        if low >= high:
            break
    return low if black else high


def distance_to_centre(game: KernelGame, point: int) -> float:
    row, column = divmod(point, game.rules.columns)
    return abs(row - (game.rules.rows - 1) / 2) + abs(column - (game.rules.columns - 1) / 2)
