"""The rules of Othello, slow and obvious: walks from a point in all directions over sets of stones.

Twin of zero/games/othello.py. A point is (row, column), row 0 at the top; a colour is +1 for Black and -1 for White.
"""

from tests.oracle.go import Board, Point, Points, all_points


class OthelloGame:
    """A game in progress, with all its past positions."""

    end = "blocked"

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        top, left = rows // 2 - 1, columns // 2 - 1
        white, black = {(top, left), (top + 1, left + 1)}, {(top, left + 1), (top + 1, left)}
        self.boards = [Board(frozenset(black), frozenset(white))]
        self.to_play = 1

    @property
    def board(self) -> Board:
        return self.boards[-1]

    @property
    def ended(self) -> bool:
        return not self.legal_points(1) and not self.legal_points(-1)

    def flipped(self, point: Point, colour: int) -> Points:
        """The stones that a stone of `colour` on `point` flips."""
        own, other = self.board.stones(colour), self.board.stones(-colour)
        flipped: set[Point] = set()
        for down, right in ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)):
            line: list[Point] = []
            row, column = point[0] + down, point[1] + right
            while (row, column) in other:
                line.append((row, column))
                row, column = row + down, column + right
            if (row, column) in own:
                flipped.update(line)
        return frozenset(flipped)

    def legal_points(self, colour: int) -> set[Point]:
        empty = set(all_points(self.rows, self.columns)) - self.board.black - self.board.white
        return {point for point in empty if self.flipped(point, colour)}

    def legal_actions(self) -> set[int]:
        """Numbers of the legal actions: `row * columns + column`, the pass last."""
        if self.ended:
            return set()
        points = self.legal_points(self.to_play)
        return {row * self.columns + column for row, column in points} or {self.rows * self.columns}

    def play(self, action: int) -> None:
        board = self.board
        if action < self.rows * self.columns:
            point = divmod(action, self.columns)
            changed = self.flipped(point, self.to_play)
            own, other = board.stones(self.to_play) | changed | {point}, board.stones(-self.to_play) - changed
            board = Board(own, other) if self.to_play == 1 else Board(other, own)
        self.boards.append(board)
        self.to_play = -self.to_play

    def margin(self) -> float:
        return float(len(self.board.black) - len(self.board.white))

    def outcome(self) -> int:
        return (self.margin() > 0) - (self.margin() < 0)
