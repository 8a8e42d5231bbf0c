"""Rules of Gomoku: lines in every direction and at the edges."""

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle.gomoku import all_lines
from zero.games.gomoku import makes_line
from zero.games.position import BLACK, WALL, WHITE
from zero.games.rules import gomoku_rules


def test_a_row_longer_than_needed_wins():
    game = KernelGame(gomoku_rules(5, 5, 4)).play_names("A1 A5 B1 B5 D1 D5 E1 E3 C1")
    assert (game.ended, game.outcome()) == (True, 1)


def test_a_line_on_the_last_point_of_the_board_wins():
    game = KernelGame(gomoku_rules(3, 3, 3)).play_names("A3 B3 C3 A2 A1 C2 C1 B1 B2")
    assert (game.ended, game.outcome()) == (True, 1)


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
