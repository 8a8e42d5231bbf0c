"""Ratings from results by the model of Bradley and Terry (1952), with intervals. Pure functions.

A player with rating R scores 1 / (1 + 10^((Q - R) / 400)) against one with rating Q; a draw counts as half a win and
half a loss. Ratings maximise the posterior (SciPy's `trust-exact` with the exact gradient and Hessian). Intervals are
those of its normal approximation, the inverse Hessian. The prior is one additional drawn game per player, shared among
its opponents in proportion to its games. It keeps the rating of a player finite that won or lost all games.

The model can be wrong: of three players each may beat the next. `Fit` compares the deviance of the scores with the one
that chance gives. Where it is larger, all intervals of the group are wider by the square root of the ratio
(quasi-likelihood: McCullagh & Nelder 1989, Generalized Linear Models, section 4.5 and chapter 9).

Players that no chain of games connects cannot be compared. They form groups, each with its own scale. (The library
`choix` 0.4 fits this model, but without draws, fixed players, or the covariance at the maximum.)
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_expit, rel_entr

from zero.statistics import NORMAL_95
from zero.storage.manifests import Manifest

ELO_OF_LOGIT = 400 / math.log(10)
"""Rating points per unit of log odds."""
PRIOR_GAMES = 1.0
"""Drawn games per player that the prior adds, on average."""
PRIOR_OF_FIT = 1e-6
"""Share of the prior in the ratings whose deviance is measured: players that won all games fit the model, but the
complete prior keeps their ratings from doing so."""
TOLERANCE = 1e-10
"""Tolerance of the gradient, in games."""

DIGITS = 9
"""Decimals when pairs are compared: in a chain all neighbours are equal except for rounding errors."""

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
    """95 % interval of the difference to the reference of the group, widened by the misfit of the group."""
    high: float
    games: float
    opponents: int


class Fit(Manifest):
    """How well the model describes the scores of a group."""

    pairs: int
    """Pairs with games."""
    ratings: int
    """Ratings that are fitted: all except that of the reference. Degrees of freedom are `pairs - ratings`."""
    deviance: float
    """Of the scores from those that the best ratings expect, almost without the prior."""
    ratio: float
    """The deviance over its mean if the model is right and no game is drawn; draws lower it."""
    pair: Pair
    """The pair with the largest standardized deviance residual."""
    expected: float
    """Score per game of its first player, from the ratings."""
    found: float
    """Score per game of its first player, from the games."""

    @property
    def widening(self) -> float:
        """Factor of the intervals, at least 1."""
        return math.sqrt(max(1.0, self.ratio))


class Group(NamedTuple):
    """Players that are connected by chains of games."""

    reference: str
    """Player with a given rating; the other ratings are relative to it."""
    ratings: tuple[Rating, ...]  # K, by name
    covariance: np.ndarray  # [K, K] float64, of the log odds, not widened; zero for the reference
    fit: Fit | None
    """None without degrees of freedom: then the ratings can describe any scores."""

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
    values = [round(information(groups, pair), DIGITS) for pair in pairs]
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
    # Row k of the design has +1 and -1 for the players of pair k, so its product with the log odds is their difference.
    design = np.zeros((len(pairs), len(players)))
    design[range(len(pairs)), first], design[range(len(pairs)), second] = 1, -1
    free = np.array([k for k, player in enumerate(players) if player != reference])
    design = design[:, free]  # the reference has a given rating, so it is not a variable of the fit
    found, information_matrix = _maximum(design, won + drawn / 2, games + drawn)
    free_covariance, fit = np.linalg.inv(information_matrix), None
    if len(pairs) > len(free):
        best, _ = _maximum(design, won + PRIOR_OF_FIT * drawn / 2, games + PRIOR_OF_FIT * drawn)
        variance = ((design @ free_covariance) * design).sum(axis=1)
        fit = _goodness(pairs, len(free), won, games, design @ found, design @ best, variance)
    covariance = np.zeros((len(players), len(players)))
    covariance[np.ix_(free, free)] = free_covariance
    elo = np.full(len(players), float(references.get(reference, 0.0)))
    elo[free] += ELO_OF_LOGIT * found
    spread = NORMAL_95 * ELO_OF_LOGIT * np.sqrt(np.diag(covariance)) * (fit.widening if fit else 1)
    opponents = np.bincount(np.concatenate([first, second]))
    ratings = tuple(
        Rating(player, float(elo[k]), float(elo[k] - spread[k]), float(elo[k] + spread[k]), float(played[k]), int(n))
        for (k, player), n in zip(enumerate(players), opponents, strict=True)
    )
    return Group(reference, ratings, covariance, fit)


def _maximum(design: np.ndarray, won: np.ndarray, games: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The log odds of the highest likelihood, and the Hessian of the loss there.

    Args:
      design: [pairs, ratings], the differences of the log odds.
      won: [pairs] points of the first player.
      games: [pairs].
    """

    def loss(log_odds: np.ndarray) -> tuple[float, np.ndarray]:
        gap = design @ log_odds
        value = won @ np.logaddexp(0, -gap) + (games - won) @ np.logaddexp(0, gap)
        return float(value), design.T @ (games * expit(gap) - won)

    def hessian(log_odds: np.ndarray) -> np.ndarray:
        p = expit(design @ log_odds)
        return np.asarray(design.T @ ((games * p * (1 - p))[:, np.newaxis] * design))

    start = np.zeros(design.shape[1])
    found = minimize(loss, start, method="trust-exact", jac=True, hess=hessian, options={"gtol": TOLERANCE}).x
    return found, hessian(found)


def _goodness(
    pairs: Sequence[Pair],
    ratings: int,
    won: np.ndarray,
    games: np.ndarray,
    gap: np.ndarray,
    best_gap: np.ndarray,
    variance: np.ndarray,
) -> Fit:
    """The fit of a group.

    Args:
      pairs: with games.
      ratings: number of fitted ratings.
      won: [pairs] points of the first player.
      games: [pairs].
      gap: [pairs] differences of the log odds.
      best_gap: the same almost without the prior.
      variance: [pairs] of `gap`.
    """
    deviances = _deviances(won, games, best_gap)
    deviance = math.fsum(deviances)
    expected = expit(gap)
    # One minus the leverage is the share of a pair in the degrees of freedom. These alone do not say what chance gives:
    # the mean deviance of a lopsided pair is far below 1.
    shares = 1 - games * expected * (1 - expected) * variance
    chance = math.fsum(shares * [_mean_deviance(*each) for each in zip(games, gap, strict=True)])
    largest = int(np.argmax(np.round(deviances / shares, DIGITS)))
    return Fit(
        pairs=len(pairs),
        ratings=ratings,
        deviance=deviance,
        ratio=deviance / chance,
        pair=pairs[largest],
        expected=float(expected[largest]),
        found=float(won[largest] / games[largest]),
    )


def _deviances(won: np.ndarray, games: np.ndarray | int, gap: np.ndarray | float) -> np.ndarray:
    """Deviances of scores from the expected ones, each at least 0. `gap`: log odds of the first player."""
    return np.asarray(2 * (rel_entr(won, games * expit(gap)) + rel_entr(games - won, games * expit(-gap))))


def _mean_deviance(games: float, gap: float) -> float:
    """Mean deviance of the score of a pair without draws; the number of games is rounded."""
    n = max(1, round(games))
    won = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(won + 1) - gammaln(n - won + 1)
    return float(np.exp(ways + won * log_expit(gap) + (n - won) * log_expit(-gap)) @ _deviances(won, n, gap))
