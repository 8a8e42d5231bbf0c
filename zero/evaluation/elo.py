"""Ratings from results by the model of Bradley and Terry (1952), with intervals. Pure functions.

A player with rating R scores 1 / (1 + 10^((Q - R) / 400)) against one with rating Q; a draw counts as half a win and
half a loss. Ratings maximise the posterior (SciPy's `trust-exact` with the exact gradient and Hessian). Intervals are
those of its normal approximation, the inverse Hessian. The prior is one additional drawn game per player, shared among
its opponents in proportion to its games. It keeps the rating of a player finite that won or lost all games.

Players that no chain of games connects cannot be compared. They form groups, each with its own scale. (The library
`choix` 0.4 fits this model, but without draws, fixed players, or the covariance at the maximum.)
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from zero.statistics import NORMAL_95

ELO_OF_LOGIT = 400 / math.log(10)
"""Rating points per unit of log odds."""
PRIOR_GAMES = 1.0
"""Drawn games per player that the prior adds, on average."""
TOLERANCE = 1e-10
"""Tolerance of the gradient, in games."""

INFORMATION_DIGITS = 9
"""Decimals of the comparison of information: in a chain all neighbours are equal except for rounding errors."""

Pair = tuple[str, str]
"""Two players."""


class Score(NamedTuple):
    """Points of a player in its games against another."""

    first: str
    second: str
    points: float
    """Points of the first player: its wins and half of the draws."""
    games: float


class Rating(NamedTuple):
    """Rating of a player on the scale of its group."""

    player: str
    elo: float
    low: float
    """95 % interval of the difference to the reference of the group."""
    high: float
    games: float
    opponents: int


class Group(NamedTuple):
    """Players that are connected by chains of games."""

    reference: str
    """Player with a given rating; the other ratings are relative to it."""
    ratings: tuple[Rating, ...]  # K, by name
    covariance: np.ndarray  # [K, K] float64, of the log odds; zero for the reference

    def rating(self, player: str) -> Rating:
        """The rating of a player of the group."""
        return next(rating for rating in self.ratings if rating.player == player)


def rate(scores: Iterable[Score], references: Mapping[str, float]) -> tuple[Group, ...]:
    """Ratings of all players with games. The order of the scores does not change a bit.

    Args:
      scores: scores of pairs, also several of one pair; scores without games are ignored.
      references: given ratings, in order of preference. A group without any of these players has its first player by
        name at 0.

    Returns:
      The groups, the largest first.
    """
    table = _table(scores)
    groups = [_fit(group, table, references) for group in _connected(table)]
    return tuple(sorted(groups, key=lambda group: (-len(group.ratings), group.ratings[0].player)))


def expected_score(elo: float, opponent: float) -> float:
    """Expected score per game."""
    return 1 / (1 + 10 ** ((opponent - elo) / 400))


def information(groups: Sequence[Group], pair: Pair) -> float:
    """Information of a game: p (1 - p) times the variance of the difference; infinite between two groups.

    The pair with the highest information shrinks the volume of the joint confidence region most: n games multiply the
    determinant of the information matrix by 1 + n p (1 - p) variance.
    """
    for group in groups:
        names = [rating.player for rating in group.ratings]
        if pair[0] in names and pair[1] in names:
            i, j = names.index(pair[0]), names.index(pair[1])
            p = expected_score(group.ratings[i].elo, group.ratings[j].elo)
            covariance = group.covariance
            return p * (1 - p) * float(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])
    return math.inf


def most_informative(groups: Sequence[Group], pairs: Sequence[Pair]) -> Pair:
    """The pair with the highest information per game; of equals the first."""
    values = [round(information(groups, pair), INFORMATION_DIGITS) for pair in pairs]
    return pairs[values.index(max(values))]


def _table(scores: Iterable[Score]) -> dict[Pair, tuple[float, float]]:
    """(Points of the first player, games) by pair; the names of a pair are sorted."""
    points: dict[Pair, list[float]] = defaultdict(list)
    games: dict[Pair, list[float]] = defaultdict(list)
    for score in scores:
        assert score.first != score.second and 0 <= score.points <= score.games
        if score.games:
            swapped = score.second < score.first
            pair = (score.second, score.first) if swapped else (score.first, score.second)
            points[pair].append(score.games - score.points if swapped else score.points)
            games[pair].append(score.games)
    return {pair: (math.fsum(points[pair]), math.fsum(games[pair])) for pair in sorted(games)}


def _connected(table: Iterable[Pair]) -> list[list[str]]:
    """The sorted players of each group."""
    group_of: dict[str, set[str]] = {}
    for pair in table:
        joined = set(pair).union(*(group_of.get(player, ()) for player in pair))
        group_of |= dict.fromkeys(joined, joined)
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def _fit(players: list[str], table: Mapping[Pair, tuple[float, float]], references: Mapping[str, float]) -> Group:
    reference = next((player for player in references if player in players), players[0])
    place = {player: k for k, player in enumerate(players)}
    pairs = [pair for pair in table if pair[0] in place]
    first, second = (np.array([place[pair[which]] for pair in pairs]) for which in (0, 1))
    won, games = (np.array([table[pair][which] for pair in pairs]) for which in (0, 1))
    played = np.bincount(first, games, len(players)) + np.bincount(second, games, len(players))
    # The prior: PRIOR_GAMES drawn games per player, shared among its opponents in proportion to its games.
    drawn = PRIOR_GAMES * (games / played[first] + games / played[second]) / 2
    won_all, all_games = won + drawn / 2, games + drawn
    # Row k of the design has +1 and -1 for the players of pair k, so its product with the log odds is their difference.
    design = np.zeros((len(pairs), len(players)))
    design[range(len(pairs)), first], design[range(len(pairs)), second] = 1, -1
    free = np.array([k for k, player in enumerate(players) if player != reference])
    design = design[:, free]  # the reference has a given rating, so it is not a variable of the fit

    def loss(log_odds: np.ndarray) -> tuple[float, np.ndarray]:
        gap = design @ log_odds
        value = won_all @ np.logaddexp(0, -gap) + (all_games - won_all) @ np.logaddexp(0, gap)
        return float(value), design.T @ (all_games * expit(gap) - won_all)

    def hessian(log_odds: np.ndarray) -> np.ndarray:
        p = expit(design @ log_odds)
        return np.asarray(design.T @ ((all_games * p * (1 - p))[:, np.newaxis] * design))

    found = minimize(
        loss, np.zeros(len(free)), method="trust-exact", jac=True, hess=hessian, options={"gtol": TOLERANCE}
    ).x
    covariance = np.zeros((len(players), len(players)))
    covariance[np.ix_(free, free)] = np.linalg.inv(hessian(found))
    elo = np.full(len(players), float(references.get(reference, 0.0)))
    elo[free] += ELO_OF_LOGIT * found
    spread = NORMAL_95 * ELO_OF_LOGIT * np.sqrt(np.diag(covariance))
    opponents = np.bincount(np.concatenate([first, second]))
    ratings = tuple(
        Rating(player, float(elo[k]), float(elo[k] - spread[k]), float(elo[k] + spread[k]), float(played[k]), int(n))
        for (k, player), n in zip(enumerate(players), opponents, strict=True)
    )
    return Group(reference, ratings, covariance)
