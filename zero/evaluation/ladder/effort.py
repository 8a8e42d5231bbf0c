"""What a lineage had spent when a generation was made: self-play games by its record, seconds by its notes of costs."""

from collections.abc import Sequence
from typing import NamedTuple

from zero.record.generation import Generation


class Effort(NamedTuple):
    """Of a generation and all before it."""

    games: int | None
    """Self-play games; None where a generation's metrics cannot be read."""
    seconds: float | None
    """Of all stages, as `zero status` shows them; None from the first generation on whose costs nobody noted."""


def efforts(generations: Sequence[Generation]) -> dict[str, Effort]:
    """Effort up to each generation, by tag."""
    games: int | None = 0
    seconds: float | None = 0.0
    found = {}
    for generation in generations:
        if generation.entry is not None and generation.entry.decision is not None:
            played = _games(generation)
            games = None if games is None or played is None else games + played
            spent = _seconds(generation)
            seconds = None if seconds is None or spent is None else seconds + spent
        found[generation.tag] = Effort(games, seconds)
    return found


def _games(generation: Generation) -> int | None:
    return generation.selfplay_metrics.num_games if generation.selfplay_metrics else None


def _seconds(generation: Generation) -> float | None:
    return generation.costs.total().seconds if generation.costs else None
