"""Chooses who plays under a name that a lineage here shares with a shipped player: the stronger of the two.

Only `zero play` and `zero gtp` choose. In matches, ratings and exports such a name always means the lineage's champion:
they are evidence, and must not change their subject when other games are played.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from zero.config.params import PARAMS_FILE, GameParams
from zero.errors import StorageError, ZeroError
from zero.evaluation.match.results import MatchSpec, MatchTable
from zero.evaluation.match.setup import contest, finished_matches
from zero.players.build import NetworkSetup, difference, resolve_player
from zero.players.networks import SHIPPED_PREFIX, is_ambiguous
from zero.players.player import PlayerId
from zero.players.spec import parse_player
from zero.progress import progress_of
from zero.record.ledger import find_workspace, generation_tag, read_ledger

QUICK_GAMES, QUICK_OPENING_MOVES = 40, 2
QUICK_SEARCH = "simulations=32,pass_wins=true"
"""With this search, 40 games on a 9x9 board take 10 to 30 seconds on two cores. Both networks search as in a session,
where `pass_wins` is the default too: without it the shipped `go9` loses games even to a random network, by passing."""


class Choice(NamedTuple):
    """Who plays, and why."""

    player: str
    """Spec of the chosen player."""
    reason: str
    """One line for a person."""
    other: str
    """Spec of the player that was not chosen."""


class Score(NamedTuple):
    """Games between the champion and the shipped player, as the champion sees them."""

    wins: int
    losses: int
    draws: int
    simulations: int
    """Of each move of either player."""

    @property
    def games(self) -> int:
        """Games played."""
        return self.wins + self.losses + self.draws


def choose_player(home: Path, text: str, command: str, tell: Callable[[str], None]) -> str:
    """Spec of the player to start for `text`; the same text unless it names both a lineage and a shipped player.

    The first call for a pair of networks may play a match; later calls find its result in `.zero/matches`.

    Args:
      home: the project's folder.
      text: the player as the user typed it, see `zero.players.spec`.
      command: the command that starts the player, for the hints: "play" or "gtp".
      tell: receives the lines for the user.

    Raises:
      ParamsError: the text has an option that the player does not have.
    """
    spec = parse_player(text)
    if not spec.has_network or not is_ambiguous(home, spec.argument):
        return text

    def command_line(player: str) -> str:
        return f"`zero {command} {spec.with_argument(player)}`"

    def before_match(champion: str, shipped: str) -> None:
        tell(
            f"{champion} and {shipped} play {QUICK_GAMES} quick games, once, to find the stronger; to skip them, start "
            f"{command_line(champion)} or {command_line(shipped)}."
        )

    choice = _choose(home, spec.argument, before_match)
    which = "shipped player" if choice.other.startswith(SHIPPED_PREFIX) else "champion"
    tell(f"{choice.reason} To choose the {which}: {command_line(choice.other)}.")
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
        return champion_plays(f"{shipped_text} was made for another game ({difference(game, shipped_game)})")
    if champion.id.settings["weights"] == shipped.id.settings["weights"]:
        return champion_plays(f"{shipped_text} is the same network")
    if newest.champion_generation == 0:
        return shipped_plays(f"{tag} is still the random network of generation 0")
    try:
        score = _known_score(home, game, champion, shipped)
        if score is None:
            before_match(tag, shipped_text)
            score = _play_quick_match(home, champion, shipped)
    except (ZeroError, OSError) as error:  # for example a full disk, or another process that plays the same match
        return Choice(tag, f"warning: {tag} plays: the quick games cannot be played: {error}.", shipped_text)
    if score.wins > score.losses:
        return champion_plays(_result_line(score.wins, score, shipped_text))
    return shipped_plays(_result_line(score.losses, score, tag))


def _quick_player(home: Path, name: str) -> NetworkSetup:
    """The player of that name with the search of the quick match.

    Raises:
      ZeroError: its network or its parameters are missing or unusable.
    """
    player = resolve_player(home, parse_player(f"{name},{QUICK_SEARCH}")).network
    assert player is not None, "a lineage or a shipped player has a network"
    if player.network.params is None:
        raise StorageError(f"{name} has no {PARAMS_FILE}")
    return player


def _game_of(player: NetworkSetup) -> GameParams:
    assert player.network.params is not None, "see _quick_player"
    return player.network.params.game


def _known_score(home: Path, game: GameParams, champion: NetworkSetup, shipped: NetworkSetup) -> Score | None:
    """The result of the longest finished match of the two networks that tells as much as the quick one; None without.

    Such a match has at least as many games, random openings, and the same two searches, with any number of simulations
    that is the same for both. Players are compared by their settings, because the name of a champion changes with
    every generation that it survives.
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
    texts = [f"{player.network.name},{QUICK_SEARCH}" for player in (champion, shipped)]
    # standard output is for the game or for GTP
    with progress_of("match", "games", stream=sys.stderr) as progress:
        played = contest(
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
    """The settings of a player without its number of simulations, in an order that can be compared."""
    return sorted((name, str(value)) for name, value in player.settings.items() if name != "simulations")


def _result_line(wins: int, score: Score, loser: str) -> str:
    draws = f" and drew {score.draws}" if score.draws else ""
    return f"it won {wins} of {score.games} games{draws} against {loser} ({score.simulations} simulations a move)"
