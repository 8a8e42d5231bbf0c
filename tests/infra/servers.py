"""Real servers for tests: one Prefect, one MLflow and one worker a session, in a project and on ports of their own."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra.pools import fetch
from tests.end_to_end.lineages import ENDS
from tests.end_to_end.project import make_project, run


class Servers(NamedTuple):
    """What `infra.local up` started."""

    home: Path
    prefect: str
    mlflow: str

    def local(self, *words: str, check: bool = True, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Runs `python -m infra.local` in the project."""
        return run([sys.executable, "-m", "infra.local", *words], self.home, check=check, **environment)

    def typed(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Runs a command as a user types it in the project's folder, with the environment activated."""
        return run([*words], self.home, check=check, DO_NOT_TRACK="true", PREFECT_HOME=str(self.home / "user"))

    def api(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Asks Prefect's API; a server that is busy is asked again."""
        return fetch(f"{self.prefect}/api{path}", body, timeout=60.0)

    def pids(self) -> dict[str, int]:
        """Process numbers of the services."""
        records = (self.home / ".zero/run").glob("*.json")
        return {path.stem: json.loads(path.read_text())["pid"] for path in records}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that answer, stopped after the last test on them; tests that stop them start them again."""
    home = make_project(tmp_path_factory.mktemp("a project"))
    prefect, mlflow = free_port(), free_port()
    made = Servers(home, f"http://127.0.0.1:{prefect}", f"http://127.0.0.1:{mlflow}")
    with contextlib.ExitStack() as stopped:
        stopped.callback(made.local, "down")
        ENDS["servers"] = stopped.close
        made.local("up", ZERO_PREFECT_PORT=str(prefect), ZERO_MLFLOW_PORT=str(mlflow))
        yield made
