"""The meter: CPU time grows with work and includes what it should."""

import os
import socket
import subprocess
import sys

import pytest

from zero.stages.meter import Meter, cpu_seconds, worker_name

BURN = "sum(range(3_000_000))"


def burn() -> None:
    """Uses the processor for at least a tenth of a second."""
    before = cpu_seconds(children=False)
    while cpu_seconds(children=False) < before + 0.1:
        sum(range(10_000))


def test_cpu_time_grows_with_work_and_not_with_sleep() -> None:
    idle, busy = Meter(), Meter()
    burn()
    spent = busy.read()
    assert spent.cpu_seconds >= 0.1 and spent.seconds >= 0.1 * 0.5
    assert idle.read().cpu_seconds >= spent.cpu_seconds
    assert Meter().read().cpu_seconds < 0.05


def test_ended_children_are_counted_on_request() -> None:
    alone, together = Meter(), Meter(children=True)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert together.read().cpu_seconds > alone.read().cpu_seconds + 0.01


def test_a_meter_since_the_start_includes_earlier_cpu_time() -> None:
    burn()
    assert Meter(since_start=True).read().cpu_seconds >= cpu_seconds(children=False) - 0.05 > 0.05


def test_gpu_time_is_the_wall_clock_of_work_on_a_gpu() -> None:
    assert Meter("cpu").read().gpu_seconds == 0.0
    spent = Meter("cuda").read()
    assert spent.gpu_seconds == spent.seconds > 0.0


def test_a_worker_is_named_by_its_variable_or_by_host_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZERO_WORKER", raising=False)
    assert worker_name() == f"{socket.gethostname()}:{os.getpid()}"
    monkeypatch.setenv("ZERO_WORKER", "rack 3")
    assert worker_name() == "rack 3"
