"""Match setup: from two player specs to a finished match in its folder.

Each game is written when it is over, and the folder is named by what the match depends on. So the same command
continues an interrupted match.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from zero.config.settings import STATE_FOLDER
from zero.errors import ParamsError, StorageError
from zero.evaluation.match.referee import Referee, max_opening_moves
from zero.evaluation.match.results import (
    RESULT_FILE,
    SPEC_FILE,
    MatchFolder,
    MatchGame,
    MatchSpec,
    MatchTable,
    count_match,
)
from zero.games.rules import rules_of
from zero.players.build import common_game, make_player, resolve_player
from zero.players.player import Player
from zero.players.spec import parse_player
from zero.storage.files import locked, read_manifest

MATCHES_DIR = "matches"
KEY_DIGITS = 16
Progress = Callable[[int, int, MatchGame], None]
"""Receives (games done, all games, the game that was just finished)."""

log = logging.getLogger(__name__)


class FinishedMatch(NamedTuple):
    """A finished match and its folder."""

    folder: Path
    spec: MatchSpec
    table: MatchTable


def run_match(
    home: Path,
    players: tuple[str, str],
    num_games: int,
    opening_moves: int = 0,
    seed: int = 1,
    komi: float | None = None,
    size: int | None = None,
    games_at_once: int = 32,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> FinishedMatch:
    """Plays the missing games of a match.

    Args:
      home: the project's folder.
      players: their specs, see `zero.players.spec`.
      num_games: an even number, half of them with each colour.
      opening_moves: random moves at the start of each pair of games.
      seed: of openings, searches and engines.
      komi: replaces the komi of the players' parameters.
      size: replaces the board size of the players' parameters.
      games_at_once: games in play at the same time.
      folder: of the match; by default a folder below `.zero/matches` with the key of the match as its name.
      progress: called after each game.

    Raises:
      ZeroError: a player is unknown, cannot be started or plays another game. Finished games are kept.
    """
    if num_games % 2:
        raise ParamsError(f"games = {num_games} is odd; give an even number, half of them with each colour")
    participants = [resolve_player(home, parse_player(text)) for text in players]
    game = common_game(home, participants, komi, size)
    games_at_once = min(games_at_once, num_games)
    rules = rules_of(game)
    if opening_moves > max_opening_moves(rules):
        raise ParamsError(
            f"opening_moves must be at most {max_opening_moves(rules)} for {rules.num_points} points, got "
            f"{opening_moves}; give a smaller number"
        )
    with ExitStack() as started:  # closes the players that were started if the match does not begin
        made: dict[int, Player] = {}

        def player(number: int) -> Player:
            if number not in made:
                made[number] = make_player(participants[number], rules, games_at_once, seed + number)
                started.callback(made[number].close)
            return made[number]

        def make_players() -> tuple[Player, Player]:
            both = player(0), player(1)
            started.pop_all()  # from now on the match closes them
            return both

        # A program must be started to report its name and version; a network is identified by its files.
        ids = [each.network.id if each.network else player(number).id for number, each in enumerate(participants)]
        spec = MatchSpec(
            game=game, players=(ids[0], ids[1]), num_games=num_games, opening_moves=opening_moves, seed=seed
        )
        where = folder or home / STATE_FOLDER / MATCHES_DIR / spec.key()[:KEY_DIGITS]
        return FinishedMatch(where, spec, play_match(where, spec, make_players, games_at_once, progress))


def play_match(
    folder: Path,
    spec: MatchSpec,
    make_players: Callable[[], tuple[Player, Player]],
    games_at_once: int,
    progress: Progress | None = None,
) -> MatchTable:
    """Plays the missing games of `spec` and counts all of them.

    Args:
      folder: of the match; created if it does not exist.
      spec: the match.
      make_players: makes the two players of `spec`, which are closed here. Not called if no game is missing.
      games_at_once: games in play at the same time, at most as many as the players have capacity for.
      progress: called after each game.

    Raises:
      StorageError: the folder contains another match or a corrupt file, another process plays the match, or a file
        cannot be written.
    """
    busy = f"the match in {folder} is being played by another process; wait for it, or give another folder"
    with locked(folder, busy):
        files = MatchFolder(folder, spec)
        missing = files.missing()
        if missing:
            _play_missing(files, spec, make_players(), missing, games_at_once, progress)
        games = files.games()
        table = count_match(spec, games)
        files.finish(games, table)
        return table


def finished_matches(home: Path) -> Iterator[FinishedMatch]:
    """Every finished match below `.zero/matches`, sorted by folder. Unreadable matches are logged and skipped."""
    for path in sorted((home / STATE_FOLDER / MATCHES_DIR).glob(f"*/{RESULT_FILE}")):
        try:
            spec = read_manifest(path.parent, MatchSpec, SPEC_FILE)
            table = read_manifest(path.parent, MatchTable, RESULT_FILE)
        except StorageError as error:
            log.warning("match skipped: %s", error)
            continue
        if table.players != spec.players:
            log.warning("match skipped: the players in %s differ from those in %s", path, SPEC_FILE)
            continue
        yield FinishedMatch(path.parent, spec, table)


def _play_missing(
    files: MatchFolder,
    spec: MatchSpec,
    players: tuple[Player, Player],
    missing: Sequence[int],
    games_at_once: int,
    progress: Progress | None,
) -> None:
    with (
        Referee(rules_of(spec.game), players, spec.seed, spec.opening_moves, games_at_once) as referee,
        ExitStack() as closing,  # leaves first: a closed player ends the search that the referee would wait for
    ):
        for player in players:
            closing.callback(player.close)
        for number, game in enumerate(referee.play(missing), spec.num_games - len(missing) + 1):
            files.write(game)
            if progress:
                progress(number, spec.num_games, game)
