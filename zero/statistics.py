"""How sure a share is that was counted in a few games."""

import math

NORMAL_95 = 1.959963984540054
"""Standard normal quantile of a two-sided 95 % interval."""


def wilson_interval(score: float, num_games: int) -> tuple[float, float]:
    """95 % interval of a score over `num_games` (Wilson 1927); a draw is half a win and half a loss."""
    z2 = NORMAL_95**2
    centre = (score + z2 / (2 * num_games)) / (1 + z2 / num_games)
    spread = math.sqrt(score * (1 - score) / num_games + z2 / (4 * num_games**2)) * NORMAL_95 / (1 + z2 / num_games)
    return max(0.0, centre - spread), min(1.0, centre + spread)
