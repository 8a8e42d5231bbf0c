"""The ladder: a row per player, a curve over the generations with the compute spent, and the results behind them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zero.config.params import GameParams
from zero.errors import LineageError
from zero.evaluation.ladder.elo import Group, Rating, rate
from zero.evaluation.ladder.results import (
    Entry,
    Result,
    anchors,
    champions_of,
    gate_results,
    make_entries,
    match_results,
)
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord
from zero.storage.manifests import Manifest, Sha256


class Row(Manifest):
    """An entry with its rating."""

    entry: Entry
    group: int
    """Number of the group, the largest is 0. Ratings of different groups cannot be compared."""
    elo: float
    low: float
    """95 % interval of the difference to the group's reference."""
    high: float
    games: float
    """Unique games."""
    opponents: int


class CurvePoint(Manifest):
    """The champion after a generation."""

    generation: int
    tag: str
    key: Sha256
    elo: float
    low: float
    high: float
    games: int | None
    """Self-play games of the lineage so far; None if a generation's metrics cannot be read."""
    seconds: float | None
    """Wall clock of its stages so far; None if the costs of a generation are not noted."""


class Scale(Manifest):
    """The reference of a group's ratings."""

    reference: str
    elo: float
    is_anchor: bool
    """True if the reference is an anchor: ladders with the same anchor have the same scale."""
    num_players: int


class Ladder(Manifest):
    """The ratings of a lineage."""

    lineage: str
    game: GameParams
    conditions: str
    """Conditions of the players of the curve; empty without a curve."""
    simulations: int | None
    """Simulations per move of these players."""
    scales: tuple[Scale, ...]
    """One per group."""
    rows: tuple[Row, ...]
    curve: tuple[CurvePoint, ...]
    results: tuple[Result, ...]


class Rated(NamedTuple):
    """All results of a lineage and the ratings that follow from them."""

    generations: list[Generation]
    game: GameParams
    results: list[Result]
    entries: Mapping[str, Entry]
    given: Mapping[str, float]
    """Ratings of the anchors by key."""
    groups: tuple[Group, ...]


class ComputeSpent(NamedTuple):
    """Compute of a generation and all generations before it."""

    games: int | None
    seconds: float | None


class _Curve(NamedTuple):
    group: int
    conditions: str


def lineage_ladder(home: Path, lineage: str, simulations: int | None = None) -> Ladder:
    """The ladder of a lineage from its record and the finished matches.

    Args:
      home: the project's folder.
      lineage: its name.
      simulations: of the players of the curve; by default the number with which most champions were rated.

    Raises:
      LineageError: the lineage does not exist, or its newest parameters cannot be read.
    """
    with ProjectRecord(home) as record:
        return _make_ladder(lineage, rate_lineage(home, record.ancestry(lineage)), simulations)


def rate_lineage(home: Path, generations: Sequence[Generation]) -> Rated:
    """Reads all results of the networks of these generations and rates the players.

    Raises:
      LineageError: the newest parameters cannot be read.
    """
    newest = generations[-1]
    if newest.params is None:
        raise LineageError(f"{newest.tag}: this version cannot read params.yaml; run `zero checkout {newest.tag}`")
    game, champions = newest.params.game, champions_of(generations)
    gate, matches = gate_results(generations, game), match_results(home, game, set(champions))
    results, players = gate.results + matches.results, gate.players + matches.players
    entries, given = make_entries(players, champions), anchors(players)
    # Without an anchor the oldest champion of a group is at 0.
    networks = [entry for entry in entries.values() if entry.generation is not None]
    oldest = {entry.key: 0.0 for entry in sorted(networks, key=lambda entry: (entry.generation, entry.key))}
    groups = rate((result.score for result in results), given | oldest)
    return Rated(list(generations), game, results, entries, given, groups)


def compute_spent(generations: Sequence[Generation]) -> dict[str, ComputeSpent]:
    """Self-play games and wall-clock seconds up to each generation, by tag."""
    games: int | None = 0
    seconds: float | None = 0.0
    spent = {}
    for generation in generations:
        if generation.entry is not None and generation.entry.decision is not None:
            metrics, costs = generation.selfplay_metrics, generation.costs
            games = None if games is None or metrics is None else games + metrics.num_games
            seconds = None if seconds is None or costs is None else seconds + costs.total().seconds
        spent[generation.tag] = ComputeSpent(games, seconds)
    return spent


def _make_ladder(lineage: str, rated: Rated, simulations: int | None) -> Ladder:
    rows = [
        _row(rated.entries[rating.player], number, rating)
        for number, group in enumerate(rated.groups)
        for rating in group.ratings
    ]
    chosen = _choose_curve(rows, simulations)
    curve = _curve(rows, chosen, rated.generations) if chosen else []
    return Ladder(
        lineage=lineage,
        game=rated.game,
        conditions=chosen.conditions if chosen else "",
        simulations=next((row.entry.simulations for row in rows if chosen and row.entry.conditions == chosen[1]), None),
        scales=tuple(_scale(group, rated) for group in rated.groups),
        rows=tuple(sorted(rows, key=lambda row: (row.group, -row.elo, row.entry.key))),
        curve=tuple(curve),
        results=tuple(sorted(rated.results, key=lambda result: (result.kind, result.source))),
    )


def _row(entry: Entry, group: int, rating: Rating) -> Row:
    return Row(
        entry=entry,
        group=group,
        elo=rating.elo,
        low=rating.low,
        high=rating.high,
        games=rating.games,
        opponents=rating.opponents,
    )


def _scale(group: Group, rated: Rated) -> Scale:
    return Scale(
        reference=rated.entries[group.reference].name,
        elo=group.rating(group.reference).elo,
        is_anchor=group.reference in rated.given,
        num_players=len(group.ratings),
    )


def _choose_curve(rows: Sequence[Row], simulations: int | None) -> _Curve | None:
    """The group and the conditions with the most champions; of equals those with the newest champion."""
    able = [r for r in rows if r.entry.generation is not None and simulations in (None, r.entry.simulations)]
    champions = {(_Curve(row.group, row.entry.conditions), row.entry.generation) for row in able}
    counts = Counter(at for at, _ in champions)
    newest: dict[_Curve, int] = {}
    for row in able:
        at = _Curve(row.group, row.entry.conditions)
        newest[at] = max(newest.get(at, -1), row.entry.generation or 0)
    return max(counts, key=lambda at: (counts[at], newest[at], -at.group, at.conditions), default=None)


def _curve(rows: Sequence[Row], chosen: _Curve, generations: Sequence[Generation]) -> list[CurvePoint]:
    """A point per generation. Of a champion with two precisions the rating with the narrower interval is used."""
    able = [row for row in rows if _Curve(row.group, row.entry.conditions) == chosen]
    row_of = {row.entry.generation: row for row in sorted(able, key=lambda row: (row.low - row.high, row.entry.key))}
    spent = compute_spent(generations)
    first: dict[str, int] = {}
    points: dict[int, CurvePoint] = {}
    for generation in generations:
        if generation.entry is None:
            continue
        number = first.setdefault(generation.entry.champion, generation.number)
        if row := row_of.get(number):
            points[generation.number] = CurvePoint(
                generation=generation.number,
                tag=generation.tag,
                key=row.entry.key,
                elo=row.elo,
                low=row.low,
                high=row.high,
                games=spent[generation.tag].games,
                seconds=spent[generation.tag].seconds,
            )
        else:
            points.pop(generation.number, None)
    return [points[number] for number in sorted(points)]
