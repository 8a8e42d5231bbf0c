"""Servers that do not answer or are not healthy, and the MLflow library."""

import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.made_generations import recorded_in
from zero.errors import ServerError
from zero.tracking.backfill import track_generation, tracked_generations

PROJECT_DIR = Path(__file__).resolve().parents[2]


@pytest.fixture
def dead_uri():
    """Address at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_dead_server_is_reported_soon(dead_uri, lineage):
    start = time.monotonic()
    with pytest.raises(ServerError, match=f"{dead_uri} does not answer .*`make up`"):
        track_generation(recorded_in(lineage.folder(0)), dead_uri)
    assert time.monotonic() - start < 15


def test_a_hanging_server_is_reported(lineage, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, as in `open_client`
        from zero.tracking import client
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerError, match=r"does not answer \(ReadTimeout\)"):
            tracked_generations(lineage.name, uri)


def test_an_address_without_http_is_rejected(lineage):
    with pytest.raises(ServerError, match=r"'sqlite:///mlflow.db' is not an http:// address"):
        track_generation(recorded_in(lineage.folder(0)), "sqlite:///mlflow.db")


@pytest.mark.parametrize(("health", "message"), [(404, "is not a healthy MLflow"), (200, "MLflow at .* failed: .*500")])
def test_an_unhealthy_server_is_reported(lineage, monkeypatch, health, message):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(health if self.path == "/health" else 500)
            self.end_headers()
            self.wfile.write(b"OK")

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with HTTPServer(("127.0.0.1", 0), Handler) as stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        try:
            with pytest.raises(ServerError, match=f"{message}.*make up"):
                track_generation(recorded_in(lineage.folder(0)), f"http://127.0.0.1:{stub.server_port}")
        finally:
            stub.shutdown()
            thread.join()


def test_the_library_is_imported_only_when_a_server_is_used(tmp_path, dead_uri):
    code = f"""
import sys
import zero.tracking.backfill
assert not any(name.partition(".")[0] in ("mlflow", "torch") for name in sys.modules)
try:
    zero.tracking.backfill.tracked_generations("go9", "{dead_uri}")
except zero.errors.ServerError as error:
    import mlflow.telemetry
    assert mlflow.telemetry.get_telemetry_client() is None
    print(error)
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=env | {"PYTHONPATH": str(PROJECT_DIR)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
