"""Chooses the stronger player if a local lineage and a shipped player have the same name.

Only `zero play` and `zero gtp` choose. In matches, ratings and exports the name always means the champion of the
lineage: they are evidence, and their subject must not depend on which games were played.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from zero.config.params import GameParams
from zero.errors import ZeroError
from zero.evaluation.ladder import longest_matches
from zero.evaluation.match import finished_matches
from zero.players.build import SESSION_SIMULATIONS, difference
from zero.players.networks import (
    SHIPPED_PREFIX,
    is_ambiguous,
    resolve_network,
    shipped_generation,
)
from zero.players.spec import PlayerSpec
from zero.record.ledger import find_workspace, generation_tag, parse_tag, read_ledger
from zero.storage.files import sha256_bytes
from zero.storage.manifests import LedgerEntry

EQUAL = ("simulations", "pass_wins", "resign_threshold")
"""Settings that both players of a match must share for it to count. Others, such as `root`, may differ, because the two
lineages may have different ones."""

SESSION_SEARCH = f"simulations={SESSION_SIMULATIONS},pass_wins=true"
"""Options of the suggested match: both players search alike, whatever their lineages do."""


def choose_player(home: Path, spec: PlayerSpec, command: str, log_line: Callable[[str], None]) -> PlayerSpec:
    """The spec of the player to start; `spec` itself unless it names both a lineage and a shipped player.

    Args:
      home: the project's folder.
      spec: what the user gave.
      command: the command that starts the player, for the hint: "play" or "gtp".
      log_line: receives a line for the user: who plays, why, and how to choose the other player.

    Raises:
      StorageError: the shipped player is corrupt.
    """
    if not spec.has_network or not is_ambiguous(home, spec.argument):
        return spec
    ledger = read_ledger(find_workspace(home, spec.argument))
    champion, shipped = generation_tag(spec.argument, ledger[-1].generation), f"{SHIPPED_PREFIX}{spec.argument}"
    is_champion, reason = _choose(home, ledger, champion, shipped)
    chosen, other = (champion, shipped) if is_champion else (shipped, champion)
    which = "shipped player" if is_champion else "champion"
    log_line(f"{chosen} plays: {reason}. To choose the {which}: `zero {command} {spec.with_argument(other).text}`.")
    return spec.with_argument(chosen)


def _choose(home: Path, ledger: Sequence[LedgerEntry], champion: str, shipped: str) -> tuple[bool, str]:
    """True if the champion plays, and the reason."""
    other = resolve_network(home, shipped)
    try:
        own = resolve_network(home, champion)
        own_params, other_params = own.read_params(), other.read_params()
    except ZeroError as error:  # for example, the champion's weights are not on this machine
        return False, str(error)
    if own_params and other_params and own_params.game != other_params.game:
        return True, f"{shipped} plays another game ({difference(own_params.game, other_params.game)})"
    if own.weights == other.weights:
        return True, f"{shipped} is the same network"
    results = _results_against(home, sha256_bytes(other.weights), own_params.game) if own_params else {}
    for entry in champions(ledger):
        won, lost = results.get(entry.champion, (0, 0))
        is_current = entry.champion == ledger[-1].champion
        if won > lost:
            who = "it" if is_current else f"its predecessor {generation_tag(entry.lineage, entry.generation)}"
            return True, f"{who} won {won} and lost {lost} games against {shipped} in the matches on this machine"
        if won < lost:
            if is_current:
                return False, f"it won {lost} and lost {won} games against {champion} in the matches on this machine"
            break  # the champion has beaten its predecessor, which says nothing about the shipped player
    number, its_number = ledger[-1].champion_generation, shipped_generation(shipped.removeprefix(SHIPPED_PREFIX))
    return number > its_number, (
        f"the champion is of generation {number}, {shipped} of generation {its_number}; `zero match "
        f"{champion},{SESSION_SEARCH} {shipped},{SESSION_SEARCH}` measures which one is stronger"
    )


def champions(ledger: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """The newest entry of each champion, from the newest, without those that a rollback discarded."""
    found: dict[str, LedgerEntry] = {}
    kept = ledger[-1].generation
    for entry in reversed(ledger):
        if entry.generation <= kept:
            found.setdefault(entry.champion, entry)
            if entry.kind == "rollback" and entry.source and (source := parse_tag(entry.source.tag)):
                kept = source[1]
    return list(found.values())


def _results_against(home: Path, weights: str, game: GameParams) -> dict[str, tuple[int, int]]:
    """Wins and losses against the network with this SHA-256, by the SHA-256 of the other network.

    A match counts if it is finished and of this game, both players searched, and their settings in `EQUAL` are equal.
    """
    results: dict[str, tuple[int, int]] = {}
    for match in longest_matches(finished_matches(home)):
        first, second = (player.settings for player in match.table.players)
        is_search = bool(first.get("simulations")) and all(first.get(name) == second.get(name) for name in EQUAL)
        if match.spec.game != game or not is_search:
            continue
        wins, losses = match.table.result.wins, match.table.result.losses
        for own, other, won, lost in ((first, second, wins, losses), (second, first, losses, wins)):
            network = str(own.get("weights"))
            if other.get("weights") == weights:
                before = results.get(network, (0, 0))
                results[network] = before[0] + won, before[1] + lost
    return results
