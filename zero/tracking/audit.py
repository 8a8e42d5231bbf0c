"""Reads everything that an MLflow server has of a lineage, for the audit. Changes nothing."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zero.storage.files import sha256_file
from zero.tracking import open_client
from zero.tracking.metrics import Point

RUNS_A_CALL = 100
"""Maximum number of runs in one request for the history of a metric; the server's limit."""
HISTORY_LIMIT = 25000
"""Maximum number of values in the response."""
RUNS_A_PAGE = 1000
HISTORY_PATH = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
"""Used by MLflow's own web pages. The public call returns one metric of one run."""
MODEL_SOURCE = "models:/"
WEIGHTS_PATH = "artifacts/weights.safetensors"


class FoundRun(NamedTuple):
    """One run on the server."""

    run_id: str
    status: str
    deleted: bool
    tags: dict[str, str]
    params: dict[str, str]
    points: frozenset[Point]


class FoundVersion(NamedTuple):
    """One version of the registered model."""

    version: int
    tags: dict[str, str]
    run_id: str | None
    sha256: str | None
    """SHA-256 of its weights on the server; None if they cannot be downloaded."""


class Catalogue(NamedTuple):
    """Everything that one server has of a lineage."""

    uri: str
    deleted: bool
    """True if the experiment is deleted."""
    runs: tuple[FoundRun, ...]
    versions: tuple[FoundVersion, ...]
    aliases: dict[str, int]

    def runs_of(self, key: dict[str, str]) -> list[FoundRun]:
        """Runs with these tags."""
        return [run for run in self.runs if key.items() <= run.tags.items()]


def read_catalogue(lineage: str, uri: str) -> Catalogue | None:
    """Everything that the server has of a lineage; None if it has neither an experiment nor a model.

    Raises:
      ServerError: the server does not answer.
    """
    with open_client(uri):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment = client.get_experiment_by_name(lineage)
        model = f"zero-{lineage}"
        aliases = _aliases(client, model)
        if experiment is None and aliases is None:
            return None
        runs = _runs(client, uri, experiment.experiment_id) if experiment else ()
        return Catalogue(
            uri=uri,
            deleted=experiment is not None and experiment.lifecycle_stage != "active",
            runs=runs,
            versions=_versions(client, uri, model) if aliases is not None else (),
            aliases=aliases or {},
        )


def _runs(client: Any, uri: str, experiment_id: str) -> tuple[FoundRun, ...]:
    from mlflow.entities import ViewType

    found = list(_pages(client.search_runs, [experiment_id], "", ViewType.ALL, RUNS_A_PAGE))
    wanted: dict[str, list[str]] = {}
    for run in found:
        for name in run.data.metrics:
            wanted.setdefault(name, []).append(run.info.run_id)
    points: dict[str, set[Point]] = {run.info.run_id: set() for run in found}
    for name, run_ids in wanted.items():
        for run_id, point in _histories(uri, client, name, run_ids):
            points[run_id].add(point)
    return tuple(
        FoundRun(
            run_id=run.info.run_id,
            status=run.info.status,
            deleted=run.info.lifecycle_stage != "active",
            tags=dict(run.data.tags),
            params=dict(run.data.params),
            points=frozenset(points[run.info.run_id]),
        )
        for run in found
    )


def _histories(uri: str, client: Any, name: str, run_ids: list[str]) -> Iterator[tuple[str, Point]]:
    """All values of a metric in these runs. Splits the request if the response reaches the server's limit."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    if len(run_ids) > RUNS_A_CALL:
        for start in range(0, len(run_ids), RUNS_A_CALL):
            yield from _histories(uri, client, name, run_ids[start : start + RUNS_A_CALL])
        return
    query = {"run_id": run_ids, "metric_key": name, "max_results": HISTORY_LIMIT}
    answer = http_request(get_default_host_creds(uri), HISTORY_PATH, "GET", params=query).json()
    metrics = answer.get("metrics", [])
    if len(metrics) < HISTORY_LIMIT:
        for each in metrics:
            yield each["run_id"], Point(name, float(each["value"]), int(each["step"]))
    elif len(run_ids) > 1:
        half = len(run_ids) // 2
        yield from _histories(uri, client, name, run_ids[:half])
        yield from _histories(uri, client, name, run_ids[half:])
    else:
        for metric in client.get_metric_history(run_ids[0], name):
            yield run_ids[0], Point(name, float(metric.value), int(metric.step))


def _versions(client: Any, uri: str, model: str) -> tuple[FoundVersion, ...]:
    found = _pages(client.search_model_versions, f"name = '{model}'")
    with tempfile.TemporaryDirectory(prefix="zero-audit-") as scratch:
        return tuple(
            FoundVersion(
                version=int(each.version),
                tags=dict(each.tags),
                run_id=each.run_id or None,
                sha256=_weights_digest(client, each.source, uri, Path(scratch)),
            )
            for each in sorted(found, key=lambda each: int(each.version))
        )


def _weights_digest(client: Any, source: str, uri: str, scratch: Path) -> str | None:
    """SHA-256 of the weights of a logged model; None if they cannot be downloaded.

    The download uses the location of the model: with `models:/...` the library would open a local database.
    """
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    try:
        location = client.get_logged_model(source.removeprefix(MODEL_SOURCE)).artifact_location
        found = mlflow.artifacts.download_artifacts(
            f"{location}/{WEIGHTS_PATH}", dst_path=str(scratch), tracking_uri=uri
        )
    except (MlflowException, OSError):
        return None
    path = Path(found)
    digest = sha256_file(path)
    path.unlink()
    return digest


def _aliases(client: Any, model: str) -> dict[str, int] | None:
    """The version of each alias; None if the model does not exist."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_registered_model(model)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return {alias: int(version) for alias, version in found.aliases.items()}


def _pages(call: Any, *arguments: Any) -> Iterable[Any]:
    """The results of all pages of a search."""
    """The results of all pages of a search."""
    token: str | None = None
    while True:
        page = call(*arguments, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
