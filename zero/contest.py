"""From the texts of players to a match, or to a seat at one board: who they are, which game, where it is kept."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from zero.errors import ParamsError
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.match import Progress, play_match
from zero.match.results import MatchSpec, MatchTable
from zero.opponents import Opponent
from zero.params import GameParams, GoParams
from zero.players import NetworkPlayer, PlayerText, find_network_player, game_of, make_mind, make_opponent, parse_player
from zero.settings import STATE_FOLDER

if TYPE_CHECKING:
    from zero.interop.gtp.minds import Mind

MATCHES_DIR = "matches"
KEY_DIGITS = 16


class Played(NamedTuple):
    """A match that is over."""

    folder: Path
    spec: MatchSpec
    table: MatchTable


class Entrant(NamedTuple):
    """A player before the match."""

    asked: PlayerText
    network: NetworkPlayer | None


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
      players: their texts, see `zero.players`.
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
    entrants = [_entrant(home, text) for text in players]
    game = _game(game_of(home, [e.network for e in entrants if e.network is not None]), komi, size)
    games_at_once = min(games_at_once, num_games)
    rules = rules_of(game)

    def make(number: int) -> Opponent:
        return make_opponent(*entrants[number], rules, games_at_once, seed + number)

    ids = []
    for number, entrant in enumerate(entrants):
        if entrant.network is not None:
            ids.append(entrant.network.player)
        else:
            opponent = make(number)  # only a running program tells its name and version
            ids.append(opponent.player)
            opponent.close()
    spec = MatchSpec(game=game, players=(ids[0], ids[1]), num_games=num_games, opening_moves=opening_moves, seed=seed)
    where = folder or home / STATE_FOLDER / MATCHES_DIR / spec.key()[:KEY_DIGITS]
    table = play_match(where, spec, lambda: (make(0), make(1)), games_at_once, progress)
    return Played(where, spec, table)


def seat(
    home: Path,
    text: str,
    size: int | None = None,
    komi: float | None = None,
    seed: int = 1,
    num_leaves: int = 1,
    seconds: float | None = None,
) -> tuple["Mind", Rules]:
    """A player ready for one game with a person or another program, and the rules it begins with.

    Raises:
      ZeroError: the player is unknown, cannot be started or plays another game.
    """
    entrant = _entrant(home, text)
    game = _game(game_of(home, [entrant.network] if entrant.network else []), komi, size)
    rules = rules_of(game)
    return make_mind(*entrant, rules, seed, num_leaves, seconds), rules


def _entrant(home: Path, text: str) -> Entrant:
    asked = parse_player(text)
    return Entrant(asked, find_network_player(home, asked) if asked.kind in ("network", "raw") else None)


def _game(game: GameParams, komi: float | None, size: int | None) -> GameParams:
    """The game with another komi or board."""
    changed = {name: value for name, value in (("komi", komi), ("size", size)) if value is not None}
    if komi is not None and not isinstance(game, GoParams):
        raise ParamsError(f"komi = {komi} is for Go; {game.name} has none")
    try:
        return type(game).model_validate(game.model_dump() | changed)
    except ValidationError as error:
        fault = error.errors()[0]
        raise ParamsError(f"{fault['loc'][0]} = {fault['input']}: {fault['msg']}") from None
