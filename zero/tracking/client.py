"""Writes runs and model versions to an MLflow server: by explicit ids, complete or deleted and written again.

A run is identified by its tags and is RUNNING until everything in it is written. A write that was interrupted leaves a
RUNNING run, which the next write deletes. No run is ever "active" in a thread. Errors of the library become one line.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlflow.artifacts
import mlflow.pyfunc
import numpy as np
import requests
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, LoggedModelStatus, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import Schema, TensorSpec

from zero.errors import LineageError, ServerError, StorageError
from zero.storage.files import checked_path, link_or_copy, write_atomic
from zero.tracking.cards import EXPERIMENT_ID, RUN_ID
from zero.tracking.pages import NOTE_TAG, MetricPoint, ModelVersion, Page, TrainingData
from zero.tracking.views import VIEW_TAG, saved_view

MATCHES = "matches of players"
"""Experiment of the matches; not a valid name of a lineage."""
MODEL_SOURCE = "models:/"
PARENT_TAG = "mlflow.parentRunId"
OWN_PREFIX = "zero."
"""Prefix of the tags that only runs of this program have."""
FINISHED = "FINISHED"
PROBE_SECONDS = 15
"""How long a server may take to answer the first request."""
VIEW = "workflowType=machine_learning"
"""Without it, a new browser shows MLflow's pages for language models."""
PLAYER_CODE = Path(__file__).with_name("player.py")


