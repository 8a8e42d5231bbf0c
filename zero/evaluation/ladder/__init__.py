"""`zero elo`: how strong each champion of a lineage is, beside fixed opponents, as ratings with intervals.

| module | |
|---|---|
| `elo` | the model: results to ratings, and which game would tell most |
| `entries` | who is on the ladder: a way to play, never two in one |
| `results` | the gate's matches in the record, and finished matches |
| `effort` | games and hours that a lineage had spent |
| `table` | the ladder as a file |
| `growth` | adds matches where they tell most |
| `screen`, `plot`, `files` | for a person |
| `notebook` | for MLflow |

Nothing here is part of the record: it is all made again from the ledger, the notes and the folders of matches.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zero.config.params import GameParams
from zero.errors import LineageError
from zero.evaluation.ladder.effort import efforts
from zero.evaluation.ladder.elo import Group, rate
from zero.evaluation.ladder.entries import Entry, anchors, champions, entry_of_player, key_of, told_apart
from zero.evaluation.ladder.results import Result, gate_results, match_results
from zero.evaluation.ladder.table import Ladder, make_ladder
from zero.players.player import PlayerId
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord


class Rated(NamedTuple):
    """All results and what follows from them."""

    generations: list[Generation]
    game: GameParams
    results: list[Result]
    entries: Mapping[str, Entry]
    given: Mapping[str, float]
    """Ratings of the anchors by key."""
    groups: tuple[Group, ...]


def lineage_ladder(home: Path, lineage: str, simulations: int | None = None) -> Ladder:
    """The ladder of a lineage as its record and the finished matches tell it.

    Args:
      home: the project's folder.
      lineage: its name.
      simulations: of the players of the curve; by default those that most champions were rated with.

    Raises:
      LineageError: there is no such lineage, or its newest parameters cannot be read.
    """
    with ProjectRecord(home) as chains:
        rated = rate_lineage(home, chains.ancestry(lineage))
        return make_ladder(
            lineage,
            rated.game,
            rated.entries,
            rated.groups,
            rated.given,
            rated.results,
            rated.generations,
            efforts(rated.generations),
            simulations,
        )


def rate_lineage(home: Path, generations: Sequence[Generation]) -> Rated:
    """Reads all results of these generations' networks, and rates who played.

    Raises:
      LineageError: the newest parameters cannot be read.
    """
    newest = generations[-1]
    if newest.params is None:
        raise LineageError(
            f"{newest.tag}: its params.yaml cannot be read by this version; check the tag out and use it"
        )
    game, first = newest.params.game, champions(generations)
    gate = gate_results(generations, game)
    matches = match_results(home, game, set(first))
    results, players = gate.results + matches.results, gate.players + matches.players
    entries = make_entries(players, first)
    given = anchors(players)
    return Rated(
        generations=list(generations),
        game=game,
        results=results,
        entries=entries,
        given=given,
        groups=rate((result.score for result in results), given | _first_network(entries)),
    )


def make_entries(players: Iterable[PlayerId], first: Mapping[str, Generation]) -> dict[str, Entry]:
    """Entries of these players by key. `first`: the generation after which each champion was one first, by SHA-256."""
    entries: dict[str, Entry] = {}
    shown = []
    for player in players:
        made = first.get(str(player.settings.get("weights"))) if player.kind == "network" else None
        if made is not None:  # of one network by one name, however the match was asked for
            simulations = player.settings["simulations"]
            name = f"{made.tag}, {simulations} simulations" if simulations else f"{made.tag}, raw network"
            player = player.model_copy(update={"name": name})
        shown.append(player)
        entries[key_of(player)] = entry_of_player(player, made.number if made else None)
    names = told_apart(shown)
    return {key: entry.model_copy(update={"name": names[key]}) for key, entry in sorted(entries.items())}


def _first_network(entries: Mapping[str, Entry]) -> dict[str, float]:
    """The oldest champion's entries at 0: they hold the scale of a group without an anchor."""
    networks = [entry for entry in entries.values() if entry.generation is not None]
    return {entry.key: 0.0 for entry in sorted(networks, key=lambda entry: (entry.generation, entry.key))}
