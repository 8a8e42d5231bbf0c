"""`zero match`: a match of two players of any kind, from their specs to a finished match, on the console and in MLflow.

| file | content |
|---|---|
| `match.json` | `MatchSpec`: players, rules, seed |
| `games/0007.json` | `MatchGame`, written when the game is over |
| `result.json`, `games.sgf` | `MatchTable` and all games, written when the last game is over |
| `lock` | held by the process that plays |

The folder is named by what the match depends on, so the same command continues an interrupted match. Scores are those
of the first player, who has Black in the games of even number. Not for gating, whose match is a stage of the pipeline
and part of the record.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from zero.config.params import GameParams
from zero.config.settings import STATE_FOLDER
from zero.data.sgf import FORFEIT, WITHOUT_SCORE, SgfHead, moves_to_sgf, write_collection
from zero.errors import ParamsError, StorageError
from zero.evaluation.referee import MatchGame, Referee, max_opening_moves
from zero.games.rules import TRAITS, rules_of
from zero.players.build import ResolvedPlayer, common_game, identify, make_player, resolve_player
from zero.players.player import Player, PlayerId
from zero.players.spec import parse_player
from zero.progress import Progress
from zero.record.texts import match_interval
from zero.statistics import wilson_interval
from zero.storage.files import (
    canonical_json,
    locked,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_manifest,
)
from zero.storage.manifests import Colours, Manifest, MatchResult
from zero.tracking import open_client
from zero.tracking.pages import MetricPoint, Page, result_numbers

SPEC_FILE, RESULT_FILE, SGF_FILE = "match.json", "result.json", "games.sgf"
MATCH_GAMES_DIR = "games"
MATCHES_DIR = "matches"
KEY_DIGITS = 16
MAX_PARAM_LENGTH = 6000
"""MLflow's limit, in characters."""

log = logging.getLogger(__name__)


class MatchSpec(Manifest):
    """Everything that a match depends on."""

    version: Literal[1] = 1
    game: GameParams
    players: tuple[PlayerId, PlayerId]
    num_games: Annotated[int, Field(ge=2, multiple_of=2)]
    opening_moves: Annotated[int, Field(ge=0)]
    """Random legal moves at the start, the same in games 2k and 2k + 1."""
    seed: int

    def key(self) -> str:
        """SHA-256 (hex) of the canonical JSON."""
        return sha256_bytes(canonical_json(self))


class MatchTable(Manifest):
    """The result of a match."""

    players: tuple[PlayerId, PlayerId]
    result: MatchResult
    forfeits: tuple[int, int]
    """Games that each player forfeited."""
    mean_margin: float | None
    """Mean margin in points for the first player over the games that were played out; None without such games."""


class FinishedMatch(NamedTuple):
    """A finished match and its folder."""

    folder: Path
    spec: MatchSpec
    table: MatchTable


