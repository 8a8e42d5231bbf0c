"""A match between players of any kind as a run in MLflow: score by colour, the players' settings, the games as SGF.

A run is known by what was to be played and by what came of it: engines may play the same match otherwise elsewhere.
"""

from collections.abc import Iterable
from pathlib import Path

from zero.evaluation.match.results import MatchSpec, MatchTable
from zero.evaluation.match.store import RESULT_FILE, SGF_FILE, SPEC_FILE
from zero.statistics import wilson_interval
from zero.storage.files import read_manifest, sha256_file
from zero.storage.manifests import Colours
from zero.tracking import open_client
from zero.tracking.metrics import Point
from zero.tracking.pages import Page

LONGEST_PARAM = 6000
"""The server's limit."""


def track_match(folder: Path, uri: str) -> str:
    """Writes a match that is over to the MLflow server, or what of it is not there; returns the address of its page.

    Raises:
      ServerError: the server does not answer; nothing is lost, and the call can be repeated.
      StorageError: the folder holds no whole match.
    """
    return track_matches([folder], uri)[0]


def track_matches(folders: Iterable[Path], uri: str) -> list[str]:
    """Writes several matches; the addresses of their pages.

    Raises:
      ServerError: the server does not answer; nothing is lost, and the call can be repeated.
      StorageError: a folder holds no whole match.
    """
    pages = [match_page(folder) for folder in folders]
    with open_client(uri) as client:
        notebook = client.open_matches(uri)
        urls = []
        for page in pages:
            run = notebook.open_run(page)
            notebook.fill_run(run, page)
            urls.append(notebook.run_url(run.info.run_id))
        return urls


def match_page(folder: Path) -> Page:
    """What the run of a match shows."""
    spec = read_manifest(folder, MatchSpec, SPEC_FILE)
    table = read_manifest(folder, MatchTable, RESULT_FILE)
    params = {f"game.{name}": str(value) for name, value in spec.game.model_dump().items()}
    params |= {"games": str(spec.num_games), "opening_moves": str(spec.opening_moves), "seed": str(spec.seed)}
    for which, player in zip(("first", "second"), spec.players, strict=True):
        params |= {which: player.name, f"{which}.kind": player.kind}
        params |= {f"{which}.{name}": str(value)[:LONGEST_PARAM] for name, value in player.settings.items()}
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
    """The numbers of a match."""
    result = table.result
    metrics = {
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
    return metrics | _colour("as_black", result.as_black) | _colour("as_white", result.as_white)


def _colour(name: str, colours: Colours) -> dict[str, float]:
    games = colours.wins + colours.losses + colours.draws
    if not games:
        return {}
    score = (colours.wins + colours.draws / 2) / games
    low, high = wilson_interval(score, games)
    return {f"{name}_score": score, f"{name}_score_low": low, f"{name}_score_high": high}
