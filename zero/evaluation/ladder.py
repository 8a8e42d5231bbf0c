"""The ladder of a lineage: ratings of its champions and of fixed opponents, and a curve over the generations.

It is not part of the record. Its results are the gating matches of the ledger and the finished matches in folders; the
compute spent comes from the notes of costs.

A player is identified by the SHA-256 of everything that its play depends on (`PlayerId.kind` and `.settings`, not its
name). A network with 32 simulations and the same network with 800 are two entries. The players of gating have the
settings of `zero match go9/gen-0012`, so that their games and those of matches belong to one entry.

A match counts if its game is the ladder's, and one of its players is a champion of the lineage or none is a network.
It counts with the score of all its games and the weight of its unique games: deterministic players can repeat a game,
which adds no information. If matches differ only in their number of games, only the longest one counts, because it
starts with the games of the shorter ones.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from zero.config.params import GameParams
from zero.errors import LineageError
from zero.evaluation.elo import Fit, Group, Score, rate
from zero.evaluation.match import FinishedMatch, finished_matches
from zero.network.profile import local_precision
from zero.players.build import network_id
from zero.players.player import PlayerId
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import Colours, Manifest, MatchResult, Sha256

WEIGHTS, SIMULATIONS = "weights", "simulations"
PRECISION = ("precision", "made_for_precision")
ANCHORS = {"gnugo": 1800.0, "rollout": 1500.0}
"""Given ratings of GNU Go at level 10 and of rollout MCTS. The numbers are arbitrary, but they must never change."""
ANCHOR_LEVEL = 10
CONDITIONS_DIGITS = 12
DIGEST = re.compile("[0-9a-f]{64}")


class Entry(Manifest):
    """One player of a ladder."""

    key: Sha256
    name: str
    kind: str
    """network, gtp, rollout, random."""
    conditions: str
    """Of a network: digest of its settings without weights and precision. A curve has players of equal conditions."""
    simulations: int | None
    """Simulations per move of a network."""
    generation: int | None
    """First generation after which this network was the lineage's champion; None if it never was."""
    text: str | None
    """Spec of the player for `zero match`; None if it is not known."""


class PairResult(Colours):
    """The result of a match for its first player."""

    players: tuple[Sha256, Sha256]
    """Keys of the entries."""
    unique_games: int
    """Games that differ from each other; their number is the weight of the match."""
    forfeits: tuple[int, int] = (0, 0)

    @property
    def score(self) -> Score:
        """The score that the rating model uses: that of all games, with the weight of the unique games."""
        counted = min(self.unique_games, self.num_games)
        return Score(*self.players, self.points * counted / max(1, self.num_games), counted)


class Result(PairResult):
    """A result that the ladder is made of."""

    source: str
    """Tag of a generation, or folder of a match."""
    kind: Literal["gate", "match"]
    opening_moves: int


class OnScale(Manifest):
    """A rating."""

    elo: float
    low: float
    """95 % interval of the difference to the group's reference."""
    high: float

    @property
    def interval(self) -> str:
        """The interval as text."""
        return "given" if self.low == self.high else f"{self.low:z.0f} to {self.high:z.0f}"


class LadderRow(OnScale):
    """An entry with its rating."""

    entry: Entry
    group: int
    """Number of the group, the largest is 0. Ratings of different groups cannot be compared."""
    games: float
    """Unique games."""
    opponents: int


class CurvePoint(OnScale):
    """The champion after a generation."""

    generation: int
    tag: str
    key: Sha256
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
    fit: Fit | None = None
    """With names of players; None without degrees of freedom, or if an older version wrote the file."""


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
    rows: tuple[LadderRow, ...]
    curve: tuple[CurvePoint, ...]
    results: tuple[Result, ...]


