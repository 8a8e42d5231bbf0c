"""The game that a controller tells an engine: its board, its moves in any order of colours, its komi."""

from collections.abc import Iterable

from zero.errors import MoveError
from zero.games.coordinates import LETTERS, action_to_name
from zero.games.position import BLACK, EMPTY, GO, WHITE, Rules
from zero.games.rules import go_rules, gomoku_rules
from zero.interop.gtp.board import Board
from zero.interop.gtp.moves import Move, in_turn
from zero.interop.gtp.protocol import CommandError

ILLEGAL_MOVE = "illegal move"
MIN_SIZE, MAX_SIZE = 2, len(LETTERS)
LENGTH_FACTOR = 4
"""Our games end after so many moves for each point; a controller's end when it says so. So there is room for four times
as many, and more where they are used up."""
STONE_OF = {BLACK: "X", WHITE: "O", EMPTY: "."}


def endless(rules: Rules) -> Rules:
    """The same rules with room for a game of any controller."""
    return rules._replace(max_moves=LENGTH_FACTOR * rules.max_moves) if rules.game == GO else rules


class Game:
    """Rules, moves and the position after them."""

    def __init__(self, rules: Rules) -> None:
        """An empty board of these rules, as `endless` gives them."""
        self.rules = rules
        self.moves: tuple[Move, ...] = ()
        self.board = Board(rules)
        self._num_fixed = 0  # moves that undo leaves alone: a handicap
        self._first_to_play: int | None = None  # after those

    def rules_for(self, size: int) -> Rules | None:
        """The rules of this game on a board of a size, the very same where it has that; None where there is none."""
        if size == self.rules.rows == self.rules.columns:
            return self.rules
        if not MIN_SIZE <= size <= MAX_SIZE:
            return None
        if self.rules.game == GO:
            return endless(go_rules(size, size, self.rules.komi, self.rules.allow_suicide))
        return gomoku_rules(size, size, self.rules.in_a_row)

    def set_komi(self, komi: float) -> None:
        """Another komi; the stones stay."""
        if komi != self.rules.komi:
            self.rules = self.rules._replace(komi=komi)
            self.board = Board(self.rules, self.board.actions)

    def play(self, move: Move) -> None:
        """Adds a move of any colour.

        Raises:
          CommandError: it is illegal; nothing has changed.
        """
        self._become((*self.moves, move))

    @property
    def to_play(self) -> int:
        """Who is to move where nobody says it: the other colour than that of the last move, or whom a file named."""
        if self._first_to_play is not None and len(self.moves) == self._num_fixed:
            return self._first_to_play
        return self.board.to_play

    def set_up(self, stones: Iterable[Move], to_play: int | None = None) -> None:
        """Puts stones on the empty board that undo leaves there; `to_play` is who moves then, in Go.

        Raises:
          CommandError: one of them cannot stand there.
        """
        assert not self.moves
        self._become(tuple(stones))
        self._num_fixed = len(self.moves)
        self._first_to_play = to_play if self.rules.game == GO else None

    def undo(self) -> None:
        """Takes the last move back.

        Raises:
          CommandError: there is none.
        """
        if len(self.moves) <= self._num_fixed:
            raise CommandError("cannot undo")
        self._become(self.moves[:-1])

    def actions(self, to_play: int | None = None) -> tuple[int, ...]:
        """The game as a player of ours knows it, with a colour to move; never over in Go.

        Raises:
          CommandError: the game is over, or in Gomoku it is the other's turn.
        """
        if self.rules.game == GO:
            return in_turn(self.moves, self.rules.num_points, to_play)
        if self.board.is_over:
            raise CommandError("the game is over")
        if to_play not in (None, self.board.to_play):
            raise CommandError("it is the other colour's turn")
        return self.board.actions

    def ends_as_played(self, actions: tuple[int, ...]) -> bool:
        """False where the last of these, as `actions` tells them, is a pass that nobody played."""
        passed = self.rules.game == GO and actions[-1:] == (self.rules.num_points,)
        return not passed or (bool(self.moves) and self.moves[-1].action == self.rules.num_points)

    def drawing(self) -> str:
        """The board with its coordinates, for `showboard`."""
        columns = "   " + " ".join(LETTERS[: self.rules.columns])
        stones = self.board.stones.reshape(self.rules.rows, self.rules.columns)
        rows = [
            f"{self.rules.rows - row:2d} " + " ".join(STONE_OF[int(colour)] for colour in stones[row])
            for row in range(self.rules.rows)
        ]
        words = ["Black (X) has captured {}, White (O) {}".format(*map(self.board.num_captured, (WHITE, BLACK)))]
        if self.rules.game == GO:
            words.append(f"komi {self.rules.komi:g}")
        if self.moves:
            last = self.moves[-1]
            words.append(
                f"move {len(self.moves)} was {STONE_OF[last.colour]} {action_to_name(self.rules, last.action)}"
            )
        return "\n".join([columns, *rows, columns, *words])

    def score(self) -> str:
        """`B+3.5`, `W+12.0` or `0`: of Go the areas as the stones stand, of Gomoku the winner."""
        if self.rules.game == GO:
            margin = self.board.margin()
        elif self.board.is_over:
            margin = float(self.board.outcome())
        else:
            raise CommandError("cannot score")
        if margin == 0:
            return "0"
        points = f"{abs(margin):.1f}" if 2 * margin == int(2 * margin) else f"{abs(margin):g}"
        return f"{'B' if margin > 0 else 'W'}+{points}"

    def _become(self, moves: tuple[Move, ...]) -> None:
        """Makes these the moves of the game."""
        actions, before = self._in_turn(moves), self.board.actions
        if self.rules.game == GO and len(actions) + self.rules.num_points > self.rules.max_moves:
            self.rules = self.rules._replace(max_moves=2 * self.rules.max_moves)
            self.board = Board(self.rules, before)
        try:
            if actions[: len(before)] == before:
                for action in actions[len(before) :]:
                    self.board.play(action)
            else:
                self.board = Board(self.rules, actions)
        except MoveError:
            self.board = Board(self.rules, before)
            raise CommandError(ILLEGAL_MOVE) from None
        self.moves = moves

    def _in_turn(self, moves: tuple[Move, ...]) -> tuple[int, ...]:
        if self.rules.game == GO:
            return in_turn(moves, self.rules.num_points)
        if any(move.colour != (BLACK, WHITE)[turn % 2] for turn, move in enumerate(moves)):
            raise CommandError(ILLEGAL_MOVE)
        return tuple(move.action for move in moves)
