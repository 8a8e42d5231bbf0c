"""Duplicate games: the clauses of the data contract over several games. Values in, violations out.

Games with different random streams can be equal by chance, so each clause gives the probability of a false alarm.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns
from zero.data.validation import NO_MOVE, Violation, moves_of
from zero.storage.manifests import ExpectedProperties

COMPARED_MOVES = 24
"""Moves at the start of two games that are compared; shorter games are not compared."""
DISTINCTIVE_MOVES = 16
"""Compared moves whose root value must not be an integer; it is one if every simulation of a search ends a game.

A root value is a mean of evaluations, each under one of eight symmetries drawn from the game's random stream. Two
streams give the same root value in the same position with probability 1/8 at most (with one simulation; far less with
more), and in 16 positions with probability 3e-15. A window of 500,000 games has 1.3e11 pairs, few of them with the same
moves. A network whose training has collapsed gives all positions the same value; then the root noise makes the games
differ. Without root noise the clause is not applied."""
CHANCE_FACTOR = 20.0
"""Allowed multiple of the expected number of equal pairs."""
CHANCE_SLACK = 10.0
"""Pairs of equal games that are allowed in addition to CHANCE_FACTOR times the expected number."""


class Opening(NamedTuple):
    """The part of a game that is compared with other games."""

    generation: int
    game: int  # number in its generation
    moves: bytes  # all actions
    values: bytes  # the first COMPARED_MOVES actions and root values; empty if they cannot distinguish two streams
    chance: float  # upper bound of the mean probability that another game has the same moves; 1 if unknown


class Repeats(NamedTuple):
    """Numbers of equal games."""

    unique_games: int  # different sequences of moves
    equal_pairs: int  # pairs of games with the same moves
    expected_pairs: float  # upper bound of the mean number of equal pairs by chance


def openings_of(games: GameColumns, generation: int, chances: np.ndarray | None = None) -> list[Opening]:
    """The openings of the games of a shard.

    Args:
      games: the games; without visit counts if `chances` is None.
      generation: of the games.
      chances: [G], see `chances_of`; None for games of the old window, whose chances no one needs.
    """
    openings = []
    if chances is None:
        chances = np.ones(len(games.game))
    for index, number in enumerate(games.game):
        first, end = int(games.move_offsets[index]), int(games.move_offsets[index + 1])
        actions, values = games.actions[first:end], games.root_values[first : min(end, first + COMPARED_MOVES)]
        distinctive = len(values) == COMPARED_MOVES and np.count_nonzero(values != np.rint(values)) >= DISTINCTIVE_MOVES
        # Bytes, so that equal games have equal keys of a dictionary and floats are compared bit by bit.
        compared = actions[:COMPARED_MOVES].tobytes() + values.tobytes() if distinctive else b""
        openings.append(Opening(generation, int(number), actions.tobytes(), compared, float(chances[index])))
    return openings


def chances_of(games: GameColumns, expected: ExpectedProperties) -> np.ndarray:
    """For each game, an upper bound of the mean probability that another game has the same moves; [G] float64.

    Each game of self-play draws its first moves independently, in proportion to the recorded visit counts. The mean
    probability that another game draws the same moves is at most the product of their shares: E[p^2] >= E[p]^2 for the
    share p of a move, which noise and symmetries vary between games. Later moves can only lower the probability.
    """
    logs = np.zeros(games.num_games)  # sums of logarithms: products of many shares underflow
    if expected.shows_choices and games.num_positions:
        moves = moves_of(games)
        # Other moves are decided by the search alone, so they count with a share of 1, which keeps this an upper bound.
        drawn = (moves.move < expected.play.temperature_moves) & moves.is_target & (moves.played > 0)
        share = np.log(np.where(drawn, moves.played, 1) / np.where(drawn, moves.total, 1))
        np.add.at(logs, moves.game, share)
    return np.exp(logs)


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


def duplicate_violations(openings: Sequence[Opening]) -> list[Violation]:
    """A violation if far more games are equal than by chance; it names the first duplicate.

    The limit is CHANCE_FACTOR times `expected_pairs` plus CHANCE_SLACK. If nothing is drawn (a match), or the record
    does not show the probabilities, all pairs may be equal.
    """
    repeats = count_repeats(openings)
    if repeats.equal_pairs <= CHANCE_FACTOR * repeats.expected_pairs + CHANCE_SLACK:
        return []
    seen: set[bytes] = set()
    for opening in openings:
        number = opening.game
        if opening.moves in seen:
            break
        seen.add(opening.moves)
    text = (
        f"{repeats.equal_pairs} pairs of games have the same moves, chance gives at most {repeats.expected_pairs:.3g} "
        f"({repeats.unique_games} of {len(openings)} games are different)"
    )
    return [Violation("duplicates", number, NO_MOVE, text)]


def count_repeats(openings: Sequence[Opening]) -> Repeats:
    """Counts games with the same moves, and bounds the number of equal pairs by chance."""
    counts = Counter(opening.moves for opening in openings)
    # A game equals each of the n - 1 others with at most its chance, and each pair is counted from both sides.
    return Repeats(
        unique_games=len(counts),
        equal_pairs=sum(count * (count - 1) // 2 for count in counts.values()),
        expected_pairs=sum(opening.chance for opening in openings) * (len(openings) - 1) / 2,
    )