def run_match(
    home: Path,
    players: tuple[str | ResolvedPlayer, str | ResolvedPlayer],
    num_games: int,
    opening_moves: int = 0,
    seed: int = 1,
    komi: float | None = None,
    size: int | None = None,
    games_at_once: int = 32,
    folder: Path | None = None,
    progress: Progress | None = None,
    game: GameParams | None = None,
) -> FinishedMatch:
    """Plays the missing games of a match.

    Args:
      home: the project's folder.
      players: their specs, see `zero.players.spec`; resolved ones if they play several matches.
      num_games: an even number, half of them with each colour.
      opening_moves: random moves at the start of each pair of games.
      seed: of openings, searches and engines.
      komi: replaces the komi of the players' parameters.
      size: replaces the board size of the players' parameters.
      games_at_once: games in play at the same time.
      folder: of the match; by default a folder below `.zero/matches` with the key of the match as its name.
      progress: see `play_match`.
      game: the game of all players of a tournament; by default that of the two players, with `komi` and `size`.

    Raises:
      ZeroError: a player is unknown, cannot be started or plays another game. Finished games are kept.
    """
    check_num_games(num_games)
    first, second = (
        player if isinstance(player, ResolvedPlayer) else resolve_player(home, parse_player(player))
        for player in players
    )
    game = game or common_game(home, (first, second), komi, size)
    games_at_once = min(games_at_once, num_games)
    rules = rules_of(game)
    if opening_moves > max_opening_moves(rules):
        raise ParamsError(
            f"opening_moves must be at most {max_opening_moves(rules)} for {rules.num_points} points, got "
            f"{opening_moves}; give a smaller number"
        )
    spec = MatchSpec(
        game=game,
        players=(identify(first, rules), identify(second, rules)),
        num_games=num_games,
        opening_moves=opening_moves,
        seed=seed,
    )
    makers = [
        partial(make_player, player, rules, games_at_once, seed + number)
        for number, player in enumerate((first, second))
    ]
    folder = folder or results_dir(home, MATCHES_DIR, spec)
    # A finished match is read without its lock, because several processes may read it at once.
    # A damaged result is counted again from the games, and a missing collection is written again.
    is_finished = all((folder / name).exists() for name in (RESULT_FILE, SGF_FILE))
    with suppress(StorageError):
        if is_finished and (finished := read_match(folder)).spec == spec:
            return finished
    return FinishedMatch(folder, spec, play_match(folder, spec, makers, games_at_once, progress))


def check_num_games(num_games: int) -> None:
    """Checks that each player can have each colour equally often.

    Raises:
      ParamsError: the number is odd.
    """
    if num_games % 2:
        raise ParamsError(f"games = {num_games} is odd; give an even number, half of them with each colour")


def results_dir(home: Path, kind: str, key: Manifest | dict[str, Any]) -> Path:
    """Folder of a result below `.zero`, named by a digest of what it depends on."""
    return home / STATE_FOLDER / kind / sha256_bytes(canonical_json(key))[:KEY_DIGITS]


def play_match(
    folder: Path,
    spec: MatchSpec,
    makers: Sequence[Callable[[], Player]],
    games_at_once: int,
    progress: Progress | None = None,
) -> MatchTable:
    """Plays the missing games of `spec` and counts all of them.

    Args:
      folder: of the match; created if it does not exist.
      spec: the match.
      makers: make the two players of `spec`, which are closed here. Not called if no game is missing.
      games_at_once: games in play at the same time, at most as many as the players have capacity for.
      progress: called if a game is missing: before the first one and after each.

    Raises:
      StorageError: the folder contains another match or a corrupt file, another process plays the match, or a file
        cannot be written.
      ParamsError, OpponentError: a player cannot be made, or every random opening ends the game.
    """
    busy = f"the match in {folder} is being played by another process; wait for it, or give another folder"
    with locked(folder, busy):
        _open_folder(folder, spec)
        missing = [number for number in range(spec.num_games) if not _game_path(folder, number).exists()]
        if missing:
            report = progress or (lambda done, total: None)
            report(spec.num_games - len(missing), spec.num_games)
            with ExitStack() as closed:
                players = [closed.enter_context(closing(make())) for make in makers]
                referee = closed.enter_context(
                    Referee(rules_of(spec.game), players, spec.seed, spec.opening_moves, games_at_once)
                )
                for done, game in enumerate(referee.play(missing), spec.num_games - len(missing) + 1):
                    write_atomic(_game_path(folder, game.game), canonical_json(game))
                    report(done, spec.num_games)
        games = [read_game(folder, number) for number in range(spec.num_games)]
        table = count_match(spec, games)
        write_collection(folder / SGF_FILE, [_sgf(spec, game) for game in games])
        write_manifest(folder, table, RESULT_FILE)
        return table


