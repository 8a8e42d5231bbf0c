"""Dask by the commands of compose.yaml, run here: the scheduler and a worker, with certificates."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from distributed import Client
from distributed.security import Security

from flows.workers import STAGES, code_resource
from infra.certificates import make_certificates
from tests.end_to_end.project import SOURCE_DIR
from tests.infra.compose import merged
from tests.infra.servers import free_port
from zero.stages.spec import code_digest, lock_file_digest

HOST = "127.0.0.1"


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
        python, *words = service["command"]
        assert python == "python"  # of the image
        command = [sys.executable, *map(here, words)]
        return subprocess.Popen(command, cwd=SOURCE_DIR, env=os.environ | environment, stdout=log, stderr=log)


def client_security(certificates: Path) -> Security:
    """What a client knows."""
    names = {"tls_client_cert": "client.pem", "tls_client_key": "client-key.pem", "tls_ca_file": "ca.pem"}
    return Security(require_encryption=True, **{key: str(certificates / name) for key, name in names.items()})


def answers(url: str, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 240.0) -> bytes:
    """The first answer of a process that starts; its log explains a failure."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bytes(answer.read())
        except OSError as error:
            late = time.monotonic() > deadline
            assert not late and process.poll() is None, f"{url}: {error}\n{log.read_text()}"
        time.sleep(0.2)


@contextmanager
def started(certificates: Path, folder: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Address of a scheduler, and the processes: the scheduler and its worker."""
    ports = {port: str(free_port()) for port in ("8786", "8787", "8788")}
    with ExitStack() as ends:
        running = []
        for name, port in (("scheduler", "8787"), ("worker", "8788")):
            process = start(name, folder, certificates, {"//scheduler:": f"//{HOST}:"} | ports)
            ends.callback(process.wait)
            ends.callback(process.kill)
            running.append(process)
            assert answers(f"http://{HOST}:{ports[port]}/health", process, folder / f"{name}.log") == b"ok"
        yield f"tls://{HOST}:{ports['8786']}", running


def test_scheduler_and_worker_work_together_with_certificates(certificates: Path, tmp_path: Path) -> None:
    codes = {code_resource(stage, code_digest(stage), lock_file_digest()): 1 for stage in STAGES}
    with started(certificates, tmp_path) as (address, (scheduler, worker)):
        with Client(address, security=client_security(certificates), timeout=60) as client:
            # The worker announces its code, so that it gets this task.
            assert client.submit(sum, [1, 2], resources=codes).result(timeout=60) == 3
            (found,) = client.scheduler_info()["workers"].values()
            assert (found["resources"], found["nthreads"]) == (codes, 1)

        # A certificate of another authority is refused, also if its owner knows ours.
        make_certificates(foreign := tmp_path / "foreign")
        with pytest.raises(OSError):
            Client(address, security=client_security(foreign), timeout=5)
        (foreign / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
        with pytest.raises(OSError):
            Client(address, security=client_security(foreign), timeout=5)

        # The worker ends with its scheduler, so that Compose starts it again.
        children = psutil.Process(worker.pid).children(recursive=True)
        scheduler.kill()
        worker.wait(60)
        assert not psutil.wait_procs(children, timeout=30)[1]
        assert merged()["services"]["worker"]["restart"] == "unless-stopped"
