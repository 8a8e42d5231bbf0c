"""What a lineage had spent when a generation was made: self-play games by its record, seconds by its notes of costs."""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import ValidationError

from zero.record.costs import read_note
from zero.record.generation import Generation
from zero.record.metrics import SelfplayMetrics
from zero.storage.layout import SELFPLAY_METRICS


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
    data = generation.file(SELFPLAY_METRICS)
    try:
        return SelfplayMetrics.model_validate_json(data).num_games if data else None
    except ValidationError:  # of another version of this program
        return None


def _seconds(generation: Generation) -> float | None:
    costs = read_note(generation.history.reader.repository, generation.lineage, generation.tag)
    return None if costs is None else costs.total().seconds
