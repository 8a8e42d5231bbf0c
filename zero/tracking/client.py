"""How pages and versions are written to an MLflow server: by explicit ids, whole or finished later, never twice.

A run is found by its tags, and its state is RUNNING until everything in it is written. Its metrics carry its own start
time, so that the server takes a value that is written again for the one it has. No run is ever "active" in a thread.
"""

import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.artifacts
import mlflow.pyfunc
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
)
from mlflow.models import Model, ModelSignature
from mlflow.types import Schema, TensorSpec

from zero.errors import LineageError, ServerError, StorageError
from zero.storage.files import checked_path, link_or_copy, write_atomic
from zero.tracking.metrics import Point, TrainingData
from zero.tracking.pages import Page, Version
from zero.tracking.server import unless

MODEL_SOURCE = "models:/"
MATCHES = "matches of players"
"""Experiment of the matches; no lineage can have such a name."""
PARENT_TAG = "mlflow.parentRunId"
OUR_TAGS = "zero."
"""How the tags begin by which a run is known as written here."""
FINISHED = "FINISHED"
METRICS_A_CALL = 1000
PARAMS_A_CALL = 100
"""Both are limits of the server."""
VIEW = "workflowType=machine_learning"
"""Without it a new browser opens MLflow's pages for language models around ours."""
PLAYER_CODE = Path(__file__).with_name("player.py")


