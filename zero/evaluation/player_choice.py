"""Chooses the stronger player if a local lineage and a shipped player have the same name.

Only `zero play` and `zero gtp` choose. In matches, ratings and exports the name always means the champion of the
lineage: they are evidence, and their subject must not depend on which games were played.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from zero.config.params import PARAMS_FILE, Params
from zero.errors import StorageError, ZeroError
from zero.evaluation.match import run_match
from zero.players.build import NetworkSetup, difference, resolve_player
from zero.players.networks import SHIPPED_PREFIX, is_ambiguous
from zero.players.spec import parse_player
from zero.progress import progress_of
from zero.record.ledger import find_workspace, generation_tag, read_ledger
from zero.storage.manifests import LedgerEntry

QUICK_GAMES, QUICK_OPENING_MOVES = 40, 2
QUICK_SIMULATIONS = 32
QUICK_SEARCH = f"simulations={QUICK_SIMULATIONS},pass_wins=true"
"""Search of the quick match: 40 games on a 9x9 board take 10 to 30 seconds on two cores. `pass_wins` is the default of
`zero play` and `zero gtp`. Without it the shipped `go9` loses games to a random network, because it passes."""


class Choice(NamedTuple):
    """Whether the champion plays, and the reason, which ends the sentence `go9/gen-0012 plays: ...`."""

    is_champion: bool
    reason: str
    is_warning: bool = False


def choose_player(home: Path, text: str, command: str, log_line: Callable[[str], None]) -> str:
    """The spec of the player to start; `text` itself unless it names both a lineage and a shipped player.

    The first call for two networks may play a quick match; later calls find its result in `.zero/matches`.

    Args:
      home: the project's folder.
      text: the spec that the user gave, see `zero.players.spec`.
      command: the command that starts the player, for the hints: "play" or "gtp".
      log_line: receives the lines for the user.

    Raises:
      ParamsError: the spec has an option that the player does not have.
    """
    spec = parse_player(text)
    if not spec.has_network or not is_ambiguous(home, spec.argument):
        return text
    ledger = read_ledger(find_workspace(home, spec.argument))
    champion, shipped = generation_tag(spec.argument, ledger[-1].generation), f"{SHIPPED_PREFIX}{spec.argument}"

    def command_line(player: str) -> str:
        return f"`zero {command} {spec.with_argument(player)}`"

    def before_match() -> None:
        log_line(
            f"{champion} and {shipped} play {QUICK_GAMES} quick games, only this time, to find the stronger player; to "
            f"skip them, run {command_line(champion)} or {command_line(shipped)}."
        )

    choice = _choose(home, ledger, champion, shipped, before_match)
    chosen, other = (champion, shipped) if choice.is_champion else (shipped, champion)
    hint = f"To choose the {'shipped player' if choice.is_champion else 'champion'}: {command_line(other)}."
    log_line(f"{'warning: ' if choice.is_warning else ''}{chosen} plays: {choice.reason}. {hint}")
    return spec.with_argument(chosen)


def _choose(
    home: Path, ledger: Sequence[LedgerEntry], champion: str, shipped: str, before_match: Callable[[], None]
) -> Choice:
    try:
        own, own_params = _resolve(home, champion)
    except ZeroError as error:
        return Choice(False, str(error), is_warning=True)
    try:
        other, other_params = _resolve(home, shipped)
    except ZeroError as error:
        return Choice(True, str(error), is_warning=True)
    if own_params.game != other_params.game:
        return Choice(True, f"{shipped} plays another game ({difference(own_params.game, other_params.game)})")
    if own.weights == other.weights:
        return Choice(True, f"{shipped} is the same network")
    if ledger[-1].champion_generation == 0:
        return Choice(False, f"{champion} is still the random network of generation 0")
    # The match names the champion by its first generation, so that it is not repeated after a refusal.
    first = next(entry for entry in ledger if entry.champion == ledger[-1].champion)
    players = f"{generation_tag(first.lineage, first.generation)},{QUICK_SEARCH}", f"{shipped},{QUICK_SEARCH}"
    try:
        # Progress goes to standard error: standard output belongs to the game or to GTP.
        with progress_of("match", "games", stream=sys.stderr) as progress:
            is_announced = False

            def report(done: int, total: int) -> None:  # called only if games are missing
                nonlocal is_announced
                if not is_announced:
                    before_match()
                    is_announced = True
                progress(done, total)

            quick = run_match(
                home, players, QUICK_GAMES, QUICK_OPENING_MOVES, games_at_once=QUICK_GAMES, progress=report
            )
    except (ZeroError, OSError) as error:  # for example a full disk, or another process plays the same match
        return Choice(True, f"the quick match failed: {error}", is_warning=True)
    result = quick.table.result
    is_champion = result.wins > result.losses
    won, loser = (result.wins, shipped) if is_champion else (result.losses, champion)
    draws = f" and drew {result.draws}" if result.draws else ""
    return Choice(
        is_champion,
        f"it won {won} of {QUICK_GAMES} games{draws} against {loser} ({QUICK_SIMULATIONS} simulations per move)",
    )


def _resolve(home: Path, name: str) -> tuple[NetworkSetup, Params]:
    """A network and the parameters that it was made with.

    Raises:
      ZeroError: its network or its parameters are missing or invalid.
    """
    network = resolve_player(home, parse_player(name)).network
    assert network is not None, "a lineage or a shipped player has a network"
    if network.params is None:
        raise StorageError(f"{name} has no {PARAMS_FILE}")
    return network, network.params
