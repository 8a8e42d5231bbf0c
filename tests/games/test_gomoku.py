"""Rules of Gomoku on drawn positions: lines in every direction, edges, overlines, draws."""

import numpy as np
import pytest

from tests.games.kernel_game import SYMBOLS, KernelGame, lines
from tests.oracle.gomoku import all_lines
from zero.games.gomoku import makes_line
from zero.games.position import BLACK, WALL, WHITE
from zero.games.rules import gomoku_rules


def drawn_gomoku(drawing: str, to_play: int) -> KernelGame:
    """A game of four in a row at the drawn position, after moves that filled in the stones row by row."""
    rows = lines(drawing).splitlines()
    game = KernelGame(gomoku_rules(len(rows), len(rows[0]), 4))
    stones = {colour: [i for i, s in enumerate("".join(rows)) if s == SYMBOLS[colour]] for colour in (BLACK, WHITE)}
    while stones[game.to_play]:
        game.play(stones[game.to_play].pop(0))
    assert (game.drawing(), game.to_play, game.ended) == (lines(drawing), to_play, False)
    return game


ACROSS = """
    . . . . .
    O O O . .
    . . . . .
    . . X X X
    """
DOWN = """
    . . . O X
    . . . O X
    . . . . X
    . . . O .
    """
FALLING = """
    . . . . O
    . X . . O
    . . X . O
    . . . X .
    """
RISING = """
    . . . . X
    . . . X O
    . . X . O
    . . . . O
    """


@pytest.mark.parametrize(
    ("drawing", "move"),
    [
        pytest.param(ACROSS, "B1", id="across the lowest row"),
        pytest.param(DOWN, "E1", id="down the last column"),
        pytest.param(FALLING, "A4", id="falling from the corner"),
        pytest.param(RISING, "B1", id="rising into the corner"),
    ],
)
def test_a_line_wins(drawing, move):
    game = drawn_gomoku(drawing, BLACK).play_names(move)
    assert (game.ended, game.outcome(), game.legal_actions()) == (True, 1, set())


def test_a_line_of_white_wins_for_white():
    game = drawn_gomoku(
        """
        . . . . .
        O O O . .
        . . . . .
        X X . X X
        """,
        WHITE,
    ).play_names("D3")
    assert (game.ended, game.outcome()) == (True, -1)


def test_a_row_longer_than_needed_wins():
    game = drawn_gomoku(
        """
        O . . O .
        . O . . O
        . . . . .
        X X . X X
        """,
        BLACK,
    ).play_names("C1")
    assert (game.ended, game.outcome()) == (True, 1)


def test_lines_do_not_wrap_around_the_edge():
    game = drawn_gomoku(
        """
        . . . X X
        X . . . .
        . . O . .
        O . . . O
        """,
        BLACK,
    ).play_names("B3")
    assert (game.ended, game.outcome()) == (False, 0)


def test_a_stone_of_the_opponent_interrupts_a_line():
    game = drawn_gomoku(
        """
        . . . . .
        O . . . .
        . . . . O
        X X O X .
        """,
        BLACK,
    ).play_names("E1")
    assert not game.ended


def test_a_full_board_is_a_draw():
    game = KernelGame(gomoku_rules(3, 3, 3)).play_names("A3 B3 C3 B2 A2 C2 B1 A1")
    assert not game.ended
    game.play_names("C1")
    assert (game.ended, game.outcome(), game.margin(), game.legal_actions()) == (True, 0, 0.0, set())


def test_a_line_on_the_last_point_of_the_board_wins():
    game = KernelGame(gomoku_rules(3, 3, 3)).play_names("A3 B3 C3 A2 A1 C2 C1 B1 B2")
    assert (game.ended, game.outcome()) == (True, 1)


def test_every_point_is_an_action_and_there_is_no_pass():
    game = KernelGame(gomoku_rules(4, 6, 4))
    assert game.legal_actions() == set(range(24))


@pytest.mark.parametrize(("rows", "columns", "in_a_row"), [(4, 6, 4), (6, 4, 3), (5, 5, 5), (3, 7, 2)])
def test_every_line_is_found_from_each_of_its_points(rows, columns, in_a_row):
    rules = gomoku_rules(rows, columns, in_a_row)
    for line in all_lines(rows, columns, in_a_row):
        for colour in (BLACK, WHITE):
            points = [row * columns + column for row, column in line]
            board = board_with(rules.num_points, points, colour)
            assert all(makes_line(rules, board, point) for point in points)


@pytest.mark.parametrize(("rows", "columns", "in_a_row"), [(4, 6, 4), (6, 4, 3), (5, 5, 5), (3, 7, 2)])
def test_points_at_equal_distances_are_not_always_a_line(rows, columns, in_a_row):
    rules = gomoku_rules(rows, columns, in_a_row)
    real_lines = {frozenset(r * columns + c for r, c in line) for line in all_lines(rows, columns, in_a_row)}
    num_wrapped = 0
    for stride in (1, columns - 1, columns, columns + 1):
        for start in range(rules.num_points - (in_a_row - 1) * stride):
            points = [start + i * stride for i in range(in_a_row)]
            if frozenset(points) not in real_lines:
                board = board_with(rules.num_points, points, BLACK)
                assert not any(makes_line(rules, board, point) for point in points)
                num_wrapped += 1
    assert num_wrapped > 0


def board_with(num_points: int, points: list[int], colour: int) -> np.ndarray:
    board = np.zeros(num_points + 1, np.int8)
    board[num_points] = WALL
    board[points] = colour
    return board
