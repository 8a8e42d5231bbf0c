"""SeaweedFS by the commands of compose.yaml, run here: the store, and the gateway that workers reach."""

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.cluster.parts import program
from tests.cluster.stack import needs_cluster
from tests.infra.compose import merged
from tests.infra.gateway import UNAUTHENTICATED, Gateway, Stranger, is_refused
from tests.infra.servers import free_port

pytestmark = needs_cluster

HOST = "127.0.0.1"


class Started(NamedTuple):
    """A gateway that runs, with its store."""

    gateway: Gateway
    process: psutil.Process
    ports: set[int]
    """Those that it may listen at: for S3, and for SeaweedFS' own servers."""


@contextmanager
def run_service(name: str, folder: Path, secrets: Path, places: dict[str, str], *options: str) -> Iterator[int]:
    """A service of compose.yaml, with its secrets, in other places than a container has; the number of its process."""
    service = merged()["services"][name]
    (folder / "secrets").mkdir(parents=True)
    for secret in service.get("secrets", []):
        shutil.copy(secrets / secret, folder / "secrets")
    words: list[str] = service["command"]
    for there, here in (places | {"/run/secrets": str(folder / "secrets"), "0.0.0.0": HOST}).items():
        words = [word.replace(there, here) for word in words]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program("weed"), *words, *options], cwd=folder, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.kill()  # politely it would take 15 s
        process.wait()


def wait_for(url: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                return  # it answers
            assert time.monotonic() < deadline, f"{url}: {error}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def started(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("seaweedfs")
    (folder / "data").mkdir()
    servers = {name: (free_port(), free_port()) for name in ("master", "volume", "filer")}
    s3, s3_grpc = free_port(), free_port()
    options = [f"-{name}.port={pair[0]}" for name, pair in servers.items()]
    options += [f"-{name}.port.grpc={pair[1]}" for name, pair in servers.items()]
    options.append("-master.telemetry=false")
    filer = "{}:{}.{}".format(HOST, *servers["filer"])
    with ExitStack() as ends:
        at_store = {"=store": f"={HOST}", "=/data": f"={folder}/data"}
        ends.enter_context(run_service("store", folder / "store", secrets, at_store, *options))
        wait_for(f"http://{HOST}:{servers['filer'][0]}/")
        at_s3 = {"store:8888": filer, "-port=8333": f"-port={s3}"}
        pid = ends.enter_context(run_service("s3", folder / "s3", secrets, at_s3, f"-port.grpc={s3_grpc}"))
        wait_for(f"http://{HOST}:{s3}/status")
        yield Started(Gateway(f"http://{HOST}:{s3}", secrets), psutil.Process(pid), {s3, s3_grpc})


def test_the_store_and_its_gateway_work_together(started: Started) -> None:
    admin, worker = (started.gateway.client(role) for role in ("admin", "worker"))
    admin.create_bucket(Bucket="zero-store")
    admin.put_object(Bucket="zero-store", Key="weights/a", Body=b"network")
    assert worker.get_object(Bucket="zero-store", Key="weights/a")["Body"].read() == b"network"
    admin.delete_object(Bucket="zero-store", Key="weights/a")


def test_whoever_reaches_the_gateway_is_not_made_admin_without_a_token(started: Started) -> None:
    stranger = Stranger()
    (grpc,) = {port for port in started.ports if f":{port}" not in started.gateway.url}
    assert stranger.ask_to_be_admin(grpc) == UNAUTHENTICATED
    assert is_refused(stranger.client(started.gateway.url).create_bucket, Bucket="mine")


def test_the_gateway_opens_no_other_port(started: Started) -> None:
    listening = {entry.laddr.port for entry in started.process.net_connections() if entry.status == psutil.CONN_LISTEN}
    assert listening == started.ports