class Notebook:
    """The pages of one lineage on one MLflow server."""

    def __init__(self, client: Any, uri: str, lineage: str, experiment_id: str, recorded_ms: int | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.lineage = lineage
        self.experiment_id = experiment_id
        self.model = f"zero-{lineage}"
        self._client = client
        self._recorded_ms = recorded_ms  # time of what is being written; None: the clock's

    def open_run(self, page: Page, parent_id: str | None = None) -> Any:
        """The run of a page, as it is on the server; an empty one is made where there is none.

        Raises:
          LineageError: the server has that run of another history of the lineage.
        """
        run = next(iter(self._runs(page.key)), None)
        if run is None:
            tags = page.key | page.tags | ({PARENT_TAG: parent_id} if parent_id else {})
            return self._create_run(page.name, tags, page.seconds)
        if run.data.tags.get("zero.ledger") != page.tags.get("zero.ledger"):
            raise LineageError(
                f"MLflow at {self.uri} has another history of {page.tags['zero.tag']} (run {run.info.run_id}), of a "
                f"lineage of the same name; delete all runs of experiment {self.lineage} and the model {self.model} "
                "there, or start this lineage under another name"
            )
        if parent_id and run.data.tags.get(PARENT_TAG) != parent_id:
            self._client.set_tag(run.info.run_id, PARENT_TAG, parent_id)  # the parent was deleted and written again
        return run

    def fill_run(self, run: Any, page: Page) -> None:
        """Writes what the run lacks, then marks it finished."""
        run_id = run.info.run_id
        if run.info.status == FINISHED:
            return
        missing = [Param(name, value) for name, value in page.params.items() if name not in run.data.params]
        for start in range(0, len(missing), PARAMS_A_CALL):
            self._client.log_batch(run_id, params=missing[start : start + PARAMS_A_CALL])
        self._log_points(run_id, page.points, run.info.start_time)
        if page.data is not None:
            self._client.log_inputs(run_id, datasets=[_dataset_input(page.data)])
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            for name, content in page.files.items():
                write_atomic(Path(scratch) / name, content)
                self._client.log_artifact(run_id, f"{scratch}/{name}", str(Path(name).parent).lstrip(".") or None)
        self._client.set_terminated(run_id, FINISHED, self._recorded_ms)

    def add_to_ladder(self, key: dict[str, str], points: list[Point], timestamp: int) -> None:
        """Adds a generation's points to the ladder, once."""
        run = next(iter(self._runs(key)), None)
        if run is None:
            note = "One point a generation: the step is the generation. The record is the ledger in git."
            tags = key | {"mlflow.note.content": note}
            run = self._create_run("ladder", tags)
        history = self._client.get_metric_history(run.info.run_id, points[0].name)
        if all(metric.step != points[0].step for metric in history):
            self._log_points(run.info.run_id, points, timestamp)
        if run.info.status != FINISHED:
            self._client.set_terminated(run.info.run_id, FINISHED, self._recorded_ms)

    def finished_runs(self, key: dict[str, str]) -> list[Any]:
        """All finished runs with those tags."""
        return [run for run in self._runs(key) if run.info.status == FINISHED]

    def delete_others(self, key: dict[str, str], run_id: str) -> None:
        """Deletes the runs with those tags, finished or not, but for that one."""
        for run in list(self._runs(key)):
            if run.info.run_id != run_id:
                self._client.delete_run(run.info.run_id)

    def register(self, version: Version, run_id: str | None) -> int:
        """Number of the version of that network, which is registered where it is not there yet.

        Args:
          version: The network.
          run_id: The run that it is shown as a result of; None where that run is not being written.

        Raises:
          LineageError: the server has another network for that generation.
          StorageError: the weights are missing or altered.
        """
        wanted = f"name = '{self.model}' and tags.generation = '{version.generation}'"
        found = sorted(self._client.search_model_versions(wanted), key=lambda each: int(each.version))
        others = [each.version for each in found if each.tags.get("sha256") != version.weights.sha256]
        if others:
            raise LineageError(
                f"MLflow at {self.uri} has another network for {version.tags['git_tag']}: version {others[0]} of "
                f"{self.model}; delete that model there, or start this lineage under another name"
            )
        registered = found[0] if found else self._register_new(version, run_id)
        model_id = registered.source.removeprefix(MODEL_SOURCE)
        if run_id is not None and model_id not in self._outputs(run_id):
            self._client.log_outputs(run_id, [LoggedModelOutput(model_id, step=version.generation)])
        self.point_alias(version.alias, int(registered.version))
        return int(registered.version)

    def point_alias(self, alias: str, version: int) -> None:
        """Points an alias at a version; nothing is written where it does already."""
        if self.aliases().get(alias) != version:
            self._client.set_registered_model_alias(self.model, alias, str(version))

    def aliases(self) -> dict[str, int]:
        """Version of every alias."""
        return {alias: int(version) for alias, version in self._client.get_registered_model(self.model).aliases.items()}

    def generation_of(self, alias: str) -> int | None:
        """Generation of the version that an alias points at."""
        version = self.aliases().get(alias)
        if version is None:
            return None
        return int(self._client.get_model_version(self.model, str(version)).tags["generation"])

    def run_url(self, run_id: str) -> str:
        """Page of a run."""
        return f"{self.uri}/#/experiments/{self.experiment_id}/runs/{run_id}?{VIEW}"

    def version_url(self, alias: str) -> str | None:
        """Page of the version that an alias points at; None where there is no such alias."""
        version = self.aliases().get(alias)
        return f"{self.uri}/#/models/{self.model}/versions/{version}?{VIEW}" if version else None

    def erase(self) -> None:
        """Deletes the lineage's runs, saved models and registered model; other runs of the experiment stay.

        Runs first: what a killed call leaves is then written again with them, and not taken for whole.
        """
        for run in list(self._runs({})):
            if any(name.startswith(OUR_TAGS) for name in run.data.tags):
                self._client.delete_run(run.info.run_id)
        models: list[Any] = []
        token: str | None = None
        while True:
            page = self._client.search_logged_models([self.experiment_id], page_token=token)
            models += page
            token = page.token
            if not token:
                break
        for model in models:
            if "git_tag" in model.tags:
                self._client.delete_logged_model(model.model_id)
        with unless("RESOURCE_DOES_NOT_EXIST"):
            self._client.delete_registered_model(self.model)

    def _create_run(self, name: str, tags: dict[str, str], seconds: float = 0.0) -> Any:
        ends = int(1000 * time.time()) if self._recorded_ms is None else self._recorded_ms
        return self._client.create_run(self.experiment_id, ends - int(1000 * seconds), tags, name)

    def _runs(self, key: dict[str, str]) -> Iterator[Any]:
        """Runs with those tags, oldest first."""
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in key.items())
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [self.experiment_id], wanted, order_by=["attributes.start_time ASC"], page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def _log_points(self, run_id: str, points: list[Point], timestamp: int) -> None:
        metrics = [Metric(point.name, point.value, timestamp, point.step) for point in points]
        for start in range(0, len(metrics), METRICS_A_CALL):
            self._client.log_batch(run_id, metrics=metrics[start : start + METRICS_A_CALL])

    def _outputs(self, run_id: str) -> list[str]:
        outputs = self._client.get_run(run_id).outputs
        return [each.model_id for each in outputs.model_outputs] if outputs else []

    def _register_new(self, version: Version, run_id: str | None) -> Any:
        model_id = self._saved_model(version, run_id)
        return self._client.create_model_version(
            self.model,
            source=f"{MODEL_SOURCE}{model_id}",
            run_id=run_id,
            tags=version.tags,
            description=version.note,
            await_creation_for=0,
            model_id=model_id,
        )

    def _saved_model(self, version: Version, run_id: str | None) -> str:
        """Id of the uploaded model; what a killed upload left behind is removed."""
        same = f"tags.generation = '{version.generation}' AND tags.sha256 = '{version.weights.sha256}'"
        for model in self._client.search_logged_models([self.experiment_id], filter_string=same):
            if model.status == LoggedModelStatus.READY:
                return str(model.model_id)
            self._client.delete_logged_model(model.model_id)
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
        return str(model.model_id)


