"""A cluster that tests share, and its command line."""

import base64
import http.client
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from infra.processes import Home, LocalError
from tests.cluster import postgres
from tests.cluster.parts import Cluster, program, read_cluster
from tests.end_to_end.project import SOURCE_DIR, run


def is_installed() -> bool:
    """True if the programs of the cluster are installed."""
    try:
        return bool(program("weed")) and postgres.is_installed()
    except LocalError:
        return False


needs_cluster = pytest.mark.skipif(not is_installed(), reason="weed or initdb is not installed")


class Answer(NamedTuple):
    """What a server said."""

    status: int
    text: str


class Stack(NamedTuple):
    """A cluster that runs, and its command line."""

    cluster: Cluster

    def command(self, *words: str, check: bool = True) -> str:
        """Output of `python -m tests.cluster`."""
        home = str(self.cluster.home.state.parent.parent)
        return run([sys.executable, "-m", "tests.cluster", *words], SOURCE_DIR, check=check, ZERO_HOME=home).stdout

    def ask(
        self, server: str, path: str, user: str = "", method: str = "GET", body: bytes | None = None, host: str = ""
    ) -> Answer:
        """Asks a server; `user` is "name:password", and the path is sent as it is."""
        port = self.cluster.ports[server]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Host": host or f"127.0.0.1:{port}", "Content-Type": "application/json"}
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(errors="replace"))
        finally:
            connection.close()

    def prefect(self, path: str, body: Any = None) -> Any:
        """What Prefect's API says to who knows the password."""
        data = None if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        answer = self.ask("prefect", f"/api{path}", self.cluster.secret("prefect-auth"), method, data)
        assert answer.status < 300, answer
        return json.loads(answer.text) if answer.text else None

    def process(self, name: str) -> psutil.Process:
        """The leading process of a part."""
        record = self.cluster.home.record(name)
        assert record is not None, name
        return psutil.Process(record.pid)


@contextmanager
def cluster_stack(num_workers: int) -> Iterator[Stack]:
    """A cluster in a folder that goes away; nothing of it may run afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="zero-cluster-"))  # not pytest's: PostgreSQL's user must be able to enter
    folder.chmod(0o755)
    home = Home(folder / ".zero/native-cluster")
    starter = Stack(Cluster(home, {}, num_workers))
    try:
        starter.command("up", str(num_workers))
        cluster = read_cluster(home)
        assert cluster is not None
        yield Stack(cluster)
    finally:
        starter.command("down", check=False)
        left = [process for process in psutil.process_iter() if _is_of(process, folder)]
        for process in left:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"`down` left {left}"


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        words = " ".join(process.cmdline())
        return str(folder) in words or process.environ().get("ZERO_HOME") == str(folder)
    except psutil.Error:
        return False
