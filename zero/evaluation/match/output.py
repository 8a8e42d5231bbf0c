"""Shows a match: lines for the console, and a run in MLflow with scores, settings of the players, and the games.

A run is identified by the specification and the result: engines can play the same match differently elsewhere.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from zero.evaluation.match.results import RESULT_FILE, SGF_FILE, SPEC_FILE, MatchSpec, MatchTable
from zero.statistics import wilson_interval
from zero.storage.files import read_manifest, sha256_file
from zero.storage.manifests import Colours
from zero.tracking import open_client
from zero.tracking.pages import Page, Point

MAX_PARAM_LENGTH = 6000
"""The server's limit, in characters."""


class Share(NamedTuple):
    """Score with one colour, and its 95 % interval."""

    score: float
    low: float
    high: float


def score_of(colours: Colours) -> Share:
    """The score with one colour; 0 with the interval 0 to 1 if there are no games."""
    games = colours.wins + colours.losses + colours.draws
    if not games:
        return Share(0.0, 0.0, 1.0)
    score = (colours.wins + colours.draws / 2) / games
    return Share(score, *wilson_interval(score, games))


def match_lines(table: MatchTable, folder: Path) -> Iterator[str]:
    """The result of a match for the console."""
    first, second = (player.name for player in table.players)
    result = table.result
    low, high = result.interval
    yield f"{first} against {second}: {result.wins + result.losses + result.draws} games"
    yield (
        f"{result.wins} won, {result.losses} lost, {result.draws} drawn: {result.score:.1%} "
        f"(95 % interval {low:.1%} to {high:.1%})"
    )
    yield f"as Black {_colours(result.as_black)}; as White {_colours(result.as_white)}"
    yield f"{result.unique_games} unique games of {result.mean_length:.0f} moves on average"
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
    pages = [match_page(folder) for folder in folders]
    with open_client(uri) as client:
        experiment = client.open_experiment(uri, client.MATCHES)
        return [experiment.run_url(experiment.write_once(page)) for page in pages]


def match_page(folder: Path) -> Page:
    """Content of the run of a match."""
    spec = read_manifest(folder, MatchSpec, SPEC_FILE)
    table = read_manifest(folder, MatchTable, RESULT_FILE)
    params = {f"game.{name}": str(value) for name, value in spec.game.model_dump().items()}
    params |= {"games": str(spec.num_games), "opening_moves": str(spec.opening_moves), "seed": str(spec.seed)}
    for which, player in zip(("first", "second"), spec.players, strict=True):
        params |= {which: player.name, f"{which}.kind": player.kind}
        params |= {f"{which}.{name}": str(value)[:MAX_PARAM_LENGTH] for name, value in player.settings.items()}
    return Page(
        name=f"{spec.players[0].name} against {spec.players[1].name}",
        key={"zero.match": spec.key(), "zero.result": sha256_file(folder / RESULT_FILE)},
        tags={},
        params=params,
        points=[Point(name, value, 0) for name, value in metrics_of(table).items()],
        files={name: (folder / name).read_bytes() for name in (SPEC_FILE, RESULT_FILE, SGF_FILE)},
        data=None,
    )


def metrics_of(table: MatchTable) -> dict[str, float]:
    """The metrics of the run of a match."""
    result = table.result
    metrics: dict[str, float] = {
        "score": result.score,
        "score_low": result.interval[0],
        "score_high": result.interval[1],
        "wins": result.wins,
        "losses": result.losses,
        "draws": result.draws,
        "unique_games": result.unique_games,
        "mean_length": result.mean_length,
        "forfeits_first": table.forfeits[0],
        "forfeits_second": table.forfeits[1],
    }
    if table.mean_margin is not None:
        metrics["mean_margin"] = table.mean_margin
    for name, colours in (("as_black", result.as_black), ("as_white", result.as_white)):
        if any(colours.model_dump().values()):
            share = score_of(colours)
            metrics |= {f"{name}_score": share.score, f"{name}_score_low": share.low, f"{name}_score_high": share.high}
    return metrics


def _colours(colours: Colours) -> str:
    share = score_of(colours)
    return f"{colours.wins}-{colours.losses}-{colours.draws}, {share.score:.1%} ({share.low:.1%} to {share.high:.1%})"