def find_notebook(uri: str, lineage: str, deleted: bool = False) -> Notebook | None:
    """The notebook of a lineage; None where nothing was written. `deleted`: also one in the bin, which is restored."""
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.get_experiment_by_name(lineage)
    if experiment is None:
        return None
    if experiment.lifecycle_stage != "active":
        if not deleted:
            return None
        client.restore_experiment(experiment.experiment_id)
    return Notebook(client, uri, lineage, str(experiment.experiment_id))


def open_notebook(uri: str, lineage: str, recorded_ms: int | None = None) -> Notebook:
    """The notebook of a lineage; its experiment and its registered model are made where they are missing.

    Args:
      uri: Address of the server.
      lineage: Name of the lineage.
      recorded_ms: Time that the runs bear which are made through it, milliseconds since 1970; None: the clock's.
    """
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    tags = {
        "zero.lineage": lineage,
        "mlflow.experimentKind": "custom_model_development",  # else its pages are those for language models
        "mlflow.note.content": f"Lineage `{lineage}`: a run a generation with its stages inside, and the `ladder` over "
        f"all of them. The record is the git branch `lineage/{lineage}`; `zero track {lineage}` writes from it what is "
        "missing here.",
    }
    notebook = Notebook(client, uri, lineage, _experiment_id(client, lineage, tags), recorded_ms)
    with unless("RESOURCE_ALREADY_EXISTS"):
        note = f"The players of lineage `{lineage}`, one a generation; docs/mlflow.md says how to load one."
        client.create_registered_model(notebook.model, tags={"zero.lineage": lineage}, description=note)
    return notebook


def open_matches(uri: str) -> Notebook:
    """The notebook of the matches between players of any kind; its experiment is made where it is missing."""
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    tags = {
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.note.content": "Matches of `zero match` and `zero elo`, a run a match; the first player's score.",
    }
    return Notebook(client, uri, MATCHES, _experiment_id(client, MATCHES, tags))


def _experiment_id(client: MlflowClient, name: str, tags: dict[str, str]) -> str:
    """Id of an experiment, which is made or restored where it has to be."""
    with unless("RESOURCE_ALREADY_EXISTS"):
        client.create_experiment(name, tags=tags)
    experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage != "active":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


def model_weights(uri: str, name: str, alias: str | None, version: str | None) -> bytes | None:
    """The weight file of a version in the catalogue; None where there is no such version."""
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    found = None
    with unless("RESOURCE_DOES_NOT_EXIST"), unless("INVALID_PARAMETER_VALUE"):
        found = client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, version)
    if found is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        mlflow.artifacts.download_artifacts(artifact_uri=found.source, dst_path=folder, tracking_uri=uri)
        path = next(Path(folder).rglob("*.safetensors"), None)
        if path is None:
            raise ServerError(
                f"MLflow at {uri}: version {found.version} of {name} has no weight file; name another one"
            )
        return path.read_bytes()


def _dataset_input(data: TrainingData) -> Any:
    source = json.dumps({"uri": data.source}, sort_keys=True)
    profile = json.dumps(data.profile, sort_keys=True)
    dataset = Dataset(data.name, data.digest, source_type="dvc", source=source, schema=None, profile=profile)
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "training")])


def _checked_weights(version: Version, folder: Path) -> Path:
    """The version's weight file under its own name in `folder`: in DVC's cache a file is named by its digest."""
    if version.weights_path is None:
        raise StorageError(f"the weights of {version.tags['git_tag']} are not on this machine; fetch them: `dvc pull`")
    link_or_copy(version.weights_path, folder / version.weights.path)
    return checked_path(version.weights, folder)


def _save_player(path: Path, weights: Path, version: Version, model: Any) -> None:
    """Writes the model folder: code, weights, signature, requirements, configuration."""
    planes = TensorSpec(np.dtype(np.float32), (-1, *version.input_shape))
    prior = TensorSpec(np.dtype(np.float32), (-1, version.num_actions), "prior")
    value = TensorSpec(np.dtype(np.float32), (-1,), "value")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*input example")  # one would have to be predicted, with PyTorch
        mlflow.pyfunc.save_model(
            path=str(path),
            python_model=str(PLAYER_CODE),
            artifacts={"weights": str(weights)},
            signature=ModelSignature(inputs=Schema([planes]), outputs=Schema([prior, value])),
            pip_requirements=version.requirements,
            model_config=version.config,
            mlflow_model=model,
        )
