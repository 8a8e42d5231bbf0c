"""A round robin (`zero tournament`): every player plays a match against every other one, and all are rated together.

Each match is an ordinary one of `zero match`, in its own folder below `.zero/matches`. So an interrupted tournament
continues where it stopped, and one with another player only plays the matches that are new.
"""

import logging
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from zero.config.params import GameParams
from zero.errors import ParamsError, ZeroError
from zero.evaluation.elo import Fit, Group, rate
from zero.evaluation.ladder import (
    OnScale,
    PairResult,
    anchors,
    disambiguate,
    fit_lines,
    key_of,
    totals,
    with_names,
)
from zero.evaluation.match import check_num_games, results_dir, run_match
from zero.games.rules import rules_of
from zero.players.build import common_game, identify, resolve_player
from zero.players.spec import parse_player
from zero.progress import Progress, part_of
from zero.storage.files import write_manifest
from zero.storage.manifests import Manifest, Sha256

TOURNAMENTS_DIR, TOURNAMENT_FILE = "tournaments", "tournament.json"
NOT_PLAYED = "·"

log = logging.getLogger(__name__)


class Standing(OnScale):
    """A player of a tournament with its rating; the interval is that of the difference to the reference."""

    key: Sha256
    """Digest of everything that its play depends on."""
    name: str
    text: str
    """Spec for `zero match`."""
    games: int
    points: float
    """A draw is half a point."""
    forfeits: int


class Pairing(PairResult):
    """The match of two players."""

    folder: str
    """Name of the match's folder below `.zero/matches`."""


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
    fits: tuple[Fit | None, ...] = ()
    """One per group of players, with names, see `Group.fit`; empty if an older version wrote the file."""


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
    check_num_games(num_games)
    resolved = [resolve_player(home, parse_player(text)) for text in texts]
    game = common_game(home, resolved, komi, size)
    # Every player is identified, and so started, before the first game: a misspelt name is reported at once. The
    # matches use these resolved players: after a promotion a lineage's name would refer to another network.
    ids = [identify(player, rules_of(game)) for player in resolved]
    keys = [key_of(player) for player in ids]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise ParamsError(f"{texts[index]!r} and {texts[keys.index(key)]!r} are the same player; name each once")
    names, pairs = disambiguate(ids), [*combinations(range(len(texts)), 2)]
    pairings, failures = [], []
    for number, (i, j) in enumerate(pairs):
        try:
            played = run_match(
                home,
                (resolved[i], resolved[j]),
                num_games,
                opening_moves,
                seed,
                games_at_once=games_at_once,
                progress=part_of(progress, number * num_games, len(pairs) * num_games),
                game=game,
            )
        except ZeroError as error:
            log.warning("%s against %s: %s", texts[i], texts[j], error)
            failures.append(Failure(players=(names[keys[i]], names[keys[j]]), reason=str(error)))
            continue
        result = totals(played.spec.players, played.table.result)
        pairings.append(Pairing(folder=played.folder.name, forfeits=played.table.forfeits, **result))
    if not pairings:
        raise ZeroError(f"no match could be played; the first error: {failures[0].reason}")
    given = anchors(ids)
    given.setdefault(keys[-1], 0.0)  # where no anchor is connected
    groups = rate((pairing.score for pairing in pairings), given)
    return Tournament(
        game=game,
        games_per_match=num_games,
        opening_moves=opening_moves,
        seed=seed,
        reference=names[groups[0].reference],
        standings=tuple(_standings(groups, pairings, names, dict(zip(keys, texts, strict=True)))),
        pairings=tuple(pairings),
        failures=tuple(failures),
        fits=tuple(with_names(group.fit, names) for group in groups),
    )


def tournament_tables(tournament: Tournament) -> tuple[Table, Table]:
    """Ratings, the strongest player first, and a crosstable of scores by rank: narrow enough for a terminal."""
    ratings = Table(title=f"{tournament.games_per_match} games a match, {tournament.reference} is the reference")
    crosstable = Table(title="scores of the row against the column")
    for table in (ratings, crosstable):
        table.add_column("rank", justify="right", no_wrap=True)
    ratings.add_column("player", overflow="fold")
    for column in ("rating", "95 % interval", "score"):
        ratings.add_column(column, justify="right", no_wrap=True)
    scores = {pairing.players: pairing for pairing in tournament.pairings}
    for number, row in enumerate(tournament.standings, 1):
        ratings.add_row(str(number), escape(row.name), f"{row.elo:z.0f}", row.interval, f"{row.points / row.games:.1%}")
        crosstable.add_column(str(number), justify="right", no_wrap=True)
    for number, row in enumerate(tournament.standings, 1):
        crosstable.add_row(str(number), *(_cell(scores, row.key, other.key) for other in tournament.standings))
    return ratings, crosstable


def tournament_lines(tournament: Tournament) -> list[str]:
    """How well the model fits, and every reason not to trust the table."""
    lines = [*fit_lines(tournament.fits)]
    lines += [f"{row.name} forfeited {row.forfeits} games" for row in tournament.standings if row.forfeits]
    lines += [f"not played: {' against '.join(each.players)}: {each.reason}" for each in tournament.failures]
    games = sum(pairing.num_games for pairing in tournament.pairings)
    unique = sum(pairing.unique_games for pairing in tournament.pairings)
    if unique < games:
        more = f"raise --openings above {tournament.opening_moves} for different games"
        lines.append(f"{games - unique} of {games} games repeat another one; {more}")
    if (groups := len(rate((pairing.score for pairing in tournament.pairings), {}))) > 1:
        lines.append(f"{groups} groups of players have no games between them; their ratings cannot be compared")
    return lines


def write_tournament(home: Path, tournament: Tournament) -> Path:
    """Writes a tournament below `.zero/tournaments` and returns its folder.

    Raises:
      StorageError: the file cannot be written.
    """
    folder = results_dir(home, TOURNAMENTS_DIR, tournament)
    write_manifest(folder, tournament, TOURNAMENT_FILE)
    return folder


def _standings(
    groups: Sequence[Group], pairings: Sequence[Pairing], names: dict[str, str], texts: dict[str, str]
) -> list[Standing]:
    """The players with matches, the strongest first."""
    points, games, forfeits = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pairing in pairings:
        both = (pairing.points, pairing.num_games - pairing.points)
        for key, own, lost in zip(pairing.players, both, pairing.forfeits, strict=True):
            points[key] += own
            games[key] += pairing.num_games
            forfeits[key] += lost
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
    return sorted(rows, key=lambda row: (-row.elo, row.key))


def _cell(scores: dict[tuple[str, str], Pairing], row: str, column: str) -> str:
    """Score of a row's player against a column's."""
    if pairing := scores.get((row, column)):
        return f"{pairing.points / pairing.num_games:.0%}"
    if pairing := scores.get((column, row)):
        return f"{(pairing.num_games - pairing.points) / pairing.num_games:.0%}"
    return NOT_PLAYED
