"""Chooses the stronger player if a local lineage and a shipped player have the same name.

Only `zero play` and `zero gtp` choose. In matches, ratings and exports the name always means the champion of the
lineage: they are evidence, and their subject must not depend on which games were played.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from zero.config.params import PARAMS_FILE, GameParams
from zero.errors import StorageError, ZeroError
from zero.evaluation.match.results import MatchSpec, MatchTable
from zero.evaluation.match.setup import finished_matches, run_match
from zero.players.build import NetworkSetup, difference, resolve_player
from zero.players.networks import SHIPPED_PREFIX, is_ambiguous
from zero.players.player import PlayerId
from zero.players.spec import parse_player
from zero.progress import progress_of
from zero.record.ledger import find_workspace, generation_tag, read_ledger

QUICK_GAMES, QUICK_OPENING_MOVES = 40, 2
QUICK_SEARCH = "simulations=32,pass_wins=true"
"""Search of the quick match: 40 games on a 9x9 board take 10 to 30 seconds on two cores. `pass_wins` is the default of
`zero play` and `zero gtp`. Without it the shipped `go9` loses games to a random network, because it passes."""


class Choice(NamedTuple):
    """The chosen player and the reason."""

    player: str
    """Spec of the chosen player."""
    reason: str
    """The reason, one line."""
    other: str
    """Spec of the other player."""


class Score(NamedTuple):
    """Games between the champion and the shipped player, from the view of the champion."""

    wins: int
    losses: int
    draws: int
    simulations: int
    """Simulations per move of both players."""

    @property
    def games(self) -> int:
        """Games played."""
        return self.wins + self.losses + self.draws


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

    def command_line(player: str) -> str:
        return f"`zero {command} {spec.with_argument(player)}`"

    def before_match(champion: str, shipped: str) -> None:
        log_line(
            f"{champion} and {shipped} play {QUICK_GAMES} quick games, only this time, to find the stronger player; to "
            f"skip them, run {command_line(champion)} or {command_line(shipped)}."
        )

    choice = _choose(home, spec.argument, before_match)
    other = "shipped player" if choice.other.startswith(SHIPPED_PREFIX) else "champion"
    log_line(f"{choice.reason} To choose the {other}: {command_line(choice.other)}.")
    return spec.with_argument(choice.player)


def _choose(home: Path, name: str, before_match: Callable[[str, str], None]) -> Choice:
    newest = read_ledger(find_workspace(home, name))[-1]
    tag, shipped_text = generation_tag(name, newest.generation), f"{SHIPPED_PREFIX}{name}"
    try:
        champion = _quick_player(home, tag)
    except ZeroError as error:
        return Choice(shipped_text, f"warning: {shipped_text} plays: {error}.", tag)
    try:
        shipped = _quick_player(home, shipped_text)
    except ZeroError as error:
        return Choice(tag, f"warning: {tag} plays: {error}.", shipped_text)

    def champion_plays(reason: str) -> Choice:
        return Choice(tag, f"{tag} plays: {reason}.", shipped_text)

    def shipped_plays(reason: str) -> Choice:
        return Choice(shipped_text, f"{shipped_text} plays: {reason}.", tag)

    game, shipped_game = _game_of(champion), _game_of(shipped)
    if game != shipped_game:
        return champion_plays(f"{shipped_text} plays another game ({difference(game, shipped_game)})")
    if champion.id.settings["weights"] == shipped.id.settings["weights"]:
        return champion_plays(f"{shipped_text} is the same network")
    if newest.champion_generation == 0:
        return shipped_plays(f"{tag} is still the random network of generation 0")
    try:
        score = _known_score(home, game, champion, shipped)
        if score is None:
            before_match(tag, shipped_text)
            score = _play_quick_match(home, champion, shipped)
    except (ZeroError, OSError) as error:  # for example a full disk, or another process plays the same match
        return Choice(tag, f"warning: {tag} plays: the quick match failed: {error}.", shipped_text)
    if score.wins > score.losses:
        return champion_plays(_result_line(score.wins, score, shipped_text))
    return shipped_plays(_result_line(score.losses, score, tag))


def _quick_player(home: Path, name: str) -> NetworkSetup:
    """The player with that name and the search of the quick match.

    Raises:
      ZeroError: its network or its parameters are missing or invalid.
    """
    player = resolve_player(home, parse_player(f"{name},{QUICK_SEARCH}")).network
    assert player is not None, "a lineage or a shipped player has a network"
    if player.params is None:
        raise StorageError(f"{name} has no {PARAMS_FILE}")
    return player


def _game_of(player: NetworkSetup) -> GameParams:
    assert player.params is not None, "see _quick_player"
    return player.params.game


def _known_score(home: Path, game: GameParams, champion: NetworkSetup, shipped: NetworkSetup) -> Score | None:
    """The result of the longest finished match that is at least as informative as the quick one; None without such one.

    It must have at least as many games, random openings, the same two searches, and the same number of simulations for
    both players. Players are compared by their settings, because a champion is known by several generations.
    """
    pair = champion.id, shipped.id
    found = [
        _score(spec, table, pair)
        for _, spec, table in finished_matches(home)
        if spec.game == game
        and spec.num_games >= QUICK_GAMES
        and spec.opening_moves >= QUICK_OPENING_MOVES
        and sorted(map(_network_and_search, spec.players)) == sorted(map(_network_and_search, pair))
        and len({player.settings["simulations"] for player in spec.players}) == 1
    ]
    return max(found, key=lambda score: (score.games, score.simulations), default=None)


def _play_quick_match(home: Path, champion: NetworkSetup, shipped: NetworkSetup) -> Score:
    texts = [f"{player.name},{QUICK_SEARCH}" for player in (champion, shipped)]
    # Progress goes to standard error: standard output belongs to the game or to GTP.
    with progress_of("match", "games", stream=sys.stderr) as progress:
        played = run_match(
            home,
            (texts[0], texts[1]),
            QUICK_GAMES,
            QUICK_OPENING_MOVES,
            games_at_once=QUICK_GAMES,
            progress=lambda done, total, _: progress(done, total),
        )
    return _score(played.spec, played.table, (champion.id, shipped.id))


def _score(spec: MatchSpec, table: MatchTable, pair: tuple[PlayerId, PlayerId]) -> Score:
    """The result of a match, from the view of the first player of `pair`."""
    result, simulations = table.result, int(spec.players[0].settings["simulations"])
    if _network_and_search(spec.players[0]) == _network_and_search(pair[0]):
        return Score(result.wins, result.losses, result.draws, simulations)
    return Score(result.losses, result.wins, result.draws, simulations)


def _network_and_search(player: PlayerId) -> list[tuple[str, str]]:
    """The sorted settings of a player without its number of simulations."""
    return sorted((name, str(value)) for name, value in player.settings.items() if name != "simulations")


def _result_line(wins: int, score: Score, loser: str) -> str:
    draws = f" and drew {score.draws}" if score.draws else ""
    return f"it won {wins} of {score.games} games{draws} against {loser} ({score.simulations} simulations per move)"