class Rated(NamedTuple):
    """All results of a lineage and the ratings that follow from them."""

    generations: Sequence[Generation]
    game: GameParams
    results: list[Result]
    entries: Mapping[str, Entry]
    given: Mapping[str, float]
    """Ratings of the anchors by key."""
    groups: tuple[Group, ...]


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
        rated = rate_lineage(home, record.ancestry(lineage))
        rows = [
            LadderRow(
                entry=rated.entries[rating.player],
                group=number,
                elo=rating.elo,
                low=rating.low,
                high=rating.high,
                games=rating.games,
                opponents=rating.opponents,
            )
            for number, group in enumerate(rated.groups)
            for rating in group.ratings
        ]
        of_curve = _rows_of_curve(rows, simulations)
        return Ladder(
            lineage=lineage,
            game=rated.game,
            conditions=of_curve[0].entry.conditions if of_curve else "",
            simulations=of_curve[0].entry.simulations if of_curve else None,
            scales=tuple(_scale(group, rated) for group in rated.groups),
            rows=tuple(sorted(rows, key=lambda row: (row.group, -row.elo, row.entry.key))),
            curve=tuple(_curve(of_curve, rated.generations)),
            results=tuple(sorted(rated.results, key=lambda result: (result.kind, result.source))),
        )


def rate_lineage(home: Path, generations: Sequence[Generation]) -> Rated:
    """Reads all results of the networks of these generations and rates the players.

    Raises:
      LineageError: the newest parameters cannot be read.
    """
    newest = generations[-1]
    if newest.params is None:
        raise LineageError(f"{newest.tag}: this version cannot read params.yaml; run `zero checkout {newest.tag}`")
    game, champions = newest.params.game, champions_of(generations)
    found = [*gate_results(generations, game), *match_results(home, game, set(champions))]
    results, players = [result for result, _ in found], [player for _, pair in found for player in pair]
    entries, given = make_entries(players, champions), anchors(players)
    # Without an anchor the oldest champion of a group is at 0.
    networks = [entry for entry in entries.values() if entry.generation is not None]
    oldest = {entry.key: 0.0 for entry in sorted(networks, key=lambda entry: (entry.generation, entry.key))}
    groups = rate((result.score for result in results), given | oldest)
    return Rated(generations, game, results, entries, given, groups)


def champions_of(generations: Sequence[Generation]) -> dict[str, Generation]:
    """The champions by SHA-256 of their weights, each with the first generation after which it was champion."""
    found: dict[str, Generation] = {}
    for generation in generations:
        if generation.entry is not None:
            found.setdefault(generation.entry.champion, generation)
    return found


def champion_player(generation: Generation, simulations: int | None = None) -> PlayerId | None:
    """The champion after a generation as a player; None if the parameters cannot be read.

    Args:
      generation: the first generation after which it was champion.
      simulations: simulations per move; by default those of gating.
    """
    if generation.entry is None or generation.params is None:
        return None
    wanted = generation.params.gating.num_simulations if simulations is None else simulations
    params, precision = generation.params, local_precision(generation.params.profile)
    return network_id(generation.tag, generation.entry.champion, params, wanted, precision=precision)


def key_of(player: PlayerId) -> str:
    """The key of a player's entry."""
    return sha256_bytes(canonical_json({"kind": player.kind, "settings": player.settings}))


def entry_of_player(player: PlayerId, generation: int | None = None, text: str | None = None) -> Entry:
    """The entry of a player."""
    conditions = ""
    if player.kind == "network":
        settings = {name: value for name, value in player.settings.items() if name not in (WEIGHTS, *PRECISION)}
        conditions = sha256_bytes(canonical_json(settings))[:CONDITIONS_DIGITS]
    return Entry(
        key=key_of(player),
        name=player.name,
        kind=player.kind,
        conditions=conditions,
        simulations=int(player.settings[SIMULATIONS]) if player.kind == "network" else None,
        generation=generation,
        text=text,
    )


def make_entries(players: Iterable[PlayerId], champions: dict[str, Generation]) -> dict[str, Entry]:
    """Entries of these players by key. `champions`: see `champions_of`."""
    entries: dict[str, Entry] = {}
    named = []
    for player in players:
        first = champions.get(str(player.settings.get(WEIGHTS))) if player.kind == "network" else None
        if first is not None:  # one network has one name, whatever spec the match was started with
            simulations = player.settings[SIMULATIONS]
            name = f"{first.tag}, {simulations} simulations" if simulations else f"{first.tag}, raw network"
            player = player.model_copy(update={"name": name})
        named.append(player)
        entries[key_of(player)] = entry_of_player(player, first.number if first else None)
    names = disambiguate(named)
    return {key: entry.model_copy(update={"name": names[key]}) for key, entry in sorted(entries.items())}


