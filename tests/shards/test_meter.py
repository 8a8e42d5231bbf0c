"""The meter: CPU time grows with work, and energy counters may wrap around."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from zero.shards import meter
from zero.shards.meter import Meter, PackageEnergy, cpu_seconds, machine_cpu_seconds, worker_name

BURN = "sum(range(3_000_000))"


def burn() -> None:
    """Uses the processor for at least a tenth of a second."""
    before = cpu_seconds(children=False)
    while cpu_seconds(children=False) < before + 0.1:
        sum(range(10_000))


def made_package(folder: Path, name: str, microjoules: int, max_range: int) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    (package / "max_energy_range_uj").write_text(f"{max_range}\n")
    (package / "energy_uj").write_text(f"{microjoules}\n")
    return package


def test_cpu_time_grows_with_work_and_not_with_sleep() -> None:
    idle, busy = Meter(), Meter()
    burn()
    spent = busy.read()
    assert spent.cpu_seconds >= 0.1 and spent.seconds >= 0.1 * 0.5
    assert idle.read().cpu_seconds >= spent.cpu_seconds
    assert Meter().read().cpu_seconds < 0.05


def test_an_ended_child_is_counted_on_request() -> None:
    alone, together = Meter(), Meter(children=True)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert together.read().cpu_seconds > alone.read().cpu_seconds + 0.01


def test_a_meter_since_the_start_counts_what_the_process_has_used_before_it() -> None:
    burn()
    assert Meter(since_start=True).read().cpu_seconds >= cpu_seconds(children=False) - 0.05 > 0.05


def test_gpu_time_is_the_duration_of_the_work() -> None:
    assert Meter("cpu").read().gpu_seconds == 0.0
    spent = Meter("cuda").read()
    assert spent.gpu_seconds == spent.seconds > 0.0


def test_energy_of_all_packages_is_summed(tmp_path: Path) -> None:
    first = made_package(tmp_path, "intel-rapl:0", 5_000_000, 10_000_000)
    second = made_package(tmp_path, "intel-rapl:1", 1_000_000, 10_000_000)
    made_package(tmp_path, "intel-rapl:0:0", 0, 10_000_000)
    energy = PackageEnergy(tmp_path)
    (first / "energy_uj").write_text("7000000\n")
    (second / "energy_uj").write_text("1500000\n")
    (tmp_path / "intel-rapl:0:0" / "energy_uj").write_text("999\n")
    assert energy.joules() == pytest.approx(2.5)


def test_a_counter_that_wraps_around_is_followed(tmp_path: Path) -> None:
    package = made_package(tmp_path, "intel-rapl:0", 9_000_000, 10_000_000)
    energy = PackageEnergy(tmp_path)
    for microjoules in (500_000, 8_000_000, 1_000_000):  # 1.5, 7.5 and 3 joules on
        (package / "energy_uj").write_text(f"{microjoules}\n")
        energy.joules()
    assert energy.joules() == pytest.approx(12.0)


def test_without_a_counter_the_energy_is_unknown(tmp_path: Path) -> None:
    assert PackageEnergy(tmp_path / "none").joules() is None


def test_many_meters_have_one_thread_and_each_its_own_energy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = made_package(tmp_path, "intel-rapl:0", 5_000_000, 10_000_000)
    monkeypatch.setattr(meter, "POWERCAP_DIR", tmp_path)
    before = set(threading.enumerate())
    meter.package_energy.cache_clear()
    try:
        early = Meter()
        (package / "energy_uj").write_text("7000000\n")
        later = [Meter() for _ in range(20)]
        assert [thread.name for thread in set(threading.enumerate()) - before] == ["energy"]
        burn()
        assert (early.read().joules or 0.0) > 0.0
        assert {each.read().joules for each in later} == {0.0}
    finally:
        meter.package_energy.cache_clear()


def test_the_machine_has_used_more_than_this_process() -> None:
    assert machine_cpu_seconds() > cpu_seconds(children=True) > 0.0


def test_a_worker_is_named_by_its_variable_else_by_host_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZERO_WORKER", raising=False)
    assert worker_name() == f"{socket.gethostname()}:{os.getpid()}"
    monkeypatch.setenv("ZERO_WORKER", "rack 3")
    assert worker_name() == "rack 3"
