"""Duplicate games: the clause of the data contract over several games. Values in, violations out.

Games with different random streams can be equal by chance, so the clause gives the probability of a false alarm.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns
from zero.data.validation import NO_MOVE, Violation
from zero.storage.manifests import ExpectedProperties

COMPARED_MOVES = 24
"""Moves at the start of two games that are compared; shorter games are not compared."""
DISTINCTIVE_MOVES = 16
"""Compared moves whose root value must not be an integer; it is one if every simulation of a search ends a game.

A root value is a mean of evaluations, each under one of eight symmetries (Othello: four) drawn from the game's random
stream. Two streams give the same root value in the same position with probability 1/8 at most (with one simulation; far
less with more), and in 16 positions with probability 3e-15 (Othello: 2e-10). A window of 500,000 games has 1.3e11
pairs, few of them with the same moves. A network whose training has collapsed gives all positions the same value; then
the root noise makes the games differ. Without root noise the clause is not applied."""


class Opening(NamedTuple):
    """The part of a game that is compared with other games."""

    generation: int
    game: int  # number in its generation
    moves: bytes  # all actions
    values: bytes  # the first COMPARED_MOVES actions and root values; empty if they cannot distinguish two streams


def openings_of(games: GameColumns, generation: int) -> list[Opening]:
    """The openings of the games of a shard."""
    openings = []
    for index, number in enumerate(games.game):
        first, end = int(games.move_offsets[index]), int(games.move_offsets[index + 1])
        actions, values = games.actions[first:end], games.root_values[first : min(end, first + COMPARED_MOVES)]
        distinctive = len(values) == COMPARED_MOVES and np.count_nonzero(values != np.rint(values)) >= DISTINCTIVE_MOVES
        # Bytes, so that equal games have equal keys of a dictionary and floats are compared bit by bit.
        compared = actions[:COMPARED_MOVES].tobytes() + values.tobytes() if distinctive else b""
        openings.append(Opening(generation, int(number), actions.tobytes(), compared))
    return openings


def stream_violations(new: Sequence[Opening], old: Sequence[Opening], expected: ExpectedProperties) -> list[Violation]:
    """Violations by new games that were played from the random stream of an old game or an earlier new game.

    Without random symmetries or root noise, two correctly played games may be equal; then there are no violations.
    """
    if not (expected.search.random_symmetry and expected.root_noise):
        return []
    # Empty values are left out: they cannot show which stream a game was played from.
    seen = {opening.values: opening for opening in old if opening.values}
    violations = []
    for opening in new:
        twin = seen.setdefault(opening.values, opening) if opening.values else opening
        if twin is not opening:
            text = (
                f"its first {COMPARED_MOVES} moves and root values are those of game {twin.game} of generation "
                f"{twin.generation}: one random stream was played twice"
            )
            violations.append(Violation("streams", opening.game, NO_MOVE, text))
    return violations
