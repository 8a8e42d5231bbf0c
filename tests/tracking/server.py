"""A real MLflow server for tests, on a port and in a folder of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

START_SECONDS = 120


class Server:
    """An MLflow server in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
        command += ["--artifacts-destination", f"{folder}/artifacts"]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=os.environ | quiet, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            assert self.process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.1)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.read() == b"OK")
        except OSError:
            return False

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