def disambiguate(players: Sequence[PlayerId]) -> dict[str, str]:
    """A unique name for each key: players with equal names get the settings that differ as a suffix."""
    known = {key_of(player): player for player in players}
    same: dict[str, list[str]] = defaultdict(list)
    for key, player in sorted(known.items()):
        same[player.name].append(key)
    names: dict[str, str] = {}
    for name, keys in same.items():
        settings = [known[key].settings for key in keys]
        differing = sorted({s for each in settings for s in each if any(other.get(s) != each[s] for other in settings)})
        for key, each in zip(keys, settings, strict=True):
            texts = ((s, str(each.get(s, "none"))) for s in differing)
            shown = [f"{s} {DIGEST.sub(lambda found: found[0][:CONDITIONS_DIGITS], text)}" for s, text in texts]
            names[key] = ", ".join([name, *shown])
    return names


def with_names(fit: Fit | None, names: Mapping[str, str]) -> Fit | None:
    """A fit with names instead of keys. `names`: by key."""
    return fit and fit.model_copy(update={"pair": tuple(names[key] for key in fit.pair)})


def fit_lines(fits: Sequence[Fit | None]) -> Iterator[str]:
    """How well the ratings of each group describe its scores; nothing for groups without degrees of freedom."""
    for number, fit in enumerate(fits, 1):
        if fit is not None:
            group = f" of group {number}" if len(fits) > 1 else ""
            widened = f"; intervals are widened by {fit.widening:.1f}" if fit.ratio > 1 else ""
            yield (
                f"fit{group}: {fit.pairs} pairs for {fit.ratings} ratings; results differ from the model "
                f"{fit.ratio:z.1f} times as much as chance (1.0 would be chance); most for {fit.pair[0]} against "
                f"{fit.pair[1]}: {fit.expected:.1%} expected, {fit.found:.1%} found{widened}"
            )


def anchors(players: Iterable[PlayerId]) -> dict[str, float]:
    """Keys and given ratings of the anchors among these players, the preferred one first.

    GNU Go comes before rollouts, and rollouts with more playouts before those with fewer.
    """
    found = []
    for player in players:
        if player.kind == "gtp" and "GNU Go" in player.name:
            if player.settings.get("level") == ANCHOR_LEVEL:
                found.append((0, 0, key_of(player), ANCHORS["gnugo"]))
        elif player.kind == "rollout":
            found.append((1, -int(player.settings["playouts"]), key_of(player), ANCHORS["rollout"]))
    return {key: elo for _, _, key, elo in sorted(found)}


def gate_results(generations: Sequence[Generation], game: GameParams) -> Iterator[tuple[Result, Sequence[PlayerId]]]:
    """Results of the gating matches of promoted challengers, with the two players.

    A refused challenger has no other opponent, so its match has no information about the other players.
    """
    first = champions_of(generations)
    for generation in generations:
        decision = generation.entry.decision if generation.entry else None
        params = generation.params
        if decision is None or params is None or params.game != game:
            continue
        if not {decision.challenger, decision.champion} <= first.keys() or decision.challenger == decision.champion:
            continue
        pair = [
            network_id(first[weights].tag, weights, params, params.gating.num_simulations)
            for weights in (decision.challenger, decision.champion)
        ]
        yield Result(source=generation.tag, kind="gate", opening_moves=0, **totals(pair, decision.match)), pair


