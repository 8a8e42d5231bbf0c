"""The game of a controller: its board, its komi, and moves in any order of colours.

A controller may let one colour play twice, request the move of either colour, and go on after two passes. Games of the
search alternate and end there. A pass changes no position and positional superko compares positions only, so adding or
removing passes makes no stone's move legal or illegal. Therefore `alternating_actions`

- adds a pass if a colour plays again, or removes one if that gives the right turn,
- removes both of two passes in a row, which would end the game.

A pass that was played and answered by a stone is kept: the player to move then knows that one more pass ends the game.
"""

from collections.abc import Iterable
from typing import NamedTuple

from zero.errors import MoveError
from zero.games.coordinates import LETTERS, action_to_name
from zero.games.position import BLACK, GO, WHITE, Rules
from zero.games.rules import TRAITS, resized
from zero.interop.drawing import STONES, board_lines
from zero.interop.gtp_protocol import CommandError
from zero.players.board import Board, colour_to_play

ILLEGAL_MOVE = "illegal move"
MIN_SIZE, MAX_SIZE = 2, len(LETTERS)
LENGTH_FACTOR = 4
"""A controller's games have no maximum length. They start with this multiple of the rules' length, which then grows."""


class Move(NamedTuple):
    """A move of the controller."""

    colour: int  # BLACK or WHITE
    action: int


def alternating_actions(moves: Iterable[Move], pass_action: int, to_play: int | None = None) -> tuple[int, ...]:
    """Actions of alternating colours, Black first, that lead to the position of the moves; never two passes in a row.

    Args:
      moves: moves in any order of colours.
      pass_action: number of the pass.
      to_play: colour to move after them; None: the colour that did not make the last move.
    """
    actions: list[int] = []
    for move in moves:
        _set_turn(actions, move.colour, pass_action)
        if move.action == pass_action and actions and actions[-1] == pass_action:
            actions.pop()
        else:
            actions.append(move.action)
    if to_play is not None:
        _set_turn(actions, to_play, pass_action)
    return tuple(actions)


def _set_turn(actions: list[int], colour: int, pass_action: int) -> None:
    """Makes `colour` the one to move. Writes into `actions`."""
    if colour_to_play(len(actions)) == colour:
        return
    if actions and actions[-1] == pass_action:
        actions.pop()
    else:
        actions.append(pass_action)


def without_length_limit(rules: Rules) -> Rules:
    """The rules with room for a game of a controller, which does not end after a number of moves."""
    return rules._replace(max_moves=LENGTH_FACTOR * rules.max_moves) if rules.game == GO else rules