class Experiment:
    """The runs and the registered model of one lineage on one MLflow server, or the runs of the matches."""

    def __init__(self, client: Any, uri: str, name: str, experiment_id: str, recorded_ms: int | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.name = name
        self.experiment_id = experiment_id
        self.model = f"zero-{name}"
        self._client = client
        self._recorded_ms = recorded_ms  # end time of new runs; None: the current time

    def create_run(self, page: Page, parent_id: str | None = None) -> Any:
        """Creates the run of a page, without content."""
        ends = int(1000 * time.time()) if self._recorded_ms is None else self._recorded_ms
        tags = page.key | page.tags | ({PARENT_TAG: parent_id} if parent_id else {})
        run = self._client.create_run(self.experiment_id, ends - int(1000 * page.seconds), tags, page.name)
        note = page.tags.get(NOTE_TAG, "")
        linked = note.replace(RUN_ID, run.info.run_id).replace(EXPERIMENT_ID, self.experiment_id)
        if linked != note:
            self._client.set_tag(run.info.run_id, NOTE_TAG, linked)
        return run

    def fill_run(self, run: Any, page: Page) -> None:
        """Writes the content of a new run and marks it finished."""
        run_id = run.info.run_id
        self._client.log_batch(run_id, params=[Param(name, value) for name, value in page.params.items()])
        self.log_points(run, page.points, run.info.start_time)
        if page.data is not None:
            self._client.log_inputs(run_id, datasets=[_dataset_input(page.data)])
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            for name, content in page.files.items():
                write_atomic(Path(scratch) / name, content)
            self._client.log_artifacts(run_id, scratch)
        self.finish(run)

    def log_points(self, run: Any, points: list[MetricPoint], timestamp: int) -> None:
        """Adds metrics to a run."""
        # One time for all points, that of the run, so that runs that are written again are equal.
        metrics = [Metric(point.name, point.value, timestamp, point.step) for point in points]
        self._client.log_batch(run.info.run_id, metrics=metrics)

    def finish(self, run: Any) -> None:
        """Marks a run finished."""
        self._client.set_terminated(run.info.run_id, FINISHED, self._recorded_ms)

    def write_once(self, page: Page) -> Any:
        """The finished run of a page, which is written unless it exists."""
        finished = self.finished_runs(page.key)
        if finished:
            return finished[0]
        self.delete_runs(page.key)
        run = self.create_run(page)
        self.fill_run(run, page)
        return run

    def runs(self, key: Mapping[str, str]) -> Iterator[Any]:
        """Runs with these tags, oldest first."""
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in key.items())
        return all_pages(self._client.search_runs, [self.experiment_id], wanted, order_by=["attributes.start_time ASC"])

    def finished_runs(self, key: Mapping[str, str]) -> list[Any]:
        """All finished runs with these tags."""
        return [run for run in self.runs(key) if run.info.status == FINISHED]

    def delete_runs(self, key: Mapping[str, str], keep: str | None = None) -> None:
        """Deletes the runs of this program with these tags, except the run with the id `keep`."""
        # A list first: a deletion would shift the pages that were not read yet.
        for run in list(self.runs(key)):
            if run.info.run_id != keep and any(name.startswith(OWN_PREFIX) for name in run.data.tags):
                self._client.delete_run(run.info.run_id)

    def history(self, run: Any, name: str) -> dict[int, float]:
        """The values of a metric by step."""
        return {point.step: point.value for point in self._client.get_metric_history(run.info.run_id, name)}

    def create_model(self) -> None:
        """Creates the registered model of the lineage, unless it exists."""
        note = f"The players of lineage `{self.name}`, one per generation; docs/mlflow.md explains how to load one."
        with unless("RESOURCE_ALREADY_EXISTS"):
            self._client.create_registered_model(self.model, tags={"zero.lineage": self.name}, description=note)

    def register(self, version: ModelVersion, run_id: str | None) -> int:
        """The number of the model version of a network, which is registered unless it exists.

        Args:
          version: the network.
          run_id: the new run that shows the network as its output; None without one.

        Raises:
          LineageError: the server has another network for that generation.
          StorageError: the weights are missing or corrupt.
        """
        wanted = f"name = '{self.model}' and tags.generation = '{version.generation}'"
        found = sorted(self._client.search_model_versions(wanted), key=lambda each: int(each.version))
        others = [each.version for each in found if each.tags.get("sha256") != version.weights.sha256]
        if others:
            raise LineageError(
                f"MLflow at {self.uri} has another network for {version.tags['git_tag']} (version {others[0]} of "
                f"{self.model}); delete that model there, or give this lineage another name"
            )
        registered = found[0] if found else self._register_new(version, run_id)
        if run_id is not None:
            model_id = registered.source.removeprefix(MODEL_SOURCE)
            self._client.log_outputs(run_id, [LoggedModelOutput(model_id, step=version.generation)])
        self.point_alias(version.alias, int(registered.version))
        return int(registered.version)

    def point_alias(self, alias: str, version: int) -> None:
        """Points an alias at a version."""
        self._client.set_registered_model_alias(self.model, alias, str(version))

    def run_url(self, run: Any) -> str:
        """Address of a run."""
        return f"{self.uri}/#/experiments/{self.experiment_id}/runs/{run.info.run_id}?{VIEW}"

    def delete_models(self) -> None:
        """Deletes the logged models and the registered model of the lineage."""
        self._delete_logged_models(None)
        with unless("RESOURCE_DOES_NOT_EXIST"):
            self._client.delete_registered_model(self.model)

    def _delete_logged_models(self, wanted: str | None) -> None:
        """Deletes the logged models of this program that a filter selects; None selects all."""
        for model in list(all_pages(self._client.search_logged_models, [self.experiment_id], filter_string=wanted)):
            if "git_tag" in model.tags:
                self._client.delete_logged_model(model.model_id)

    def _register_new(self, version: ModelVersion, run_id: str | None) -> Any:
        # A logged model without a version is left from an interrupted call: it is deleted and uploaded again.
        self._delete_logged_models(f"tags.generation = '{version.generation}'")
        model = self._client.create_logged_model(
            self.experiment_id, version.alias, run_id, tags=version.tags, model_type="AlphaGo Zero player"
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            _save_player(
                path, _checked_weights(version, Path(folder)), version, Model(model_id=model.model_id, run_id=run_id)
            )
            self._client.log_model_artifacts(model.model_id, str(path))
        self._client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        return self._client.create_model_version(
            self.model,
            source=f"{MODEL_SOURCE}{model.model_id}",
            run_id=run_id,
            tags=version.tags,
            description=version.note,
            # A version is ready at once here; by default the client polls for up to five minutes.
            await_creation_for=0,
            model_id=model.model_id,
        )


def find_experiment(uri: str, lineage: str) -> Experiment | None:
    """The experiment of a lineage; None if it does not exist or is deleted."""
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.get_experiment_by_name(lineage)
    if experiment is None or experiment.lifecycle_stage != "active":
        return None
    return Experiment(client, uri, lineage, str(experiment.experiment_id))


def open_experiment(uri: str, name: str, recorded_ms: int | None = None) -> Experiment:
    """The experiment of a lineage, or of the matches; it is created or restored if necessary.

    Args:
      uri: address of the server.
      name: name of the lineage, or MATCHES.
      recorded_ms: end time of new runs, milliseconds since 1970; None: the current time.
    """
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    tags = {"mlflow.experimentKind": "custom_model_development"}  # else MLflow shows its pages for language models
    if name == MATCHES:
        note = "Matches of `zero match` and `zero elo`, one run per match; scores of the first player."
    else:
        tags |= {"zero.lineage": name, VIEW_TAG: saved_view()}
        note = (
            f"Lineage `{name}`: one run per generation with its stages as child runs, and the `ladder` over all of "
            "them. The menu `Views` has a table of the generations and their charts. The record is the git branch "
            f"`lineage/{name}`; `zero track {name}` writes from it what is missing here."
        )
    with unless("RESOURCE_ALREADY_EXISTS"):
        client.create_experiment(name, tags=tags | {NOTE_TAG: note})
    experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage != "active":
        client.restore_experiment(experiment.experiment_id)
    if VIEW_TAG in tags and experiment.tags.get(VIEW_TAG) != tags[VIEW_TAG]:  # of another version
        client.set_experiment_tag(experiment.experiment_id, VIEW_TAG, tags[VIEW_TAG])
    return Experiment(client, uri, name, str(experiment.experiment_id), recorded_ms)


def model_weights(uri: str, name: str, alias: str | None, version: str | None) -> bytes:
    """The weight file of a model version, given by its alias or its number.

    Raises:
      LineageError: the version does not exist.
      ServerError: the version has no weight file.
    """
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    found = None
    # MLflow reports a missing alias as an invalid parameter, and a missing model or version as not existing.
    with unless("RESOURCE_DOES_NOT_EXIST"), unless("INVALID_PARAMETER_VALUE"):
        found = client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, version)
    if found is None:
        wanted = f"alias {alias}" if alias else f"version {version}"
        raise LineageError(f"MLflow at {uri} has no model {name} with {wanted}; its page `Models` lists the models")
    with tempfile.TemporaryDirectory() as folder:
        location = artifact_location(client, found.source)
        mlflow.artifacts.download_artifacts(artifact_uri=location, dst_path=folder, tracking_uri=uri)
        path = next(Path(folder).rglob("*.safetensors"), None)
        if path is None:
            raise ServerError(
                f"MLflow at {uri}: version {found.version} of {name} has no weight file; give another version"
            )
        return path.read_bytes()


