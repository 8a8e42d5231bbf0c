"""Writes generations of the record to MLflow: curves, comparison of runs, the catalogue of players.

MLflow is a notebook and no evidence: everything in it is read off the files of a tag and can be written again. Writing
is idempotent, and a writing that was killed is finished by the next one. What is shown is in `pages`, how it is written
in `client`, what a registered player does in `player`. The library takes seconds to import and reads its environment
then, so it is imported when a server is asked and not before.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from zero.errors import LineageError, ServerError
from zero.record.generation import Generation
from zero.tracking import pages

if TYPE_CHECKING:
    from zero.tracking.client import Notebook

ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Settings of the MLflow library, where the user has not set them: no calls home, no minutes of retries, no prints."""


class TrackingReceipt(NamedTuple):
    """Where a generation is in MLflow."""

    run_id: str
    url: str
    """Page of the run."""
    version: int
    """Number of its network in the catalogue."""


def track_generation(generation: Generation, uri: str) -> TrackingReceipt:
    """Writes a generation to the MLflow server, or the part of it that the server lacks.

    Of the data that DVC tracks only `models/challenger` and `state/champion` are read. The runs bear the time at which
    the generation was recorded, so that they are equal when they are written again.

    Raises:
      ServerError: the server does not answer; nothing is lost, and the call can be repeated.
      LineageError: the server has another history of the lineage.
      StorageError: a file of the generation is missing or corrupt.
    """
    page, children = pages.generation_page(generation), pages.stage_pages(generation)  # before anything is written
    with open_client(uri) as client:
        notebook = client.open_notebook(uri, generation.lineage, generation.recorded_ms)
        run = notebook.open_run(page)
        for child in children:
            notebook.fill_run(notebook.open_run(child, run.info.run_id), child)
        version = _register(notebook, generation, run.info.run_id)
        games = _earlier_games(notebook, generation)
        points = pages.ladder_points(generation, games)
        notebook.add_to_ladder(pages.ladder_key(generation.lineage), points, run.info.start_time)
        notebook.fill_run(run, page)
        return TrackingReceipt(run.info.run_id, notebook.run_url(run.info.run_id), version)


def tracked_generations(lineage: str, uri: str) -> set[int]:
    """Numbers of the generations that the MLflow server has whole; `zero track` writes the others.

    Raises:
      ServerError: the server does not answer.
    """
    with open_client(uri) as client:
        notebook = client.find_notebook(uri, lineage)
        return set(_games_of_generations(notebook)) if notebook else set()


def champion_url(lineage: str, uri: str) -> str:
    """Page of the champion in the catalogue.

    Raises:
      ServerError: the server does not answer.
      LineageError: no generation of the lineage was tracked there.
    """
    with open_client(uri) as client:
        notebook = client.find_notebook(uri, lineage)
        url: str | None = notebook.version_url("champion") if notebook else None
    if url is None:
        raise LineageError(f"MLflow at {uri} has no champion of lineage {lineage!r}; try `zero track {lineage}`")
    return url


def model_weights(uri: str, name: str, alias: str | None, version: str | None) -> bytes:
    """The weight file of a version in the catalogue, found by its alias or its number.

    Raises:
      ServerError: the server does not answer.
      LineageError: there is no such version.
    """
    with open_client(uri) as client:
        data: bytes | None = client.model_weights(uri, name, alias, version)
    if data is None:
        wanted = f"alias {alias}" if alias else f"version {version}"
        raise LineageError(f"MLflow at {uri} has no model {name} with {wanted}; its page `Models` shows what it has")
    return data


@contextlib.contextmanager
def open_client(uri: str) -> Iterator[ModuleType]:
    """`zero.tracking.client`, which imports the MLflow library, in front of a server that answers."""
    if not uri.startswith(("http://", "https://")):
        raise ServerError(f"MLFLOW_TRACKING_URI = {uri!r} is no http:// address; `make up` starts a server there")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, about its own types
        from zero.tracking import client, server
    with server.answering(uri):
        yield client


def _register(notebook: "Notebook", generation: Generation, run_id: str) -> int:
    """Version of the generation's network, with the aliases as they should be.

    The aliases that move follow the newest generation tracked, so an older one that is caught up leaves them alone.
    """
    entry = generation.entry
    assert entry is not None, "a page was made of it"
    opponent = None
    if entry.decision is not None:  # it is there already, unless an earlier generation was left out
        opponent = notebook.register(pages.champion_version(generation), None)
    version = notebook.register(pages.challenger_version(generation), run_id)
    newest = notebook.generation_of("challenger")
    if newest is None or newest <= entry.generation:
        is_champion = entry.champion_generation == entry.generation
        notebook.point_alias("champion", version if is_champion or opponent is None else opponent)
        if entry.kind != "rollback":  # which makes no challenger: the newest one stays that
            notebook.point_alias("challenger", version)
    return version


def _games_of_generations(notebook: "Notebook") -> dict[int, float]:
    """Self-play games of every generation that is there whole."""
    runs = notebook.finished_runs({"zero.lineage": notebook.lineage, "zero.stage": "generation"})
    return {int(r.data.tags["zero.generation"]): r.data.metrics.get("selfplay/num_games", 0.0) for r in runs}


def _earlier_games(notebook: "Notebook", generation: Generation) -> float | None:
    """Self-play games of all generations of the lineage before; None where one of them was not tracked."""
    games = _games_of_generations(notebook)
    earlier = [entry.generation for entry in generation.ledger[:-1] if entry.decision is not None]
    return sum(games[each] for each in earlier) if all(each in games for each in earlier) else None
