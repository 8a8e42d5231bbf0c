"""The rules of Go, slow and obvious: sets of points, flood fills, and a set of complete boards for superko.

Twin of zero/games/go.py, written from the Tromp-Taylor rules (https://tromp.github.io/go.html) only.
A point is (row, column), row 0 at the top; a colour is +1 for Black and -1 for White.
"""

import copy
from typing import NamedTuple, Self

Point = tuple[int, int]
Points = frozenset[Point]


class Board(NamedTuple):
    """The stones on a board."""

    black: Points
    white: Points

    def stones(self, colour: int) -> Points:
        return self.black if colour == 1 else self.white


EMPTY_BOARD = Board(frozenset(), frozenset())


def all_points(rows: int, columns: int) -> list[Point]:
    return [(row, column) for row in range(rows) for column in range(columns)]


def neighbours(point: Point) -> Points:
    """The four neighbours, on the board or not."""
    row, column = point
    return frozenset({(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)})


def region(start: Point, inside: Points) -> Points:
    """The points of `inside` that are connected to `start`."""
    found, border = {start}, [start]
    while border:
        new = (neighbours(border.pop()) & inside) - found
        found |= new
        border += new
    return frozenset(found)


def regions(points: Points) -> list[Points]:
    """The connected parts of `points`."""
    parts = []
    while points:
        part = region(min(points), points)
        parts.append(part)
        points -= part
    return parts


def without_liberties(stones: Points, empty: Points) -> Points:
    """The stones of all chains without liberties."""
    dead = [chain for chain in regions(stones) if not any(neighbours(stone) & empty for stone in chain)]
    return frozenset().union(*dead)


def is_legal_board(rows: int, columns: int, board: Board) -> bool:
    """True if every chain has a liberty."""
    empty = frozenset(all_points(rows, columns)) - board.black - board.white
    return not without_liberties(board.black, empty) and not without_liberties(board.white, empty)


def after(rows: int, columns: int, board: Board, colour: int, point: Point) -> Board:
    """The board after a stone of `colour` on `point`; removes dead chains of the opponent, then own ones."""
    points = frozenset(all_points(rows, columns))
    own = board.stones(colour) | {point}
    other = board.stones(-colour)
    other -= without_liberties(other, points - own - other)
    own -= without_liberties(own, points - own - other)
    return Board(own, other) if colour == 1 else Board(other, own)


def area(rows: int, columns: int, board: Board, colour: int) -> int:
    """Number of stones of `colour` and of points in empty regions that touch only this colour."""
    empty = frozenset(all_points(rows, columns)) - board.black - board.white
    total = len(board.stones(colour))
    for part in regions(empty):
        around = frozenset().union(*(neighbours(point) for point in part))
        if around & board.stones(colour) and not around & board.stones(-colour):
            total += len(part)
    return total


class GoGame:
    """A game in progress, with all its past positions."""

    def __init__(self, rows: int, columns: int, komi: float, allow_suicide: bool, max_moves: int) -> None:
        self.rows, self.columns, self.komi, self.allow_suicide = rows, columns, komi, allow_suicide
        self.max_moves = max_moves
        self.boards = [EMPTY_BOARD]
        self.boards_seen = {EMPTY_BOARD}
        self.to_play = 1
        self.num_passes = 0

    def copy(self) -> Self:
        return copy.deepcopy(self)

    @property
    def board(self) -> Board:
        return self.boards[-1]

    @property
    def ended(self) -> bool:
        return self.num_passes == 2 or len(self.boards) > self.max_moves

    def board_after(self, point: Point) -> Board:
        return after(self.rows, self.columns, self.board, self.to_play, point)

    def is_legal(self, point: Point) -> bool:
        """True if the player to move may play on the point; ignores the end of the game."""
        if point in self.board.black | self.board.white:
            return False
        then = self.board_after(point)
        if point not in then.stones(self.to_play) and not self.allow_suicide:
            return False
        return then not in self.boards_seen

    def legal_actions(self) -> set[int]:
        """Numbers of the legal actions: `row * columns + column`, the pass last."""
        if self.ended:
            return set()
        legal = {r * self.columns + c for r, c in all_points(self.rows, self.columns) if self.is_legal((r, c))}
        return legal | {self.rows * self.columns}

    def play(self, action: int) -> None:
        if action == self.rows * self.columns:
            self.num_passes += 1
            self.boards.append(self.board)
        else:
            self.num_passes = 0
            self.boards.append(self.board_after(divmod(action, self.columns)))
            self.boards_seen.add(self.board)
        self.to_play = -self.to_play

    @property
    def end(self) -> str:
        return "passes" if self.num_passes == 2 else "length"

    def margin(self) -> float:
        black = area(self.rows, self.columns, self.board, 1)
        return black - area(self.rows, self.columns, self.board, -1) - self.komi

    def outcome(self) -> int:
        return (self.margin() > 0) - (self.margin() < 0)