class Game:
    """Rules, moves and the position after them."""

    def __init__(self, rules: Rules) -> None:
        """Sets up the empty board; `rules` come from `without_length_limit`."""
        self.rules = rules
        self.moves: tuple[Move, ...] = ()
        self.board = Board(rules)
        self._num_fixed = 0  # number of setup moves, which undo does not take back
        self._to_play_after_setup: int | None = None

    def rules_for(self, size: int) -> Rules | None:
        """The rules of this game on another board; the same object for the same size, None for an unsupported one."""
        if size == self.rules.rows == self.rules.columns:
            return self.rules
        if not MIN_SIZE <= size <= MAX_SIZE:
            return None
        rules = resized(self.rules, size)
        return without_length_limit(rules) if rules else None

    def set_komi(self, komi: float) -> None:
        """Changes the komi; the stones stay."""
        if komi != self.rules.komi:
            self.rules = self.rules._replace(komi=komi)
            self.board = Board(self.rules, self.board.actions)

    def play(self, move: Move) -> None:
        """Plays a move of either colour.

        Raises:
          CommandError: it is illegal; the game is unchanged.
        """
        self._set_moves((*self.moves, move))

    @property
    def to_play(self) -> int:
        """Colour to move: the one that did not make the last move, or the one that the setup names."""
        if self._to_play_after_setup is not None and len(self.moves) == self._num_fixed:
            return self._to_play_after_setup
        return self.board.to_play

    def set_up(self, stones: Iterable[Move], to_play: int | None = None) -> None:
        """Places stones on the empty board that undo does not take back; `to_play` moves next (Go only).

        Raises:
          CommandError: a stone cannot be placed.
        """
        assert not self.moves
        self._set_moves(tuple(stones))
        self._num_fixed = len(self.moves)
        self._to_play_after_setup = to_play if self.rules.game == GO else None

    def undo(self) -> None:
        """Takes the last move back.

        Raises:
          CommandError: there is no move to take back.
        """
        if len(self.moves) <= self._num_fixed:
            raise CommandError("cannot undo")
        self._set_moves(self.moves[:-1])

    def actions(self, to_play: int) -> tuple[int, ...]:
        """The game as alternating actions with `to_play` to move, for a search.

        In Go these games never end, because no two passes follow each other.

        Raises:
          CommandError: in other games than Go: the game is over, or it is the other colour's turn.
        """
        if self.rules.game == GO:
            return alternating_actions(self.moves, self.rules.num_points, to_play)
        if self.board.is_over:
            raise CommandError("the game is over")
        if to_play != self.board.to_play:
            raise CommandError("it is the other colour's turn")
        return self.board.actions

    def ends_with_filler_pass(self, actions: tuple[int, ...]) -> bool:
        """True if the last of `actions` (see the method) is a pass that no one played."""
        pass_action = self.rules.num_points
        ends_with_pass = self.rules.game == GO and actions[-1:] == (pass_action,)
        return ends_with_pass and not (self.moves and self.moves[-1].action == pass_action)

    def drawing(self) -> str:
        """The board with its coordinates, for `showboard`."""
        actions = self.board.actions
        lines = [line.plain for line in board_lines(self.rules, self.board.stones, actions[-1:], in_colour=False)]
        if self.rules.game == GO:
            captured = map(self.board.num_captured, (WHITE, BLACK))
            lines.append("Black (X) has captured {}, White (O) {}".format(*captured))
            lines.append(f"komi {self.rules.komi:g}")
        if self.moves:
            last = self.moves[-1]
            lines.append(f"move {len(self.moves)} was {STONES[last.colour]} {action_to_name(self.rules, last.action)}")
        return "\n".join(lines)

    def score(self) -> str:
        """Result such as `B+3.5`, `W+12.0` or `0`. In games without a score the winner has one point: `B+1.0`.

        Raises:
          CommandError: the game has no score and is not over.
        """
        if TRAITS[self.rules.game].has_score:
            margin = self.board.margin()
        elif self.board.is_over:
            margin = float(self.board.outcome())
        else:
            raise CommandError("cannot score")
        if margin == 0:
            return "0"
        points = f"{abs(margin):.1f}" if 2 * margin == int(2 * margin) else f"{abs(margin):g}"
        return f"{'B' if margin > 0 else 'W'}+{points}"

    def _set_moves(self, moves: tuple[Move, ...]) -> None:
        """Replaces the moves of the game."""
        actions, before = self._board_actions(moves), self.board.actions
        if self.rules.game == GO and len(actions) + self.rules.num_points > self.rules.max_moves:
            self.rules = self.rules._replace(max_moves=2 * self.rules.max_moves)
            self.board = Board(self.rules, before)
        try:
            if actions[: len(before)] == before:  # the usual case: play the new moves only
                for action in actions[len(before) :]:
                    self.board.play(action)
            else:
                self.board = Board(self.rules, actions)
        except MoveError:
            self.board = Board(self.rules, before)  # some of the moves may have been played
            raise CommandError(ILLEGAL_MOVE) from None
        self.moves = moves

    def _board_actions(self, moves: tuple[Move, ...]) -> tuple[int, ...]:
        if self.rules.game == GO:
            return alternating_actions(moves, self.rules.num_points)
        if any(move.colour != (BLACK, WHITE)[turn % 2] for turn, move in enumerate(moves)):
            raise CommandError(ILLEGAL_MOVE)
        return tuple(move.action for move in moves)
