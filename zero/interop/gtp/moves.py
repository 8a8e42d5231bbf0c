"""Moves of any colour in any order as a game in which the players take turns.

A controller may let one colour play twice, ask for the move of either, and go on after two passes; our games alternate
and end there. A pass changes no position, and positional superko looks at positions alone, so passes can be put in and
left out without making any stone's move legal or illegal:

- a pass is put in where the same colour plays again, or taken out where that makes the turns right;
- of two passes in a row, which would end the game, neither is left.

A pass that was played and answered by a stone stays: the player that is to move sees it, and knows that one more ends
the game.
"""

from collections.abc import Iterable, Sized
from typing import NamedTuple

from zero.games.position import BLACK, WHITE


class Move(NamedTuple):
    """A move as the controller told it."""

    colour: int  # BLACK or WHITE
    action: int


def colour_to_play(actions: Sized) -> int:
    """Who is to move after these actions, of which Black's is the first."""
    return BLACK if len(actions) % 2 == 0 else WHITE


def in_turn(moves: Iterable[Move], pass_action: int, to_play: int | None = None) -> tuple[int, ...]:
    """The actions, Black's first, that give the position of these moves; never two passes in a row.

    Args:
      moves: as they were told.
      pass_action: the number of the pass.
      to_play: who is to move after them; None: the other colour than that of the last move.
    """
    actions: list[int] = []
    for move in moves:
        _give_turn(actions, move.colour, pass_action)
        if move.action == pass_action and actions and actions[-1] == pass_action:
            actions.pop()
        else:
            actions.append(move.action)
    if to_play is not None:
        _give_turn(actions, to_play, pass_action)
    return tuple(actions)


def _give_turn(actions: list[int], colour: int, pass_action: int) -> None:
    """Makes `colour` the one to move. Writes into `actions`."""
    if colour_to_play(actions) == colour:
        return
    if actions and actions[-1] == pass_action:
        actions.pop()
    else:
        actions.append(pass_action)
