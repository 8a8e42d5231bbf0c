"""A ladder as it is written and shown: a row an entry, a curve over the generations, and the results it comes from."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from zero.config.params import GameParams
from zero.evaluation.ladder.effort import Effort
from zero.evaluation.ladder.elo import Group, Rating
from zero.evaluation.ladder.entries import Entry
from zero.evaluation.ladder.results import Result
from zero.record.generation import Generation
from zero.storage.manifests import Manifest, Sha256


class Row(Manifest):
    """An entry with its rating."""

    entry: Entry
    group: int
    """Ratings of different groups do not compare; 0 is the largest."""
    elo: float
    low: float
    """95 % interval, of the difference to the group's reference."""
    high: float
    games: float
    """Different games."""
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
    """Self-play games of the lineage up to then."""
    seconds: float | None
    """Wall clock of its stages up to then."""


class Scale(Manifest):
    """What a group's ratings are relative to."""

    reference: str
    elo: float
    is_anchor: bool
    """True: other ladders with this anchor have the same scale."""
    num_players: int


class Ladder(Manifest):
    """Who is how strong."""

    lineage: str
    game: GameParams
    conditions: str
    """Of the players of the curve; empty without one."""
    simulations: int | None
    """Theirs."""
    scales: tuple[Scale, ...]
    """Of each group."""
    rows: tuple[Row, ...]
    curve: tuple[CurvePoint, ...]
    results: tuple[Result, ...]


class _Curve(NamedTuple):
    group: int
    conditions: str


def make_ladder(
    lineage: str,
    game: GameParams,
    entries: Mapping[str, Entry],
    groups: Sequence[Group],
    given: Collection[str],
    results: Sequence[Result],
    generations: Sequence[Generation],
    efforts: Mapping[str, Effort],
    simulations: int | None = None,
) -> Ladder:
    """Puts a ladder together.

    Args:
      lineage: whose curve it is.
      game: that all results are of.
      entries: all who played, by key.
      groups: their ratings.
      given: keys of the anchors.
      results: what the ratings come from.
      generations: of the lineage, after those that it branched from.
      efforts: by tag.
      simulations: of the players of the curve; by default those that most champions were rated with.
    """
    rows = [
        _row(entries[rating.player], number, rating) for number, group in enumerate(groups) for rating in group.ratings
    ]
    chosen = _choose_curve(rows, simulations)
    curve = _curve(rows, chosen, generations, efforts) if chosen else ()
    return Ladder(
        lineage=lineage,
        game=game,
        conditions=chosen.conditions if chosen else "",
        simulations=next((row.entry.simulations for row in rows if chosen and row.entry.conditions == chosen[1]), None),
        scales=tuple(_scale(group, entries, given) for group in groups),
        rows=tuple(sorted(rows, key=lambda row: (row.group, -row.elo, row.entry.key))),
        curve=tuple(curve),
        results=tuple(sorted(results, key=lambda result: (result.kind, result.source))),
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


def _scale(group: Group, entries: Mapping[str, Entry], given: Collection[str]) -> Scale:
    return Scale(
        reference=entries[group.reference].name,
        elo=group.rating(group.reference).elo,
        is_anchor=group.reference in given,
        num_players=len(group.ratings),
    )


def _choose_curve(rows: Sequence[Row], simulations: int | None) -> _Curve | None:
    """The group and the conditions with the most champions; of equals those of the newest champion."""
    able = [r for r in rows if r.entry.generation is not None and simulations in (None, r.entry.simulations)]
    champions = {(_Curve(row.group, row.entry.conditions), row.entry.generation) for row in able}
    counts = Counter(at for at, _ in champions)
    newest: dict[_Curve, int] = {}
    for row in able:
        at = _Curve(row.group, row.entry.conditions)
        newest[at] = max(newest.get(at, -1), row.entry.generation or 0)
    return max(counts, key=lambda at: (counts[at], newest[at], -at.group, at.conditions), default=None)


def _curve(
    rows: Sequence[Row], chosen: _Curve, generations: Sequence[Generation], efforts: Mapping[str, Effort]
) -> list[CurvePoint]:
    """A point a generation; of a champion in two precisions the one that is known better."""
    able = [row for row in rows if _Curve(row.group, row.entry.conditions) == chosen]
    row_of = {row.entry.generation: row for row in sorted(able, key=lambda row: (row.low - row.high, row.entry.key))}
    first: dict[str, int] = {}
    points: dict[int, CurvePoint] = {}
    for generation in generations:
        if generation.entry is None:
            continue
        made = first.setdefault(generation.entry.champion, generation.number)
        if row := row_of.get(made):
            points[generation.number] = CurvePoint(
                generation=generation.number,
                tag=generation.tag,
                key=row.entry.key,
                elo=row.elo,
                low=row.low,
                high=row.high,
                games=efforts[generation.tag].games,
                seconds=efforts[generation.tag].seconds,
            )
        else:
            points.pop(generation.number, None)
    return [points[number] for number in sorted(points)]
