"""A round robin (`zero tournament`): every player plays a match against every other one, and all are rated together.

Each match is an ordinary one of `zero match`, in its own folder below `.zero/matches`. So an interrupted tournament
continues where it stopped, and one with another player only plays the matches that are new.
"""

import logging
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from rich.table import Table

from zero.config.params import GameParams
from zero.config.settings import STATE_FOLDER
from zero.errors import ParamsError, ZeroError
from zero.evaluation.elo import Score, rate
from zero.evaluation.ladder import anchors, disambiguate, key_of
from zero.evaluation.match import FinishedMatch, Progress, run_match
from zero.games.rules import rules_of
from zero.players.build import common_game, identify, resolve_player
from zero.players.spec import parse_player
from zero.storage.files import canonical_json, sha256_bytes, write_manifest
from zero.storage.manifests import Manifest, Sha256

TOURNAMENTS_DIR, TOURNAMENT_FILE = "tournaments", "tournament.json"
KEY_DIGITS = 16
NOT_PLAYED = "·"

log = logging.getLogger(__name__)


class Standing(Manifest):
    """A player of a tournament with its rating."""

    key: Sha256
    """Digest of everything that its play depends on."""
    name: str
    text: str
    """Spec for `zero match`."""
    elo: float
    low: float
    """95 % interval of the difference to the reference."""
    high: float
    games: int
    points: float
    """A draw is half a point."""
    forfeits: int


class Pairing(Manifest):
    """The match of two players, for the first one."""

    players: tuple[Sha256, Sha256]
    folder: str
    """Name of the match's folder below `.zero/matches`."""
    wins: int
    losses: int
    draws: int
    unique_games: int
    """The rating counts each different game once."""
    forfeits: tuple[int, int]


class Failure(Manifest):
    """A match that could not be played to its end."""

    players: tuple[str, str]
    """Names of the players."""
    reason: str


class Tournament(Manifest):
    """A round robin."""

    game: GameParams
    games_per_match: int
    opening_moves: int
    seed: int
    reference: str
    """Name of the player whose rating is given: an anchor of the ladder, or the last one of the list, at 0."""
    standings: tuple[Standing, ...]
    """The strongest first."""
    pairings: tuple[Pairing, ...]
    failures: tuple[Failure, ...]


def play_tournament(
    home: Path,
    texts: Sequence[str],
    num_games: int,
    opening_moves: int = 0,
    seed: int = 1,
    komi: float | None = None,
    size: int | None = None,
    games_at_once: int = 32,
    progress: Progress | None = None,
) -> Tournament:
    """Plays the missing matches of a round robin and rates the players.

    A player that fails in a game forfeits it. A match that cannot be played is listed, and the others are played.

    Args:
      home: the project's folder.
      texts: specs of the players, see `zero.players.spec`.
      num_games: games of each match, an even number.
      opening_moves: random moves at the start of each pair of games.
      seed: of openings, searches and engines.
      komi: replaces the komi of the players' parameters.
      size: replaces the board size of the players' parameters.
      games_at_once: games in play at the same time.
      progress: receives (games done, all games).

    Raises:
      ParamsError: there are fewer than two players, two are the same, they play different games, or the number of
        games is odd.
      ZeroError: a player is unknown or cannot be started, or no match could be played.
    """
    if len(texts) < 2:
        raise ParamsError(f"a tournament needs two players or more, got {len(texts)}; name more")
    if num_games % 2:
        raise ParamsError(f"games = {num_games} is odd; give an even number, half of them with each colour")
    resolved = [resolve_player(home, parse_player(text)) for text in texts]
    game = common_game(home, resolved, komi, size)
    # Every player is identified, and so started, before the first game: a misspelt name is reported at once.
    ids = [identify(player, rules_of(game)) for player in resolved]
    keys = [key_of(player) for player in ids]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise ParamsError(f"{texts[index]!r} and {texts[keys.index(key)]!r} are the same player; name each once")
    names, pairs = disambiguate(ids), [*combinations(range(len(texts)), 2)]
    pairings, failures = [], []
    for number, (i, j) in enumerate(pairs):

        def report(done: int, _: int, before: int = number * num_games) -> None:
            if progress:
                progress(before + done, len(pairs) * num_games)

        try:
            played = run_match(
                home,
                (texts[i], texts[j]),
                num_games,
                opening_moves,
                seed,
                komi=komi,
                size=size,
                games_at_once=games_at_once,
                progress=report,
            )
        except ZeroError as error:
            log.warning("%s against %s: %s", texts[i], texts[j], error)
            failures.append(Failure(players=(names[keys[i]], names[keys[j]]), reason=str(error)))
            continue
        pairings.append(_pairing(played))
    if not pairings:
        raise ZeroError(f"no match could be played; the first error: {failures[0].reason}")
    given = anchors(ids) | {keys[-1]: 0.0}
    standings, reference = _standings(pairings, given, names, dict(zip(keys, texts, strict=True)))
    return Tournament(
        game=game,
        games_per_match=num_games,
        opening_moves=opening_moves,
        seed=seed,
        reference=names[reference],
        standings=tuple(standings),
        pairings=tuple(pairings),
        failures=tuple(failures),
    )


