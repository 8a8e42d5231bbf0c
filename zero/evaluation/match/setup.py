"""Match setup: from the specs of two players to a played match and its folder."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from zero.config.settings import STATE_FOLDER
from zero.errors import ParamsError, StorageError
from zero.evaluation.match import Progress, play_match
from zero.evaluation.match.referee import most_opening_moves
from zero.evaluation.match.results import MatchSpec, MatchTable
from zero.evaluation.match.store import RESULT_FILE, SPEC_FILE
from zero.games.rules import rules_of
from zero.players.build import common_game, make_player, resolve_player
from zero.players.player import Player
from zero.players.spec import parse_player
from zero.storage.files import read_manifest

log = logging.getLogger(__name__)

MATCHES_DIR = "matches"
KEY_DIGITS = 16


class Played(NamedTuple):
    """A match that is over."""

    folder: Path
    spec: MatchSpec
    table: MatchTable


def contest(
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
) -> Played:
    """Plays a match, or what is missing of it.

    Args:
      home: the project's folder.
      players: their specs, see `zero.players.spec`.
      num_games: half with each colour.
      opening_moves: random moves at the start of each pair of games.
      seed: of all that is random.
      komi: in place of that of the players' parameters.
      size: of the board, likewise.
      games_at_once: open at once.
      folder: of the match; by default one below `.zero/matches`, named by what is played.
      progress: is told of each game.

    Raises:
      ZeroError: a player is unknown, cannot be started or plays another game; nothing is lost of what was played.
    """
    if num_games % 2:
        raise ParamsError(f"games = {num_games} is odd; give an even number, half of them with each colour")
    participants = [resolve_player(home, parse_player(text)) for text in players]
    game = common_game(home, participants, komi, size)
    games_at_once = min(games_at_once, num_games)
    rules = rules_of(game)
    if opening_moves > most_opening_moves(rules):
        raise ParamsError(
            f"opening_moves = {opening_moves} are too many for {rules.num_points} points; "
            f"give at most {most_opening_moves(rules)}"
        )
    with ExitStack() as unused:  # closes players that the match does not take over
        made: dict[int, Player] = {}

        def player(number: int) -> Player:
            if number not in made:
                made[number] = make_player(participants[number], rules, games_at_once, seed + number)
                unused.callback(made[number].close)
            return made[number]

        def make_players() -> tuple[Player, Player]:
            players = player(0), player(1)
            unused.pop_all()  # the match closes them
            return players

        # only a running program reports its name and version
        ids = [each.network.id if each.network else player(number).id for number, each in enumerate(participants)]
        spec = MatchSpec(
            game=game, players=(ids[0], ids[1]), num_games=num_games, opening_moves=opening_moves, seed=seed
        )
        where = folder or home / STATE_FOLDER / MATCHES_DIR / spec.key()[:KEY_DIGITS]
        return Played(where, spec, play_match(where, spec, make_players, games_at_once, progress))


def finished_matches(home: Path) -> Iterator[tuple[Path, MatchSpec, MatchTable]]:
    """Folder, spec and table of every finished match below `.zero/matches`, sorted by folder.

    Unreadable matches are left out, with a warning.
    """
    for path in sorted((home / STATE_FOLDER / MATCHES_DIR).glob(f"*/{RESULT_FILE}")):
        try:
            spec = read_manifest(path.parent, MatchSpec, SPEC_FILE)
            table = read_manifest(path.parent, MatchTable, RESULT_FILE)
        except StorageError as error:
            log.warning("match left out: %s", error)
            continue
        if table.players != spec.players:
            log.warning("match left out: the players in %s are not those in %s", path, SPEC_FILE)
            continue
        yield path.parent, spec, table
