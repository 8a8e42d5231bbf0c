"""GPU locks, tested with processes that hold them and a fake nvidia-smi; no GPU is needed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.parameters import profile_params
from zero.errors import StorageError
from zero.network import gpu_lock as gpus
from zero.network.gpu_lock import lock_gpus, lock_visible_gpus, visible_gpus

PROJECT_DIR = Path(__file__).resolve().parents[2]
HOLDER = """
import logging
import subprocess
import sys
from tests.parameters import profile_params
from zero.network.gpu_lock import lock_visible_gpus
profile = profile_params(device="cuda", backend="torch")
logging.basicConfig(stream=sys.stdout, format="%(message)s")
with lock_visible_gpus(profile) as locks:
    if len(sys.argv) > 1:
        child = subprocess.Popen(sys.argv[1:], pass_fds=[lock.fileno() for lock in locks], stdout=subprocess.DEVNULL)
        print(child.pid, flush=True)
    print("locked", flush=True)
    sys.stdin.read()
"""
SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
Hold = Callable[..., "subprocess.Popen[str]"]


class CancelledError(Exception):
    """Ends the wait for a lock."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of this test's locks and of its fake nvidia-smi, which does not exist at first."""
    monkeypatch.setenv(gpus.LOCKS_VARIABLE, str(tmp_path / "locks"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "RETRY_SECONDS", 0.01)
    return tmp_path


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts processes that lock the GPUs that they see until they are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(seen: str, *child: str) -> "subprocess.Popen[str]":
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": seen}
        command = [sys.executable, "-c", HOLDER, *child]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=environment, cwd=PROJECT_DIR, stdin=pipe, stdout=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def write_nvidia_smi(folder: Path, *lines: str, status: int = 0) -> None:
    script = "".join(f"echo '{line}'\n" for line in lines)
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}exit {status}\n")
    (folder / "nvidia-smi").chmod(0o755)


def is_free(gpu: str) -> bool:
    cancelled = iter([False, True])

    def check() -> None:
        if next(cancelled):
            raise CancelledError

    try:
        with lock_gpus([gpu], check):
            return True
    except CancelledError:
        return False


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, ["GPU-ab", "GPU-ac", "GPU-b"]),
        ("2, 0", ["GPU-b", "GPU-ab"]),
        ("GPU-ac,GPU-b", ["GPU-ac", "GPU-b"]),
        ("GPU-ac-and-more", ["GPU-ac-and-more"]),
        ("MIG-c,7", ["MIG-c", "7"]),
        ("", []),
    ],
)
def test_a_gpu_has_the_same_name_however_it_is_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, found: list[str]
) -> None:
    write_nvidia_smi(folder, "GPU-ab", "GPU-ac", "GPU-b")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == found


def test_a_prefix_of_a_uuid_is_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nvidia_smi(folder, "GPU-ab", "GPU-ac")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-ac")
    assert visible_gpus() == ["GPU-ab", "GPU-ac"]


@pytest.mark.parametrize("status", [None, 0, 9])
def test_without_uuids_gpus_are_named_by_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    if status is not None:
        write_nvidia_smi(folder, "No devices were found", status=status)
    assert visible_gpus()[0] == "0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-a")
    assert visible_gpus() == ["3", "GPU-a"]


def test_on_a_cpu_nothing_is_locked(folder: Path) -> None:
    with lock_visible_gpus(profile_params()) as locks:
        assert not locks
    assert not list(folder.iterdir())


def test_a_second_run_reports_the_owner_and_waits_until_the_first_is_killed(folder: Path, hold: Hold) -> None:
    write_nvidia_smi(folder, "GPU-a", "GPU-b")
    first = hold("0")
    assert line_of(first) == "locked"
    other, second = hold("1"), hold("GPU-a")
    assert line_of(other) == "locked"
    line = line_of(second)
    assert line.startswith(f"GPU GPU-a is in use by process {first.pid} of ")
    assert line.endswith("; waiting until it ends")
    first.kill()
    assert line_of(second) == "locked"


def test_a_lock_lasts_as_long_as_the_last_process_of_its_run(hold: Hold) -> None:
    run = hold("0", *SLEEP)
    child = psutil.Process(int(line_of(run)))
    assert line_of(run) == "locked"
    run.kill()
    run.wait()
    assert not is_free("0")
    child.kill()
    deadline = time.monotonic() + 120.0
    while not is_free("0"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_gpus_are_locked_in_order_and_released_when_the_wait_is_cancelled() -> None:
    free: list[bool] = []

    def check() -> None:
        free.append(is_free("GPU-a"))
        if len(free) == 3:
            raise CancelledError

    with lock_gpus(["GPU-b"]):
        with pytest.raises(CancelledError), lock_gpus(["GPU-b", "GPU-a", "GPU-b"], check):
            pass
        assert free == [True, False, False], "it locks a, and waits for b"
        assert is_free("GPU-a") and not is_free("GPU-b")


def test_a_wait_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    calls = iter(range(5))

    def check() -> None:
        if next(calls) == 4:
            raise CancelledError

    with lock_gpus(["0"]), pytest.raises(CancelledError), lock_gpus(["0"], check):
        pass
    assert len(caplog.messages) == 1


def test_every_user_can_lock(folder: Path) -> None:
    with lock_gpus(["0"]):
        assert (folder / "locks").stat().st_mode & 0o7777 == 0o1777
        assert (folder / "locks/0.lock").stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize("given", [None, ""])
def test_two_shells_with_different_tmpdir_lock_the_same_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.setattr(gpus, "LOCKS_DIR", str(folder / "fixed"))
    monkeypatch.setenv(gpus.LOCKS_VARIABLE, given or "")
    if given is None:
        monkeypatch.delenv(gpus.LOCKS_VARIABLE)
    for shell in ("a", "b"):
        (folder / shell).mkdir()
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setenv("TMPDIR", str(folder / shell))
        with lock_gpus(["0"]):
            assert not is_free("0")
    assert [str(path.relative_to(folder)) for path in folder.rglob("*.lock")] == ["fixed/0.lock"]


def test_a_link_in_the_place_of_a_lock_is_not_followed(folder: Path) -> None:
    """The folder may belong to another user."""
    (folder / "mine.txt").write_text("mine")
    (folder / "locks").mkdir()
    (folder / "locks/0.lock").symlink_to(folder / "mine.txt")
    with pytest.raises(StorageError, match="Too many levels of symbolic links; remove it"), lock_gpus(["0"]):
        pass
    assert (folder / "mine.txt").read_text() == "mine"


def test_a_lock_that_cannot_be_written_is_reported_with_its_path(folder: Path) -> None:
    (folder / "locks").touch()
    message = r"cannot lock GPU 0: cannot write .*/locks/0\.lock: Not a directory; remove it, or set ZERO_GPU_LOCKS"
    with pytest.raises(StorageError, match=message), lock_gpus(["0"]):
        pass
