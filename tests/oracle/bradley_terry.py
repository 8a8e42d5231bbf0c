"""The Bradley-Terry model, slow and obvious: Zermelo's iteration, a numerical Hessian, gains by brute force.

Source: Hunter (2004), MM algorithms for generalized Bradley-Terry models, for the iteration.
"""

import math
from collections import defaultdict

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
