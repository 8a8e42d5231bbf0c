"""Dask by the commands of compose.yaml, run here: the scheduler and a worker, with certificates."""

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from distributed import Client
from distributed.security import Security

from infra.certificates import make_certificates
from tests.end_to_end.project import SOURCE_DIR
from tests.infra.compose import merged
from tests.infra.servers import free_port

HOST = "127.0.0.1"


class Started(NamedTuple):
    """A scheduler and its worker."""

    address: str
    scheduler: "subprocess.Popen[bytes]"
    worker: "subprocess.Popen[bytes]"


def start(name: str, folder: Path, certificates: Path, places: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Starts a service of compose.yaml in other places than a container has, and without Prefect and S3."""
    service = merged()["services"][name]
    places = {"/run/secrets/dask-": f"{certificates}/", "/tmp/dask": str(folder / "local"), "0.0.0.0": HOST} | places

    def here(text: str) -> str:
        for old, new in places.items():
            text = text.replace(old, new)
        return text

    environment = {key: here(value) for key, value in service["environment"].items() if key.startswith("DASK_")}
    with (folder / f"{name}.log").open("wb") as log:
        command = [here(word) for word in service["command"]]
        return subprocess.Popen(command, cwd=SOURCE_DIR, env=os.environ | environment, stdout=log, stderr=log)


def client_security(certificates: Path) -> Security:
    """What a client knows."""
    names = {"tls_client_cert": "client.pem", "tls_client_key": "client-key.pem", "tls_ca_file": "ca.pem"}
    return Security(require_encryption=True, **{key: str(certificates / name) for key, name in names.items()})


def answers(url: str, seconds: float = 90.0) -> bytes:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bytes(answer.read())
        except OSError as error:
            assert time.monotonic() < deadline, f"{url}: {error}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def started(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("dask")
    ports = {port: str(free_port()) for port in ("8786", "8787", "8788")}
    with ExitStack() as ends:
        running = []
        for name in ("scheduler", "worker"):
            process = start(name, folder, certificates, {"//scheduler:": f"//{HOST}:"} | ports)
            ends.callback(process.wait)
            ends.callback(process.kill)
            running.append(process)
        for port in ("8787", "8788"):
            assert answers(f"http://{HOST}:{ports[port]}/health") == b"ok"
        yield Started(f"tls://{HOST}:{ports['8786']}", *running)


def test_a_worker_announces_the_code_that_it_has(started: Started, certificates: Path) -> None:
    from flows.workers import STAGES, code_resource
    from zero.shards.spec import code_digest, lock_file_digest

    with Client(started.address, security=client_security(certificates)) as client:
        (worker,) = client.scheduler_info()["workers"].values()
        codes = {code_resource(stage, code_digest(stage), lock_file_digest()): 1 for stage in STAGES}
        assert worker["resources"] == codes
        assert worker["nthreads"] == 1
        assert client.submit(sum, [1, 2], resources=codes).result(timeout=60) == 3


def test_a_certificate_of_another_authority_is_refused(started: Started, tmp_path: Path, certificates: Path) -> None:
    make_certificates(tmp_path)
    with pytest.raises(OSError):
        Client(started.address, security=client_security(tmp_path), timeout=5)
    (tmp_path / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())  # which anybody may know
    with pytest.raises(OSError):
        Client(started.address, security=client_security(tmp_path), timeout=5)


def test_a_worker_ends_with_its_scheduler_so_that_compose_starts_it_again(started: Started) -> None:
    children = psutil.Process(started.worker.pid).children(recursive=True)
    started.scheduler.kill()
    assert started.worker.wait(60) is not None
    assert not psutil.wait_procs(children, timeout=30)[1]
    assert merged()["services"]["worker"]["restart"] == "unless-stopped"
