"""Writes generations of the record to MLflow: runs to compare, curves, and the catalogue of players.

MLflow is not evidence: everything in it is read from the files of a tag and can be written again. A generation is
written completely or not at all: if its runs are incomplete, they are deleted and written again.

| module | content |
|---|---|
| `metrics`, `pages` | content of the runs and versions of a generation, without a server |
| `client`, `server` | the calls to the server, and its errors |
| `backfill` | writes the missing generations of a lineage |
| `summary` | runs over all generations of a lineage, such as its ladder |
| `player` | the code of a registered player |
| `audit` | reads everything that a server has of a lineage |

The MLflow library takes seconds to import and reads its environment then. So it is imported in `open_client`, when a
server is used.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from zero.errors import LineageError, ServerError
from zero.record.generation import Generation
from zero.tracking import pages
from zero.tracking.pages import Page

if TYPE_CHECKING:
    from zero.tracking.client import Experiment

ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Defaults for the MLflow library: no telemetry, no minutes of retries, no output."""


class TrackingReceipt(NamedTuple):
    """Where a generation is in MLflow."""

    run_id: str
    url: str
    """Address of the run."""
    version: int
    """Version number of its network in the catalogue."""


def track_generation(generation: Generation, uri: str) -> TrackingReceipt:
    """Writes a generation to MLflow, unless it is there completely.

    Of the data in DVC only `models/challenger` and `state/champion` are needed. The runs end at the time of the
    generation's commit, so that runs that are written again are equal.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
      LineageError: the server has another history of the lineage.
      StorageError: a file of the generation is missing or corrupt.
    """
    parent, children = pages.generation_page(generation), pages.stage_pages(generation)
    with open_client(uri) as client:
        experiment = client.open_experiment(uri, generation.lineage, generation.recorded_ms)
        run = _complete_run(experiment, generation, [parent, *children])
        if run is not None:
            run_id = run.info.run_id
            return TrackingReceipt(run_id, experiment.run_url(run_id), _register(experiment, generation))
        experiment.delete_runs(pages.generation_key(generation.lineage, generation.number))
        run = experiment.create_run(parent)
        run_id = run.info.run_id
        for child in children:
            experiment.fill_run(experiment.create_run(child, run_id), child)
        version = _register(experiment, generation, run_id)
        points = pages.ladder_points(generation, _earlier_games(experiment, generation))
        experiment.add_to_ladder(pages.ladder_key(generation.lineage), points, run.info.start_time)
        experiment.fill_run(run, parent)  # last: a finished parent means that the generation is complete
        return TrackingReceipt(run_id, experiment.run_url(run_id), version)


def tracked_generations(lineage: str, uri: str) -> set[int]:
    """Numbers of the generations that the MLflow server has completely.

    Raises:
      ServerError: the server does not answer.
    """
    with open_client(uri) as client:
        experiment = client.find_experiment(uri, lineage)
        return set(_games_of_generations(experiment)) if experiment else set()


def champion_url(lineage: str, uri: str) -> str:
    """Address of the champion in the catalogue.

    Raises:
      ServerError: the server does not answer.
      LineageError: no generation of the lineage is there.
    """
    with open_client(uri) as client:
        experiment = client.find_experiment(uri, lineage)
        url: str | None = experiment.version_url("champion") if experiment else None
    if url is None:
        raise LineageError(f"MLflow at {uri} has no champion of lineage {lineage!r}; run `zero track {lineage}`")
    return url


def model_weights(uri: str, name: str, alias: str | None, version: str | None) -> bytes:
    """The weight file of a model version, given by its alias or its number.

    Raises:
      ServerError: the server does not answer.
      LineageError: the version does not exist.
    """
    with open_client(uri) as client:
        data: bytes | None = client.model_weights(uri, name, alias, version)
    if data is None:
        wanted = f"alias {alias}" if alias else f"version {version}"
        raise LineageError(f"MLflow at {uri} has no model {name} with {wanted}; its page `Models` lists the models")
    return data


@contextlib.contextmanager
def open_client(uri: str) -> Iterator[ModuleType]:
    """The module `zero.tracking.client`, after a check that the server answers."""
    if not uri.startswith(("http://", "https://")):
        raise ServerError(f"MLFLOW_TRACKING_URI = {uri!r} is not an http:// address; `make up` starts a local server")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, about its own types
        from zero.tracking import client, server
    with server.answering(uri):
        yield client


def _complete_run(experiment: "Experiment", generation: Generation, wanted: Sequence[Page]) -> Any:
    """The parent run of a generation if all its runs are finished; None otherwise.

    Raises:
      LineageError: a run belongs to another history of the lineage, so it must not be deleted.
    """
    found = list(experiment.runs(pages.generation_key(generation.lineage, generation.number)))
    for run in found:
        if run.data.tags.get("zero.ledger") != wanted[0].tags["zero.ledger"]:
            raise LineageError(
                f"MLflow at {experiment.uri} has another history of {generation.tag} (run {run.info.run_id}), from a "
                f"lineage with the same name; delete all runs of experiment {generation.lineage} and the model "
                f"{experiment.model} there, or give this lineage another name"
            )
    finished = {run.data.tags["zero.stage"]: run for run in found if run.info.status == "FINISHED"}
    stages = {page.key["zero.stage"] for page in wanted}
    return finished["generation"] if finished.keys() == stages and len(found) == len(stages) else None


def _register(experiment: "Experiment", generation: Generation, run_id: str | None = None) -> int:
    """The version number of the generation's network, after its registration and the update of the aliases.

    `champion` and `challenger` follow the newest generation on the server; an older one that is written later does not
    move them.
    """
    entry = pages.entry_of(generation)
    opponent = None
    if entry.decision is not None:  # it is registered already, unless the earlier generation is missing here
        opponent = experiment.register(pages.champion_version(generation), None)
    version = experiment.register(pages.challenger_version(generation), run_id)
    newest = experiment.generation_of("challenger")
    if newest is None or newest <= entry.generation:
        is_champion = entry.champion_generation == entry.generation
        experiment.point_alias("champion", version if is_champion or opponent is None else opponent)
        if entry.kind != "rollback":  # a rollback has no challenger: the alias stays
            experiment.point_alias("challenger", version)
    return version


def _games_of_generations(experiment: "Experiment") -> dict[int, float]:
    """Self-play games of every complete generation, by its number."""
    runs = experiment.finished_runs({"zero.lineage": experiment.lineage, "zero.stage": "generation"})
    return {int(r.data.tags["zero.generation"]): r.data.metrics.get("selfplay/num_games", 0.0) for r in runs}


def _earlier_games(experiment: "Experiment", generation: Generation) -> float | None:
    """Self-play games of all earlier generations; None if one of them is not on the server."""
    games = _games_of_generations(experiment)
    earlier = [entry.generation for entry in generation.ledger[:-1] if entry.decision is not None]
    return sum(games[each] for each in earlier) if all(each in games for each in earlier) else None