def artifact_location(client: Any, source: str) -> str:
    """Where the files of a model version are: for the source `models:/m-...` MLflow would open a local database."""
    model = source.removeprefix("models:/")
    return str(client.get_logged_model(model).artifact_location) if model != source else source


@contextlib.contextmanager
def answering(uri: str) -> Iterator[None]:
    """Turns the errors of the MLflow library into one line.

    Raises:
      ServerError: the server does not answer, or rejected a call.
    """
    # A probe first: its error is short, and the library would repeat a request to a hanging server for a minute.
    try:
        answer = requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS)
    except requests.RequestException as error:
        reason = f"does not answer ({type(error).__name__})"
    else:
        is_healthy = answer.ok and answer.text.strip() == "OK"
        reason = "" if is_healthy else f"is not a healthy MLflow server (HTTP {answer.status_code} for /health)"
    if reason:
        raise ServerError(f"MLflow at {uri} {reason}; start the servers with `make up`, or correct MLFLOW_TRACKING_URI")
    try:
        yield
    except (MlflowException, requests.RequestException) as error:
        reason = " ".join(str(error).split())[:300]
        raise ServerError(f"MLflow at {uri} failed: {reason}; check that it runs (`make up`) and repeat") from error


@contextlib.contextmanager
def unless(code: str) -> Iterator[None]:
    """Ignores the server's error `code`."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def all_pages(search: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
    """The results of all pages of a search, which is a method of `MlflowClient`."""
    token: str | None = None
    while True:
        page = search(*arguments, **options, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _dataset_input(data: TrainingData) -> Any:
    source = json.dumps({"uri": data.source}, sort_keys=True)
    profile = json.dumps(data.profile, sort_keys=True)
    dataset = Dataset(data.name, data.digest, source_type="dvc", source=source, schema=None, profile=profile)
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "training")])


def _checked_weights(version: ModelVersion, folder: Path) -> Path:
    """The version's weight file under its own name in `folder`: in DVC's cache a file is named by its digest."""
    if version.weights_path is None:
        raise StorageError(f"the weights of {version.tags['git_tag']} are not on this machine; fetch them: `dvc pull`")
    link_or_copy(version.weights_path, folder / version.weights.path)
    return checked_path(version.weights, folder)


def _save_player(path: Path, weights: Path, version: ModelVersion, model: Any) -> None:
    """Writes the model folder: code, weights, signature, requirements, configuration."""
    planes = TensorSpec(np.dtype(np.float32), (-1, *version.input_shape))
    prior = TensorSpec(np.dtype(np.float32), (-1, version.num_actions), "prior")
    value = TensorSpec(np.dtype(np.float32), (-1,), "value")
    example = np.zeros((1, *version.input_shape), np.float32)
    example[:, -1] = 1.0  # the empty board, Black to move
    mlflow.pyfunc.save_model(
        path=str(path),
        python_model=str(PLAYER_CODE),
        artifacts={"weights": str(weights)},
        signature=ModelSignature(inputs=Schema([planes]), outputs=Schema([prior, value])),
        pip_requirements=version.requirements,
        model_config=version.config,
        input_example=example,
        mlflow_model=model,
    )
