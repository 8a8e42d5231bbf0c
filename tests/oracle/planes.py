"""The input planes of the network, slow and obvious: point by point, plane by plane.

Twin of zero/games/planes.py, written from the paper (Methods, 'Neural network architecture').
"""

import numpy as np

from tests.oracle.go import Board, Point, all_points

NUM_HISTORY = 8

TURNS_AND_MIRRORS = {
    "identity": lambda r, c, rows, columns: (r, c),
    "half turn": lambda r, c, rows, columns: (rows - 1 - r, columns - 1 - c),
    "left to right": lambda r, c, rows, columns: (r, columns - 1 - c),
    "top to bottom": lambda r, c, rows, columns: (rows - 1 - r, c),
}
"""Images of the point (r, c) on any board."""

SQUARE_ONLY = {
    "quarter turn": lambda r, c, rows, columns: (c, rows - 1 - r),
    "quarter turn back": lambda r, c, rows, columns: (columns - 1 - c, r),
    "falling diagonal": lambda r, c, rows, columns: (c, r),
    "rising diagonal": lambda r, c, rows, columns: (columns - 1 - c, rows - 1 - r),
}
"""Further images on square boards."""


def symmetric_actions(rows: int, columns: int, num_actions: int, start: Board) -> set[tuple[int, ...]]:
    """All symmetries of the board that keep the stones of `start`, each as the images of actions 0, 1, 2, ..."""
    maps = TURNS_AND_MIRRORS | (SQUARE_ONLY if rows == columns else {})
    tables = set()
    for move in maps.values():
        targets = [move(r, c, rows, columns) for r, c in all_points(rows, columns)]
        passes = range(rows * columns, num_actions)
        if all({move(r, c, rows, columns) for r, c in stones} == stones for stones in start):
            tables.add((*(r * columns + c for r, c in targets), *passes))
    return tables


def planes(rows: int, columns: int, boards: list[Board], to_play: int) -> np.ndarray:
    """Input planes of a game with the positions `boards` so far: [17, rows * columns] float32."""

    def is_one(plane: int, point: Point) -> bool:
        if plane == 2 * NUM_HISTORY:
            return to_play == 1
        moves_ago, whose = divmod(plane, 2)
        if moves_ago >= len(boards):
            return False
        return point in boards[-1 - moves_ago].stones(to_play if whose == 0 else -to_play)

    points = all_points(rows, columns)
    return np.array([[is_one(plane, point) for point in points] for plane in range(2 * NUM_HISTORY + 1)], np.float32)
