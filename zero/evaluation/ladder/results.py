"""Where a ladder's results come from: the gate's matches in the record, and the finished matches of `zero match`.

A match counts where its game is the ladder's, and with as many games as there are different ones among them: a game
that two players without chance repeat tells nothing new. Nor does a match whose games a longer one has as its first.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from zero.config.params import GameParams
from zero.evaluation.ladder.elo import Score
from zero.evaluation.ladder.entries import champions, key_of
from zero.evaluation.match.results import MatchSpec, MatchTable
from zero.evaluation.match.setup import finished_matches
from zero.players.build import network_id
from zero.players.player import PlayerId
from zero.record.generation import Generation
from zero.storage.manifests import Manifest, MatchResult, Sha256


class Result(Manifest):
    """A match, as its first player sees it."""

    source: str
    """Tag of a generation, or folder of a match."""
    kind: Literal["gate", "match"]
    players: tuple[Sha256, Sha256]
    """Keys of the entries."""
    wins: int
    losses: int
    draws: int
    unique_games: int
    opening_moves: int
    forfeits: tuple[int, int] = (0, 0)

    @property
    def games(self) -> int:
        """Games played."""
        return self.wins + self.losses + self.draws

    @property
    def score(self) -> Score:
        """What it counts for."""
        counted = min(self.unique_games, self.games)
        points = (self.wins + self.draws / 2) * counted / self.games if self.games else 0.0
        return Score(*self.players, points, counted)


class Found(NamedTuple):
    """Results and all who played in them."""

    results: list[Result]
    players: list[PlayerId]


def gate_results(generations: Sequence[Generation], game: GameParams) -> Found:
    """The gate's matches between networks that both became champion.

    A refused challenger played nobody else, so its match tells nothing about the others.
    """
    found = Found([], [])
    first = champions(generations)
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
        found.players.extend(pair)
        found.results.append(_result(generation.tag, "gate", (pair[0], pair[1]), decision.match))
    return found


def match_results(home: Path, game: GameParams, networks: set[str]) -> Found:
    """The finished matches of that game between players of which at least one is a network of these or has none."""
    found = Found([], [])
    for folder, spec, table in _longest(finished_matches(home)):
        if spec.game != game or key_of(spec.players[0]) == key_of(spec.players[1]):
            continue
        if not any(player.settings.get("weights") in networks for player in spec.players) and any(
            player.kind == "network" for player in spec.players
        ):
            continue  # of another lineage
        found.players.extend(spec.players)
        found.results.append(
            _result(folder.name, "match", spec.players, table.result, spec.opening_moves, table.forfeits)
        )
    return found


def _longest(matches: Iterable[tuple[Path, MatchSpec, MatchTable]]) -> list[tuple[Path, MatchSpec, MatchTable]]:
    """Of those that differ in their number of games alone the longest: a game draws by its number."""
    kept: dict[str, tuple[Path, MatchSpec, MatchTable]] = {}
    for match in matches:
        drawn = match[1].model_copy(update={"num_games": 2}).key()
        if drawn not in kept or match[1].num_games > kept[drawn][1].num_games:
            kept[drawn] = match
    return list(kept.values())


def _result(
    source: str,
    kind: Literal["gate", "match"],
    players: tuple[PlayerId, PlayerId],
    result: MatchResult,
    opening_moves: int = 0,
    forfeits: tuple[int, int] = (0, 0),
) -> Result:
    return Result(
        source=source,
        kind=kind,
        players=(key_of(players[0]), key_of(players[1])),
        wins=result.wins,
        losses=result.losses,
        draws=result.draws,
        unique_games=result.unique_games,
        opening_moves=opening_moves,
        forfeits=forfeits,
    )