def match_results(home: Path, game: GameParams, networks: set[str]) -> Iterator[tuple[Result, Sequence[PlayerId]]]:
    """Results of the finished matches of a game, with the two players.

    Matches that have networks, but none of `networks`, are of another lineage and are skipped.
    """
    for folder, spec, table in _longest_matches(finished_matches(home)):
        if spec.game != game or key_of(spec.players[0]) == key_of(spec.players[1]):
            continue
        weights = {str(player.settings.get(WEIGHTS)) for player in spec.players if player.kind == "network"}
        if weights and not weights & networks:
            continue
        result = Result(
            source=folder.name,
            kind="match",
            opening_moves=spec.opening_moves,
            forfeits=table.forfeits,
            **totals(spec.players, table.result),
        )
        yield result, spec.players


def totals(players: Sequence[PlayerId], result: MatchResult) -> dict[str, Any]:
    """The fields of a `PairResult` that come from the two players and the result of a match."""
    counts = result.model_dump(include={"wins", "losses", "draws", "unique_games"})
    return {"players": (key_of(players[0]), key_of(players[1])), **counts}


def _longest_matches(matches: Iterable[FinishedMatch]) -> list[FinishedMatch]:
    """Of the matches that differ only in their number of games the longest one: a game depends only on its number.

    Names of players do not count: after a refused challenger the same champion has the name of the next generation.
    """
    kept: dict[tuple[Any, ...], FinishedMatch] = {}
    for match in matches:
        spec = match.spec
        same = (canonical_json(spec.game), *map(key_of, spec.players), spec.opening_moves, spec.seed)
        if same not in kept or spec.num_games > kept[same].spec.num_games:
            kept[same] = match
    return list(kept.values())


def with_totals(generations: Iterable[Generation]) -> Iterator[tuple[Generation, int | None, float | None]]:
    """The recorded generations, each with the self-play games and the wall-clock seconds of all stages so far.

    The numbers are None from the first generation on whose metrics cannot be read, or whose costs are not noted.
    """
    games: int | None = 0
    seconds: float | None = 0.0
    for generation in generations:
        if generation.entry is None:
            continue
        if generation.entry.decision is not None:
            metrics, costs = generation.selfplay_metrics, generation.costs
            games = None if games is None or metrics is None else games + metrics.num_games
            seconds = None if seconds is None or costs is None else seconds + costs.total().seconds
        yield generation, games, seconds


def _scale(group: Group, rated: Rated) -> Scale:
    return Scale(
        reference=rated.entries[group.reference].name,
        elo=group.rating(group.reference).elo,
        is_anchor=group.reference in rated.given,
        num_players=len(group.ratings),
        fit=with_names(group.fit, {key: entry.name for key, entry in rated.entries.items()}),
    )


def _rows_of_curve(rows: Sequence[LadderRow], simulations: int | None) -> list[LadderRow]:
    """The rows of the group and the conditions with the most champions; of equals those with the newest champion."""
    curves: dict[tuple[int, str], list[LadderRow]] = defaultdict(list)
    for row in rows:
        if row.entry.generation is not None and simulations in (None, row.entry.simulations):
            curves[row.group, row.entry.conditions].append(row)

    def order(curve: tuple[int, str]) -> tuple[int, int, int, str]:
        champions = {row.entry.generation or 0 for row in curves[curve]}
        return len(champions), max(champions), -curve[0], curve[1]

    return curves[max(curves, key=order)] if curves else []


def _curve(rows: Sequence[LadderRow], generations: Sequence[Generation]) -> list[CurvePoint]:
    """A point per generation whose champion has one of the rows, with the compute spent so far."""
    # Of a champion with two precisions the rating with the narrower interval is used.
    row_of = {row.entry.generation: row for row in sorted(rows, key=lambda row: (row.low - row.high, row.entry.key))}
    first = champions_of(generations)
    points: dict[int, CurvePoint] = {}
    for generation, games, seconds in with_totals(generations):
        assert generation.entry is not None
        # The first generation of a branch has the number of its source, and replaces the point of the source.
        points.pop(generation.number, None)
        if row := row_of.get(first[generation.entry.champion].number):
            points[generation.number] = CurvePoint(
                generation=generation.number,
                tag=generation.tag,
                key=row.entry.key,
                elo=row.elo,
                low=row.low,
                high=row.high,
                games=games,
                seconds=seconds,
            )
    return [points[number] for number in sorted(points)]
