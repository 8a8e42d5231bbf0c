"""Confidence interval of a proportion (Wilson)."""

import math

NORMAL_95 = 1.959963984540054
"""Quantile of the standard normal distribution for a two-sided 95 % interval."""


def wilson_interval(score: float, num_games: int) -> tuple[float, float]:
    """95 % interval of a score in [0, 1] over `num_games` games (Wilson 1927); a draw counts as half a win."""
    z2 = NORMAL_95**2
    centre = (score + z2 / (2 * num_games)) / (1 + z2 / num_games)
    spread = math.sqrt(score * (1 - score) / num_games + z2 / (4 * num_games**2)) * NORMAL_95 / (1 + z2 / num_games)
    return max(0.0, centre - spread), min(1.0, centre + spread)
