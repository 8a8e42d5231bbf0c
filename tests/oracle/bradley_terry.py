"""The Bradley-Terry model, slow and obvious: Zermelo's iteration, a numerical Hessian, gains and fit by brute force.

Source: Hunter (2004), MM algorithms for generalized Bradley-Terry models, for the iteration.
"""

import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np

Table = dict[tuple[str, str], tuple[float, float]]
"""Points of the first player and number of games, by pair."""
ROUNDS = 200_000


def with_prior(table: Table, prior_games: float) -> Table:
    """Adds each player's drawn games of the prior, distributed over its opponents like its games."""
    played: dict[str, float] = defaultdict(float)
    for pair, (_, games) in table.items():
        for player in pair:
            played[player] += games
    return {
        pair: (points + drawn / 2, games + drawn)
        for pair, (points, games) in table.items()
        for drawn in [sum(prior_games / 2 * games / played[player] for player in pair)]
    }


def log_odds(table: Table, reference: str) -> dict[str, float]:
    """Natural log of each player's strength over the reference's."""
    players = sorted({player for pair in table for player in pair})
    won: dict[str, float] = defaultdict(float)
    for (first, second), (points, games) in table.items():
        won[first] += points
        won[second] += games - points
    strength = dict.fromkeys(players, 1.0)
    for _ in range(ROUNDS):
        new = {}
        for player in players:
            shared = sum(
                games / (strength[first] + strength[second])
                for (first, second), (_, games) in table.items()
                if player in (first, second)
            )
            new[player] = won[player] / shared
        scale = new[reference]
        new = {player: value / scale for player, value in new.items()}
        if max(abs(math.log(new[p] / strength[p])) for p in players) < 1e-13:
            break
        strength = new
    return {player: math.log(value) for player, value in strength.items()}


def log_likelihood(table: Table, odds: dict[str, float]) -> float:
    total = 0.0
    for (first, second), (points, games) in table.items():
        p = 1 / (1 + math.exp(odds[second] - odds[first]))
        total += points * math.log(p) + (games - points) * math.log(1 - p)
    return total


def information_matrix(table: Table, odds: dict[str, float], reference: str) -> tuple[list[str], np.ndarray]:
    """Negative second derivatives of the log likelihood by finite differences, without the reference."""
    free = [player for player in sorted(odds) if player != reference]
    step = 1e-3

    def moved(*shifts: tuple[str, float]) -> float:
        changed = dict(odds)
        for player, by in shifts:
            changed[player] += by
        return log_likelihood(table, changed)

    matrix = np.zeros((len(free), len(free)))
    for i, a in enumerate(free):
        for j, b in enumerate(free):
            corners = [(sa, sb, moved((a, sa * step), (b, sb * step))) for sa in (1, -1) for sb in (1, -1)]
            matrix[i, j] = -sum(sa * sb * value for sa, sb, value in corners) / (4 * step * step)
    return free, matrix


def gain(table: Table, odds: dict[str, float], reference: str, first: str, second: str) -> float:
    """Increase of the log determinant of the information by one expected game of the pair."""
    p = 1 / (1 + math.exp(odds[second] - odds[first]))
    free, before = information_matrix(table, odds, reference)
    place = {player: k for k, player in enumerate(free)}
    after = before.copy()
    for player, other in ((first, second), (second, first)):
        if player in place:
            after[place[player], place[player]] += p * (1 - p)
            if other in place:
                after[place[player], place[other]] -= p * (1 - p)
    return float(np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1])


def deviance(points: float, games: float, p: float) -> float:
    """Twice the logarithm of how much likelier a score is if its share is the expected one."""

    def term(found: float, expected: float) -> float:
        return found * math.log(found / expected) if found else 0.0

    return 2 * (term(points, games * p) + term(games - points, games * (1 - p)))


def mean_deviance(games: int, p: float) -> float:
    """The mean over all scores without draws."""
    chances = [math.comb(games, won) * p**won * (1 - p) ** (games - won) for won in range(games + 1)]
    return sum(chance * deviance(won, games, p) for won, chance in enumerate(chances))


class Goodness(NamedTuple):
    """Fit of a table of whole numbers of games."""

    deviance: float
    ratio: float
    residuals: dict[tuple[str, str], float]
    """Squared standardized deviance residuals."""


def goodness(table: Table, prior_games: float, reference: str) -> Goodness:
    """Deviances from the ratings without a prior; what chance gives, and leverages, from those with the prior."""
    shrunk_table = with_prior(table, prior_games)
    shrunk, best = log_odds(shrunk_table, reference), log_odds(with_prior(table, 1e-6 * prior_games), reference)
    free, information = information_matrix(shrunk_table, shrunk, reference)
    covariance = np.linalg.inv(information)
    total, chance, residuals = 0.0, 0.0, {}
    for pair, (points, games) in table.items():
        contrast = np.array([(player == pair[0]) - (player == pair[1]) for player in free], float)
        p = 1 / (1 + math.exp(shrunk[pair[1]] - shrunk[pair[0]]))
        share = 1 - games * p * (1 - p) * float(contrast @ covariance @ contrast)
        found = deviance(points, games, 1 / (1 + math.exp(best[pair[1]] - best[pair[0]])))
        total += found
        chance += share * mean_deviance(int(games), p)
        residuals[pair] = found / share
    return Goodness(total, total / chance, residuals)
