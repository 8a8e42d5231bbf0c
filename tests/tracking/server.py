"""A real MLflow server for tests with its own port and folder, and functions that read a lineage from it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

START_SECONDS = 120


class Server:
    """An MLflow server in its own process group."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "mlflow", "server", "--app-name", "zero", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        command += ["--artifacts-destination", f"{folder}/artifacts"]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=os.environ | quiet, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        try:
            while not self._is_healthy():
                assert self.process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline, (folder / "server.log").read_text()
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.read() == b"OK")
        except OSError:
            return False

    def client(self) -> MlflowClient:
        return MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def runs_of(client: MlflowClient, name: str) -> dict[tuple[str, str], Run]:
    """Runs of a lineage by (generation, stage); the ladder is ("", "ladder")."""
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id])
    found = {(r.data.tags.get("zero.generation", ""), r.data.tags["zero.stage"]): r for r in runs}
    assert len(found) == len(runs), "two runs of one stage"
    return found


def history(client: MlflowClient, run: Run, name: str) -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))


def aliases(client: MlflowClient, name: str) -> dict[str, int]:
    return {alias: int(v) for alias, v in client.get_registered_model(f"zero-{name}").aliases.items()}


def everything(client: MlflowClient, name: str) -> Any:
    """Everything that the server has of a lineage, except ids and times."""
    runs = {
        key: (
            run.info.run_name,
            run.info.status,
            sorted(run.data.params),
            sorted(run.data.tags),
            {metric: history(client, run, metric) for metric in run.data.metrics},
            sorted(file.path for file in client.list_artifacts(run.info.run_id)),
            [(data.dataset.digest, [tag.value for tag in data.tags]) for data in run.inputs.dataset_inputs],
            len(client.get_run(run.info.run_id).outputs.model_outputs),
        )
        for key, run in runs_of(client, name).items()
    }
    versions = [(int(v.version), v.tags, v.status) for v in client.search_model_versions(f"name = 'zero-{name}'")]
    models = client.search_logged_models([client.get_experiment_by_name(name).experiment_id])
    return runs, sorted(versions), aliases(client, name), sorted((model.name, model.status) for model in models)