def finished_matches(home: Path) -> Iterator[FinishedMatch]:
    """Every finished match below `.zero/matches`, sorted by folder. Unreadable matches are logged and skipped."""
    for path in sorted((home / STATE_FOLDER / MATCHES_DIR).glob(f"*/{RESULT_FILE}")):
        try:
            yield read_match(path.parent)
        except StorageError as error:
            log.warning("match skipped: %s", error)


def read_match(folder: Path) -> FinishedMatch:
    """The finished match in a folder.

    Raises:
      StorageError: the folder does not contain a finished match.
    """
    spec, table = read_manifest(folder, MatchSpec, SPEC_FILE), read_manifest(folder, MatchTable, RESULT_FILE)
    if table.players != spec.players:
        raise StorageError(f"{folder / RESULT_FILE} is of other players than {SPEC_FILE}; delete it and play again")
    return FinishedMatch(folder, spec, table)


def count_match(spec: MatchSpec, games: list[MatchGame]) -> MatchTable:
    """The result of these games."""
    results = np.array([game.result for game in games])
    black = np.array([game.game % 2 == 0 for game in games])
    total = Colours.counted(results)
    score = (total.wins + total.draws / 2) / len(games)
    played_out = [game for game in games if game.end not in WITHOUT_SCORE]
    margins = [(1 - 2 * (game.game % 2)) * game.margin for game in played_out]
    has_score = TRAITS[rules_of(spec.game).game].has_score
    forfeits = results[np.array([game.end == FORFEIT for game in games])]
    num_unique = len({game.actions for game in games})
    return MatchTable(
        players=spec.players,
        result=MatchResult(
            wins=total.wins,
            losses=total.losses,
            draws=total.draws,
            as_black=Colours.counted(results[black]),
            as_white=Colours.counted(results[~black]),
            unique_games=num_unique,
            score=score,
            interval=wilson_interval(score, num_unique),  # as `match_interval`
            mean_length=float(np.mean([len(game.actions) for game in games])),
        ),
        forfeits=(int((forfeits < 0).sum()), int((forfeits > 0).sum())),
        mean_margin=float(np.mean(margins)) if has_score and margins else None,
    )


def match_lines(table: MatchTable, folder: Path) -> Iterator[str]:
    """The result of a match for the console."""
    first, second = (player.name for player in table.players)
    result = table.result
    low, high = match_interval(result)
    yield f"{first} against {second}: {result.num_games} games"
    yield (
        f"{result.wins} won, {result.losses} lost, {result.draws} drawn: {result.score:.1%} "
        f"(95 % interval {low:.1%} to {high:.1%})"
    )
    yield f"as Black {_share_text(result, result.as_black)}; as White {_share_text(result, result.as_white)}"
    yield f"{result.unique_games} unique games of {result.mean_length:.0f} moves on average"
    if repeated := result.num_games - result.unique_games:
        yield f"{repeated} games repeat another one, which the intervals ignore; raise --openings for different games"
    if table.mean_margin is not None:
        yield f"mean margin of the games played out: {table.mean_margin:+.1f} points"
    for name, forfeits in zip((first, second), table.forfeits, strict=True):
        if forfeits:
            yield f"{name} forfeited {forfeits} games; the reasons are in {SGF_FILE}"
    yield f"games and result: {folder}"


def track_matches(folders: Iterable[Path], uri: str) -> list[str]:
    """Writes finished matches to MLflow, unless they are there; returns the addresses of their runs.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
      StorageError: a folder does not contain a finished match.
    """
    pages = [_match_page(folder) for folder in folders]
    with open_client(uri) as client:
        experiment = client.open_experiment(uri, client.MATCHES)
        return [experiment.run_url(experiment.write_once(page)) for page in pages]


def _open_folder(folder: Path, spec: MatchSpec) -> None:
    """Writes the specification into a new folder; checks that a folder in use is of the same match."""
    if (folder / SPEC_FILE).exists():
        if read_manifest(folder, MatchSpec, SPEC_FILE) != spec:
            raise StorageError(f"{folder} contains another match; give another folder")
    elif any(folder.glob(f"{MATCH_GAMES_DIR}/*.json")):
        raise StorageError(f"{folder} contains games of a match without {SPEC_FILE}; give another folder")
    else:
        write_manifest(folder, spec, SPEC_FILE)


