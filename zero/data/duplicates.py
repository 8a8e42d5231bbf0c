"""Games that occur twice: the clauses of the data contract over several games. Values in, faults out.

Two games of different streams differ by chance alone, so each clause says how improbable a false alarm is.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns, GameValues
from zero.data.validation import NO_MOVE, Fault, Terms, moves_of

COMPARED_MOVES = 24
"""Moves at the start of two games that are compared; a shorter game is compared with none."""
TELLING_MOVES = 16
"""Of them, those whose root value must be no whole number: only simulations that all ended a game give one twice.
A root value is a mean over evaluations of positions under one of eight symmetries each, drawn from the game's stream.
So two streams give the same in the same position at most once in eight times (with a single simulation; far more seldom
with more), and in sixteen once in 3e14 times; a window of 500,000 games has 1.3e11 pairs, few of which even have the
same moves. To a network that has died all positions are worth the same; then the noise at the root, without which the
clause is not applied, leads the games apart."""
CHANCE_FACTOR = 20.0
CHANCE_SLACK = 10.0
"""Pairs of equal games that are allowed beside CHANCE_FACTOR times the expected number."""


class Opening(NamedTuple):
    """A game as far as it is compared with others."""

    generation: int
    game: int  # number in its generation
    moves: bytes  # all actions
    values: bytes  # the first COMPARED_MOVES actions and root values; empty where they do not tell two streams apart
    chance: float  # that another game makes the same moves: on average at most this; 1 where nothing is known


class Repeats(NamedTuple):
    """How many games there are twice."""

    unique_games: int  # different sequences of moves
    equal_pairs: int  # pairs of games with the same moves
    expected_pairs: float  # what chance gives on average, or fewer


def openings_of(games: GameColumns, terms: Terms) -> list[Opening]:
    """The games of a shard as they are compared."""
    values = GameValues(games.game, games.move_offsets, games.actions, games.root_values)
    return [
        opening._replace(chance=float(chance))
        for opening, chance in zip(openings_of_values(values, terms.generation), chances_of(games, terms), strict=True)
    ]


def openings_of_values(games: GameValues, generation: int) -> list[Opening]:
    """The same without the chances, for which the visits are needed."""
    openings = []
    for index, number in enumerate(games.game):
        first, end = int(games.move_offsets[index]), int(games.move_offsets[index + 1])
        actions, values = games.actions[first:end], games.root_values[first : min(end, first + COMPARED_MOVES)]
        is_telling = len(values) == COMPARED_MOVES and np.count_nonzero(values != np.rint(values)) >= TELLING_MOVES
        compared = actions[:COMPARED_MOVES].tobytes() + values.tobytes() if is_telling else b""
        openings.append(Opening(generation, int(number), actions.tobytes(), compared, 1.0))
    return openings


def chances_of(games: GameColumns, terms: Terms) -> np.ndarray:
    """The chance, for each game, that another one makes the same moves; on average at most this. [G] float64.

    The first moves of self-play are drawn in proportion to the recorded visits, in each game by itself. The chance that
    another game makes them is on average at most the product of their shares: E[p^2] >= E[p]^2 for the share p of a
    move, which noise and symmetries make another one in each game. Later moves only part games further.
    """
    logs = np.zeros(games.num_games)
    if not terms.gumbel and terms.forced_playouts == 0.0 and games.num_positions:
        moves = moves_of(games)
        drawn = (moves.move < terms.temperature_moves) & moves.is_target & (moves.played > 0)
        share = np.log(np.where(drawn, moves.played, 1) / np.where(drawn, moves.total, 1))
        np.add.at(logs, moves.game, share)
    return np.exp(logs)


def stream_faults(new: Sequence[Opening], old: Sequence[Opening], terms: Terms) -> list[Fault]:
    """The new games that were played from the stream of an old one or of an earlier new one.

    Without random symmetries or noise at the root, two honest games may be the same; nothing is then said.
    """
    if not (terms.random_symmetry and terms.root_noise):
        return []
    seen = {opening.values: opening for opening in old if opening.values}
    faults = []
    for opening in new:
        twin = seen.setdefault(opening.values, opening) if opening.values else opening
        if twin is not opening:
            text = (
                f"its first {COMPARED_MOVES} moves and root values are those of game {twin.game} of generation "
                f"{twin.generation}: one stream was played twice"
            )
            faults.append(Fault("streams", opening.game, NO_MOVE, text))
    return faults


def duplicate_faults(openings: Sequence[Opening]) -> list[Fault]:
    """A fault where far more games have the same moves than chance gives; it names the first game that is a repeat.

    More than CHANCE_FACTOR times `expected_pairs` and CHANCE_SLACK beside it is no chance. Where nothing is drawn (a
    match), or the record does not show the draws, all pairs may be equal.
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
        f"{repeats.equal_pairs} pairs of games have the same moves, chance gives {repeats.expected_pairs:.3g} or fewer "
        f"({repeats.unique_games} of {len(openings)} games are different)"
    )
    return [Fault("duplicates", number, NO_MOVE, text)]


def count_repeats(openings: Sequence[Opening]) -> Repeats:
    """Games with the same moves, and how many pairs of them chance gives at most."""
    counts = Counter(opening.moves for opening in openings)
    return Repeats(
        unique_games=len(counts),
        equal_pairs=sum(count * (count - 1) // 2 for count in counts.values()),
        expected_pairs=sum(opening.chance for opening in openings) * (len(openings) - 1) / 2,
    )
