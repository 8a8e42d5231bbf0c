"""`zero match`: two players of any kind, many games at once, colours in turn, each game kept as soon as it is over.

A match has a folder named by what it depends on, so the same command goes on where it was cut short. Not a gate: the
gate's match is a stage, and belongs to the record.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from zero.evaluation.match.referee import Referee
from zero.evaluation.match.results import MatchGame, MatchSpec, MatchTable, count_match
from zero.evaluation.match.store import MatchFolder
from zero.games.rules import rules_of
from zero.players.player import Player
from zero.statistics import wilson_interval
from zero.storage.locks import locked
from zero.storage.manifests import Colours

Progress = Callable[[int, int, MatchGame], None]
"""Called with (games done, all games, the game just done)."""


def play_match(
    folder: Path,
    spec: MatchSpec,
    make_players: Callable[[], tuple[Player, Player]],
    games_at_once: int,
    progress: Progress | None = None,
) -> MatchTable:
    """Plays what is missing of a match and counts it.

    Args:
      folder: of the match; made where there is none.
      spec: what is played.
      make_players: makes the two players of `spec`, which are closed here; not called where no game is missing.
      games_at_once: open at once; the players have room for them.
      progress: is told of each game.

    Raises:
      StorageError: the folder holds another match, another process plays it, a file in it is altered, or it cannot be
        written.
    """
    busy = f"the match in {folder} is being played by another process; wait for it, or give another folder"
    with locked(folder, busy):
        store = MatchFolder(folder, spec)
        missing = store.missing()
        if missing:
            _play_missing(store, spec, make_players(), missing, games_at_once, progress)
        games = store.games()
        table = count_match(spec, games)
        store.finish(rules_of(spec.game), games, table)
        return table


def _play_missing(
    store: MatchFolder,
    spec: MatchSpec,
    players: tuple[Player, Player],
    missing: Sequence[int],
    games_at_once: int,
    progress: Progress | None,
) -> None:
    with (
        Referee(rules_of(spec.game), players, spec.seed, spec.opening_moves, games_at_once) as referee,
        ExitStack() as leaving,  # players, before the referee waits for those who think
    ):
        for player in players:
            leaving.callback(player.close)
        for number, game in enumerate(referee.play(missing), spec.num_games - len(missing) + 1):
            store.keep(game)
            if progress:
                progress(number, spec.num_games, game)


def colour_interval(colours: Colours) -> tuple[float, float]:
    """95 % interval of the score with one colour."""
    games = colours.wins + colours.losses + colours.draws
    return wilson_interval((colours.wins + colours.draws / 2) / games, games) if games else (0.0, 1.0)
