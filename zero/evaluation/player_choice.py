"""Chooses the stronger player if a local lineage and a shipped player have the same name.

Only `zero play` and `zero gtp` choose. In matches, ratings and exports the name always means the champion of the
lineage: they are evidence, and their subject must not depend on which games were played.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from zero.errors import ZeroError
from zero.evaluation.ladder import longest_matches
from zero.evaluation.match import finished_matches
from zero.players.build import SESSION_SIMULATIONS, difference
from zero.players.networks import (
    SHIPPED_PREFIX,
    ResolvedNetwork,
    is_ambiguous,
    resolve_network,
    shipped_generation,
)
from zero.players.spec import parse_player
from zero.record.ledger import find_workspace, generation_tag, read_ledger
from zero.storage.files import sha256_bytes
from zero.storage.manifests import LedgerEntry

EQUAL = ("simulations", "root", "pass_wins", "resign_threshold")
"""Settings that both players of a match must share for it to count. The others belong to a network's own search."""


def choose_player(home: Path, text: str, command: str, log_line: Callable[[str], None]) -> str:
    """The spec of the player to start; `text` itself unless it names both a lineage and a shipped player.

    Args:
      home: the project's folder.
      text: the spec that the user gave, see `zero.players.spec`.
      command: the command that starts the player, for the hint: "play" or "gtp".
      log_line: receives a line for the user: who plays, why, and how to choose the other player.

    Raises:
      ParamsError: the spec has an option that the player does not have.
      StorageError: the shipped player is corrupt.
    """
    spec = parse_player(text)
    if not spec.has_network or not is_ambiguous(home, spec.argument):
        return text
    ledger = read_ledger(find_workspace(home, spec.argument))
    champion, shipped = generation_tag(spec.argument, ledger[-1].generation), f"{SHIPPED_PREFIX}{spec.argument}"
    is_champion, reason = _choose(home, ledger, champion, shipped)
    chosen, other = (champion, shipped) if is_champion else (shipped, champion)
    which = "shipped player" if is_champion else "champion"
    log_line(f"{chosen} plays: {reason}. To choose the {which}: `zero {command} {spec.with_argument(other)}`.")
    return spec.with_argument(chosen)


def _choose(home: Path, ledger: Sequence[LedgerEntry], champion: str, shipped: str) -> tuple[bool, str]:
    """True if the champion plays, and the reason."""
    other = resolve_network(home, shipped)
    try:
        own = resolve_network(home, champion)
        own_params, other_params = own.params, other.params
    except ZeroError as error:  # for example, the champion's weights are not on this machine
        return False, str(error)
    if own_params and other_params and own_params.game != other_params.game:
        return True, f"{shipped} plays another game ({difference(own_params.game, other_params.game)})"
    if own.weights == other.weights:
        return True, f"{shipped} is the same network"
    won, lost = _games_between(home, own, other)
    if won != lost:
        more, fewer, loser = max(won, lost), min(won, lost), shipped if won > lost else champion
        return won > lost, f"it won {more} and lost {fewer} games against {loser} in the matches on this machine"
    number, its_number = ledger[-1].champion_generation, shipped_generation(shipped.removeprefix(SHIPPED_PREFIX))
    return number > its_number, (
        f"the champion is of generation {number}, {shipped} of generation {its_number}; `zero match "
        f"{champion},simulations={SESSION_SIMULATIONS} {shipped},simulations={SESSION_SIMULATIONS}` measures which one "
        "is stronger"
    )


def _games_between(home: Path, own: ResolvedNetwork, other: ResolvedNetwork) -> tuple[int, int]:
    """Games that `own` won and lost against `other` in the finished matches with a search, the same for both."""
    weights = sha256_bytes(own.weights), sha256_bytes(other.weights)
    won = lost = 0
    for match in longest_matches(finished_matches(home)):
        first, second = (player.settings for player in match.table.players)
        pair, result = (first.get("weights"), second.get("weights")), match.table.result
        if not first.get("simulations") or any(first.get(name) != second.get(name) for name in EQUAL):
            continue
        if pair == weights:
            won, lost = won + result.wins, lost + result.losses
        elif pair == weights[::-1]:
            won, lost = won + result.losses, lost + result.wins
    return won, lost