def _game_path(folder: Path, number: int) -> Path:
    return folder / MATCH_GAMES_DIR / f"{number:04d}.json"


def read_game(folder: Path, number: int) -> MatchGame:
    """One game of the match in a folder.

    Raises:
      StorageError: the file is missing or corrupt.
    """
    path = _game_path(folder, number)
    try:
        read = MatchGame.model_validate_json(path.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError:
        read = None
    if read is None or read.game != number:
        raise StorageError(f"{path} is not game {number} of this match; delete the file, and the game is replayed")
    return read


def _sgf(spec: MatchSpec, game: MatchGame) -> str:
    names = [player.name for player in spec.players]
    black, white = names if game.game % 2 == 0 else reversed(names)
    head = SgfHead(
        event=f"match of {spec.num_games} games, seed {spec.seed}",
        game_name=f"game {game.game}",
        black_name=black,
        white_name=white,
        comment=f"end: {game.end}" + (f", {game.fault}" if game.end == FORFEIT else ""),
    )
    return moves_to_sgf(rules_of(spec.game), head, game.actions, game.outcome, game.margin, game.end)


def _match_page(folder: Path) -> Page:
    """Content of the run of a match: scores, settings of the players, and the games.

    Specification and result identify it: engines can play the same match differently elsewhere.

    Raises:
      StorageError: a file is missing or corrupt.
    """
    _, spec, table = read_match(folder)
    params = {f"game.{name}": str(value) for name, value in spec.game.model_dump().items()}
    params |= {"games": str(spec.num_games), "opening_moves": str(spec.opening_moves), "seed": str(spec.seed)}
    for which, player in zip(("first", "second"), spec.players, strict=True):
        params |= {which: player.name, f"{which}.kind": player.kind}
        params |= {f"{which}.{name}": str(value)[:MAX_PARAM_LENGTH] for name, value in player.settings.items()}
    try:
        files = {name: (folder / name).read_bytes() for name in (SPEC_FILE, RESULT_FILE, SGF_FILE)}
    except OSError as error:
        raise StorageError(f"{error.filename}: {error.strerror}; repeat the match to write it again") from None
    return Page(
        name=f"{spec.players[0].name} against {spec.players[1].name}",
        key={"zero.match": spec.key(), "zero.result": sha256_file(folder / RESULT_FILE)},
        tags={},
        params=params,
        points=[MetricPoint(name, value, 0) for name, value in _match_metrics(table).items()],
        files=files,
        data=None,
    )


def _match_metrics(table: MatchTable) -> dict[str, float]:
    result = table.result
    forfeits = {"forfeits_first": table.forfeits[0], "forfeits_second": table.forfeits[1]}
    metrics = result_numbers(result) | forfeits
    if table.mean_margin is not None:
        metrics["mean_margin"] = table.mean_margin
    for name, colours in (("as_black", result.as_black), ("as_white", result.as_white)):
        score, low, high = _share(result, colours)
        metrics |= {f"{name}_score": score, f"{name}_score_low": low, f"{name}_score_high": high}
    return metrics


def _share(result: MatchResult, colours: Colours) -> tuple[float, float, float]:
    """Score with one colour, and its 95 % interval. A match has at least one game with each colour.

    The fraction of unique games is taken to be that of the match.
    """
    score = colours.points / colours.num_games
    return score, *wilson_interval(score, max(1, round(colours.num_games * result.unique_games / result.num_games)))


def _share_text(result: MatchResult, colours: Colours) -> str:
    score, low, high = _share(result, colours)
    return f"{colours.wins}-{colours.losses}-{colours.draws}, {score:.1%} ({low:.1%} to {high:.1%})"
