"""Reads everything that an MLflow server has of a lineage, for the audit. Changes nothing."""

import tempfile
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from zero.storage.files import sha256_file
from zero.tracking import open_client
from zero.tracking.pages import MetricPoint

RUNS_A_CALL = 100
"""Maximum number of runs in one request for the history of a metric; the server's limit."""
HISTORY_LIMIT = 25000
"""Maximum number of values in the response."""
HISTORY_PATH = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
"""Used by MLflow's own web pages. The public call returns one metric of one run."""
WEIGHTS_PATH = "artifacts/weights.safetensors"


class FoundRun(NamedTuple):
    """One run on the server."""

    run_id: str
    status: str
    deleted: bool
    tags: dict[str, str]
    params: dict[str, str]
    points: frozenset[MetricPoint]


class FoundVersion(NamedTuple):
    """One version of the registered model."""

    version: int
    tags: dict[str, str]
    run_id: str | None
    sha256: str | None
    """SHA-256 of its weights on the server; None if they cannot be downloaded."""


class Catalogue(NamedTuple):
    """Everything that one server has of a lineage."""

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
    with open_client(uri) as client:
        from mlflow import MlflowClient

        server = MlflowClient(tracking_uri=uri, registry_uri=uri)
        experiment, registered = server.get_experiment_by_name(lineage), None
        with client.unless("RESOURCE_DOES_NOT_EXIST"):
            registered = server.get_registered_model(f"zero-{lineage}")
        if experiment is None and registered is None:
            return None
        return Catalogue(
            deleted=experiment is not None and experiment.lifecycle_stage != "active",
            runs=_runs(server, uri, experiment.experiment_id) if experiment else (),
            versions=_versions(server, uri, registered.name) if registered else (),
            aliases={alias: int(version) for alias, version in registered.aliases.items()} if registered else {},
        )


def _runs(server: Any, uri: str, experiment_id: str) -> tuple[FoundRun, ...]:
    from mlflow.entities import ViewType

    from zero.tracking.client import all_pages

    found = list(all_pages(server.search_runs, [experiment_id], "", ViewType.ALL))
    # Runs by metric, because a request asks for one metric of many runs.
    wanted: dict[str, list[str]] = {}
    for run in found:
        for name in run.data.metrics:
            wanted.setdefault(name, []).append(run.info.run_id)
    points: dict[str, set[MetricPoint]] = {run.info.run_id: set() for run in found}
    for name, run_ids in wanted.items():
        for run_id, point in _histories(uri, server, name, run_ids):
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


def _histories(uri: str, server: Any, name: str, run_ids: list[str]) -> Iterator[tuple[str, MetricPoint]]:
    """All values of a metric in these runs. Halves a request that exceeds a limit of the server."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    if len(run_ids) <= RUNS_A_CALL:
        query = {"run_id": run_ids, "metric_key": name, "max_results": HISTORY_LIMIT}
        answer = http_request(get_default_host_creds(uri), HISTORY_PATH, "GET", params=query)
        # Not a part of MLflow's public interface: a server or a proxy may not have it. The one below is.
        metrics = answer.json().get("metrics", []) if answer.status_code == HTTPStatus.OK else None
        # A response of this length may have been cut off by the server.
        if metrics is not None and len(metrics) < HISTORY_LIMIT:
            for each in metrics:
                yield each["run_id"], MetricPoint(name, float(each["value"]), int(each["step"]))
            return
    if len(run_ids) == 1:
        for metric in server.get_metric_history(run_ids[0], name):
            yield run_ids[0], MetricPoint(name, float(metric.value), int(metric.step))
        return
    half = len(run_ids) // 2
    yield from _histories(uri, server, name, run_ids[:half])
    yield from _histories(uri, server, name, run_ids[half:])


def _versions(server: Any, uri: str, model: str) -> tuple[FoundVersion, ...]:
    from zero.tracking.client import all_pages

    found = all_pages(server.search_model_versions, f"name = '{model}'")
    with tempfile.TemporaryDirectory(prefix="zero-audit-") as scratch:
        return tuple(
            FoundVersion(
                version=int(each.version),
                tags=dict(each.tags),
                run_id=each.run_id or None,
                sha256=_weights_digest(server, each.source, uri, Path(scratch)),
            )
            for each in sorted(found, key=lambda each: int(each.version))
        )


def _weights_digest(server: Any, source: str, uri: str, scratch: Path) -> str | None:
    """SHA-256 of the weights of a logged model; None if they cannot be downloaded."""
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    from zero.tracking.client import artifact_location

    try:
        location = artifact_location(server, source)
        found = mlflow.artifacts.download_artifacts(
            f"{location}/{WEIGHTS_PATH}", dst_path=str(scratch), tracking_uri=uri
        )
    except (MlflowException, OSError):
        return None
    path = Path(found)
    digest = sha256_file(path)
    path.unlink()
    return digest
