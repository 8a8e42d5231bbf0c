"""The rules of Gomoku, slow and obvious: every possible line of the board, checked one by one.

Twin of zero/games/gomoku.py. A point is (row, column), row 0 at the top; a colour is +1 for Black and -1 for White.
"""

from tests.oracle.go import EMPTY_BOARD, Board, Point, Points, all_points


def all_lines(rows: int, columns: int, in_a_row: int) -> list[Points]:
    """All sets of `in_a_row` points in a straight row."""
    points = set(all_points(rows, columns))
    lines = []
    for row, column in points:
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            line = frozenset((row + i * down, column + i * right) for i in range(in_a_row))
            if line <= points:
                lines.append(line)
    return lines


class GomokuGame:
    """A game in progress, with all its past positions."""

    def __init__(self, rows: int, columns: int, in_a_row: int) -> None:
        self.rows, self.columns = rows, columns
        self.lines = all_lines(rows, columns, in_a_row)
        self.boards = [EMPTY_BOARD]
        self.to_play = 1

    @property
    def board(self) -> Board:
        return self.boards[-1]

    @property
    def ended(self) -> bool:
        return self.outcome() != 0 or len(self.boards) > self.rows * self.columns

    def is_legal(self, point: Point) -> bool:
        return point not in self.board.black | self.board.white

    def legal_actions(self) -> set[int]:
        """Numbers of the legal actions: `row * columns + column`."""
        if self.ended:
            return set()
        return {r * self.columns + c for r, c in all_points(self.rows, self.columns) if self.is_legal((r, c))}

    def play(self, action: int) -> None:
        stone = {divmod(action, self.columns)}
        black, white = self.board
        self.boards.append(Board(black | stone, white) if self.to_play == 1 else Board(black, white | stone))
        self.to_play = -self.to_play

    @property
    def end(self) -> str:
        return "line" if self.outcome() else "full"

    def margin(self) -> float:
        return 0.0

    def outcome(self) -> int:
        if any(line <= self.board.black for line in self.lines):
            return 1
        return -1 if any(line <= self.board.white for line in self.lines) else 0
