"""The players of a ladder and their results.

A player is identified by the SHA-256 of everything that its play depends on (`PlayerId.kind` and `.settings`, not its
name). A network with 32 simulations and the same network with 800 are two entries. The players of gating have the
settings of `zero match go9/gen-0012`, so that their games and those of matches belong to one entry.

A match counts if its game is the ladder's. It counts with the number of its unique games: deterministic players can
repeat a game, which adds no information. If matches differ only in their number of games, only the longest one counts,
because it starts with the games of the shorter ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from zero.config.params import GameParams
from zero.evaluation.ladder.elo import Score
from zero.evaluation.match.setup import FinishedMatch, finished_matches
from zero.network.profile import local_precision
from zero.players.build import network_id
from zero.players.player import PlayerId
from zero.record.generation import Generation
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import Manifest, MatchResult, Sha256

WEIGHTS, SIMULATIONS = "weights", "simulations"
PRECISION = ("precision", "made_for_precision")
ANCHORS = {"gnugo": 1800.0, "rollout": 1500.0}
"""Given ratings of GNU Go at level 10 and of rollout MCTS. The numbers are arbitrary, but they must never change."""
ANCHOR_LEVEL = 10
CONDITIONS_DIGITS = 12


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
    """Generation after which a champion of the lineage was champion first."""
    text: str | None
    """Spec of the player for `zero match`; None if it is not known."""


class Result(Manifest):
    """The result of a match for its first player."""

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
        """The score that the rating model uses: that of the unique games."""
        counted = min(self.unique_games, self.games)
        points = (self.wins + self.draws / 2) * counted / self.games if self.games else 0.0
        return Score(*self.players, points, counted)


class Results(NamedTuple):
    """Results and the players in them."""

    results: list[Result]
    players: list[PlayerId]


def key_of(player: PlayerId) -> str:
    """The key of a player's entry."""
    return sha256_bytes(canonical_json({"kind": player.kind, "settings": player.settings}))


def entry_of_player(player: PlayerId, generation: int | None = None, text: str | None = None) -> Entry:
    """The entry of a player."""
    conditions = ""
    if player.kind == "network":
        settings = {name: value for name, value in player.settings.items() if name not in (WEIGHTS, *PRECISION)}
        conditions = sha256_bytes(canonical_json(settings))[:CONDITIONS_DIGITS]
    simulations = player.settings.get(SIMULATIONS)
    return Entry(
        key=key_of(player),
        name=player.name,
        kind=player.kind,
        conditions=conditions,
        simulations=int(simulations) if simulations is not None and player.kind == "network" else None,
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
            shown = [f"{s} {str(each.get(s, 'none'))[:CONDITIONS_DIGITS]}" for s in differing]
            names[key] = ", ".join([name, *shown])
    return names


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
            found.append((1, -int(player.settings.get("playouts", 0)), key_of(player), ANCHORS["rollout"]))
    return {key: elo for _, _, key, elo in sorted(found)}


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


def champion_text(generation: Generation, simulations: int | None = None) -> str:
    """The spec of that player for `zero match`."""
    return generation.tag if simulations is None else f"{generation.tag},simulations={simulations}"


def gate_results(generations: Sequence[Generation], game: GameParams) -> Results:
    """Results of the gating matches of promoted challengers.

    A refused challenger has no other opponent, so its match has no information about the other players.
    """
    found = Results([], [])
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
        found.players.extend(pair)
        found.results.append(_result(generation.tag, "gate", (pair[0], pair[1]), decision.match))
    return found


def match_results(home: Path, game: GameParams, networks: set[str]) -> Results:
    """Results of the finished matches of a game. Matches that have networks, but none of `networks`, are skipped."""
    found = Results([], [])
    for folder, spec, table in _longest(finished_matches(home)):
        if spec.game != game or key_of(spec.players[0]) == key_of(spec.players[1]):
            continue
        weights = {str(player.settings.get(WEIGHTS)) for player in spec.players if player.kind == "network"}
        if weights and not weights & networks:  # of another lineage
            continue
        found.players.extend(spec.players)
        found.results.append(
            _result(folder.name, "match", spec.players, table.result, spec.opening_moves, table.forfeits)
        )
    return found


def _longest(matches: Iterable[FinishedMatch]) -> list[FinishedMatch]:
    """Of the matches that differ only in their number of games the longest one: a game depends only on its number."""
    kept: dict[str, FinishedMatch] = {}
    for match in matches:
        same = match.spec.model_copy(update={"num_games": 2}).key()
        if same not in kept or match.spec.num_games > kept[same].spec.num_games:
            kept[same] = match
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
