"""Dask by the commands of compose.yaml, run here: the scheduler and a worker, with Dask's certificate."""

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask.config
import psutil
import pytest
from distributed import Client, Scheduler
from distributed.security import Security

from flows.engine import ALLOWED_FAILURES, IDLE_SETTINGS
from flows.workers import STAGES, code_resource
from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.compose import HOST, merged, moved, running, wait_until_it_answers
from tests.infra.servers import free_port
from zero.stages.spec import code_digest, lock_file_digest


def settings_of(name: str, secrets: Path) -> dict[str, str]:
    """Dask's variables of a service of compose.yaml, with the secrets of a folder."""
    environment = merged()["services"][name]["environment"]
    places = {"/run/secrets/": f"{secrets}/"}
    return {key: moved(value, places) for key, value in environment.items() if key.startswith("DASK_")}


def settings_in(environment: dict[str, str]) -> dict[str, object]:
    """The settings that Dask reads from variables."""
    return {
        key.removeprefix("DASK_").lower().replace("__", "."): dask.config.interpret_value(value)
        for key, value in environment.items()
    }


def security_of(name: str, secrets: Path) -> Security:
    """Certificate and key of a service."""
    with dask.config.set(settings_in(settings_of(name, secrets))):
        security = Security()
    assert security.require_encryption is True
    return security


@contextmanager
def started(secrets: Path, folder: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Address of a scheduler, and the processes: the scheduler and its worker, without Prefect and S3."""
    ports = {port: str(free_port()) for port in ("8786", "8787", "8788")}
    places = {"/tmp/dask": str(folder / "local"), "//scheduler:": f"//{HOST}:"} | ports
    with ExitStack() as ends:
        processes = []
        for name, port in (("scheduler", "8787"), ("worker", "8788")):
            log, env = folder / f"{name}.log", settings_of(name, secrets)
            process = ends.enter_context(running(name, [sys.executable], log, places, SOURCE_DIR, env))
            processes.append(process)
            wait_until_it_answers(f"http://{HOST}:{ports[port]}/health", process, log)
        yield f"tls://{HOST}:{ports['8786']}", processes


def answer_to(address: str, trusted: Path, own: Path | None) -> bytes:
    """What a scheduler sends first to a client that trusts one certificate and shows another, or none.

    Raises:
      OSError: the scheduler refuses the connection.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(trusted / "dask.pem")
    if own:
        context.load_cert_chain(own / "dask.pem", own / "dask-key.pem")
    host, _, port = address.removeprefix("tls://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as raw, context.wrap_socket(raw) as connection:
        return connection.recv(1)


def allowed_failures(dask_scheduler: Scheduler) -> int:
    """Runs on the scheduler: the deaths of workers that a task survives."""
    return int(dask_scheduler.allowed_failures)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("", "scheduler"),
        ("", "trainer"),
        ("", "worker"),
        ("compose.gpu.yaml", "gpu-0"),
    ],  # Kubernetes has those of gpu-0
)
def test_a_part_that_waits_takes_little_processor_time(file: str, name: str) -> None:
    environment = (merged(file) if file else merged())["services"][name]["environment"]
    found = {key: value for key, value in environment.items() if key.startswith("DASK_")}
    with dask.config.set(settings_in(found)):
        assert {key: dask.config.get(key) for key in IDLE_SETTINGS} == IDLE_SETTINGS


def test_scheduler_and_worker_work_together_with_the_certificate(secrets: Path, tmp_path: Path) -> None:
    codes = {code_resource(stage, code_digest(stage), lock_file_digest()): 1 for stage in STAGES}
    with started(secrets, tmp_path) as (address, (scheduler, worker)):
        with Client(address, security=security_of("trainer", secrets), timeout=1200) as client:
            # The worker announces its code, so that it gets this task.
            assert client.submit(sum, [1, 2], resources=codes).result(timeout=1200) == 3
            (found,) = client.scheduler_info()["workers"].values()
            assert (found["resources"], found["nthreads"]) == (codes, 1)
            assert client.run_on_scheduler(allowed_failures) == ALLOWED_FAILURES

        # A certificate of another cluster, which has the same name, is refused, also if its owner knows ours.
        foreign = tmp_path / "foreign"
        run([str(SOURCE_DIR / "infra/secrets"), str(foreign)], SOURCE_DIR)
        with pytest.raises(OSError, match="certificate"):
            Client(address, security=security_of("trainer", foreign), timeout=5)
        knowing = security_of("trainer", foreign)
        knowing.tls_ca_file = str(secrets / "dask.pem")
        with pytest.raises(OSError):
            Client(address, security=knowing, timeout=5)
        assert answer_to(address, secrets, secrets)
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            answer_to(address, secrets, foreign)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            answer_to(address, secrets, None)

        # And without TLS there is no connection at all.
        with pytest.raises(OSError, match=r"Timed out|closed|refused"):
            Client(address.replace("tls", "tcp"), timeout=5, set_as_default=False)

        # The worker ends with its scheduler, so that Compose starts it again.
        children = psutil.Process(worker.pid).children(recursive=True)
        scheduler.kill()
        worker.wait(300)
        assert not psutil.wait_procs(children, timeout=120)[1]
        assert merged()["services"]["worker"]["restart"] == "unless-stopped"