def tournament_table(tournament: Tournament) -> Table:
    """Ratings and a crosstable of scores, the strongest player first."""
    table = Table(title=f"{tournament.games_per_match} games a match, {tournament.reference} is the reference")
    table.add_column("")
    table.add_column("player")
    for column in ("rating", "95 % interval", "score"):
        table.add_column(column, justify="right", no_wrap=True)
    for number in range(len(tournament.standings)):
        table.add_column(str(number + 1), justify="right", no_wrap=True)
    scores = {pairing.players: pairing for pairing in tournament.pairings}
    for number, row in enumerate(tournament.standings):
        interval = "given" if row.low == row.high else f"{row.low:.0f} to {row.high:.0f}"
        cells = [_cell(scores, row.key, other.key) for other in tournament.standings]
        table.add_row(str(number + 1), row.name, f"{row.elo:.0f}", interval, f"{row.points / row.games:.1%}", *cells)
    return table


def tournament_lines(tournament: Tournament) -> list[str]:
    """Every reason not to trust the table."""
    lines = [f"{row.name} forfeited {row.forfeits} games" for row in tournament.standings if row.forfeits]
    lines += [f"not played: {one} against {other}: {reason}" for (one, other), reason in _failures(tournament)]
    games = sum(pairing.wins + pairing.losses + pairing.draws for pairing in tournament.pairings)
    unique = sum(pairing.unique_games for pairing in tournament.pairings)
    if unique < games:
        lines.append(f"{games - unique} of {games} games repeat another one; give --openings 4 for different games")
    return lines


def write_tournament(home: Path, tournament: Tournament) -> Path:
    """Writes a tournament below `.zero/tournaments` and returns its folder.

    Raises:
      StorageError: the file cannot be written.
    """
    key = sha256_bytes(canonical_json(tournament))[:KEY_DIGITS]
    folder = home / STATE_FOLDER / TOURNAMENTS_DIR / key
    write_manifest(folder, tournament, TOURNAMENT_FILE)
    return folder


def _failures(tournament: Tournament) -> list[tuple[tuple[str, str], str]]:
    return [(failure.players, failure.reason) for failure in tournament.failures]


def _pairing(played: FinishedMatch) -> Pairing:
    result, (one, other) = played.table.result, played.spec.players
    return Pairing(
        players=(key_of(one), key_of(other)),
        folder=played.folder.name,
        wins=result.wins,
        losses=result.losses,
        draws=result.draws,
        unique_games=result.unique_games,
        forfeits=played.table.forfeits,
    )


def _standings(
    pairings: Sequence[Pairing], given: dict[str, float], names: dict[str, str], texts: dict[str, str]
) -> tuple[list[Standing], str]:
    """The players with matches, the strongest first, and the key of the reference."""
    points, games, forfeits = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    scores = []
    for pairing in pairings:
        played = pairing.wins + pairing.losses + pairing.draws
        won = pairing.wins + pairing.draws / 2
        for side, (key, own) in enumerate(zip(pairing.players, (won, played - won), strict=True)):
            points[key] += own
            games[key] += played
            forfeits[key] += pairing.forfeits[side]
        scores.append(Score(*pairing.players, won * pairing.unique_games / played, pairing.unique_games))
    groups = rate(scores, given)
    rows = [
        Standing(
            key=rating.player,
            name=names[rating.player],
            text=texts[rating.player],
            elo=rating.elo,
            low=rating.low,
            high=rating.high,
            games=games[rating.player],
            points=points[rating.player],
            forfeits=forfeits[rating.player],
        )
        for group in groups
        for rating in group.ratings
    ]
    return sorted(rows, key=lambda row: (-row.elo, row.key)), groups[0].reference


def _cell(scores: dict[tuple[str, str], Pairing], row: str, column: str) -> str:
    """Score of a row's player against a column's."""
    if pairing := scores.get((row, column)):
        won = pairing.wins + pairing.draws / 2
    elif pairing := scores.get((column, row)):
        won = pairing.losses + pairing.draws / 2
    else:
        return NOT_PLAYED
    return f"{won / (pairing.wins + pairing.losses + pairing.draws):.0%}"
