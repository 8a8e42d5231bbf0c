"""Chooses between a local lineage and a shipped player of the same name: the one of the higher generation plays.

Only `zero play` and `zero gtp` choose. In matches, ratings and exports the name always means the champion of the
lineage: they are evidence, and their subject must not change when the lineage goes on.
"""

from collections.abc import Callable
from pathlib import Path

from zero.config.params import load_params
from zero.players.build import difference
from zero.players.networks import SHIPPED_PREFIX, is_ambiguous, resolve_network, shipped_generation
from zero.players.spec import PlayerSpec
from zero.record.ledger import find_workspace, generation_tag, read_ledger


def choose_player(home: Path, spec: PlayerSpec, command: str, log_line: Callable[[str], None]) -> PlayerSpec:
    """The spec of the player to start; `spec` itself unless it names both a lineage and a shipped player.

    Args:
      home: the project's folder.
      spec: what the user gave.
      command: the command that starts the player, for the hint: "play" or "gtp".
      log_line: receives a line for the user: who plays, why, and how to choose the other player.

    Raises:
      ZeroError: the lineage's parameters or its ledger cannot be read, or the shipped player is corrupt.
    """
    if not spec.has_network or not is_ambiguous(home, spec.argument):
        return spec
    workspace = find_workspace(home, spec.argument)
    head, game = read_ledger(workspace)[-1], load_params(workspace).game
    champion, shipped = generation_tag(spec.argument, head.generation), f"{SHIPPED_PREFIX}{spec.argument}"
    other_params = resolve_network(home, shipped).read_params()
    number, its_number = head.champion_generation, shipped_generation(spec.argument)
    reason = f"the champion is of generation {number}, {shipped} of generation {its_number}"
    is_champion = number > its_number
    if other_params and other_params.game != game:
        is_champion, reason = True, f"{shipped} plays another game ({difference(game, other_params.game)})"
    chosen, other = (champion, shipped) if is_champion else (shipped, champion)
    which = "shipped player" if is_champion else "champion"
    log_line(f"{chosen} plays: {reason}. To choose the {which}: `zero {command} {spec.with_argument(other).text}`.")
    return spec.with_argument(chosen)
