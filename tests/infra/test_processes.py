"""Processes that outlive their command: known again, ended whole, and nobody else's."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from infra.processes import OPEN_FILES, Home, Record, is_running, process_tree, start_time

PROJECT_DIR = Path(__file__).resolve().parents[2]
SLEEPS = "import time; time.sleep(300)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEPS}"
CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEPS}']);"
CHILD_WITH_A_SESSION = CHILD.replace("']);", "'], start_new_session=True);")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    for folder in ("run", "logs"):
        (tmp_path / folder).mkdir()
    return Home(tmp_path)


def begin(code: str, home: Home, ready: Callable[[Path], bool] | None = None) -> Record:
    home.start("service", [sys.executable, "-c", code], dict(os.environ), 4200)
    while ready and not ready(home.log("service")):
        time.sleep(0.01)
    record = home.last_record("service")
    assert record is not None
    return record


def is_ready(log: Path) -> bool:
    return "ready" in log.read_text()


def is_alive(process: psutil.Process) -> bool:
    return start_time(process.pid) is not None


def test_a_service_ends_with_its_children_in_whatever_session(home: Home) -> None:
    record = begin(f"{CHILD} {CHILD_WITH_A_SESSION} print('ready', flush=True); {SLEEPS}", home, is_ready)
    tree = process_tree(record)
    assert len(tree) == 3
    assert home.stop("service", 10.0)
    assert not any(is_alive(process) for process in tree)
    assert not home.stop("service", 10.0)


def test_the_orphans_of_a_killed_service_are_found(home: Home) -> None:
    record = begin(f"{CHILD} print('ready', flush=True); {SLEEPS}", home, is_ready)
    os.kill(record.pid, 9)
    os.waitpid(record.pid, 0)
    orphans = process_tree(record)
    assert orphans and record.pid not in [process.pid for process in orphans]
    assert home.stop("service", 10.0)
    assert process_tree(record) == []


def test_a_service_that_ignores_the_request_is_forced(home: Home) -> None:
    record = begin(STUBBORN, home, is_ready)
    assert home.stop("service", 0.3)
    assert not is_running(record)


def test_a_number_that_was_given_to_another_process_is_not_signalled(home: Home) -> None:
    record = begin(SLEEPS, home)
    reused = record._replace(started=record.started - 1)
    home.record_path("service").write_text(json.dumps(reused._asdict()))
    assert process_tree(reused) == [] and not is_running(reused)
    assert not home.stop("service", 1.0)
    assert is_running(record)
    home.record_path("service").write_text(json.dumps(record._asdict()))
    assert home.stop("service", 10.0)


def test_a_record_before_the_last_start_is_none(home: Home) -> None:
    record = begin(SLEEPS, home)
    assert record.place
    home.record_path("service").write_text(json.dumps({**record._asdict(), "place": f"another start:{home.state}"}))
    assert home.record("service") is None and not home.stop("service", 1.0)
    assert is_running(record)
    home.record_path("service").write_text(json.dumps(record._asdict()))
    assert home.stop("service", 10.0)


def test_a_half_written_record_is_none(home: Home) -> None:
    record = begin(SLEEPS, home)
    assert home.record("service") == record
    path, text = home.record_path("service"), home.record_path("service").read_text()
    for damaged in (text[:20], "{}", "[1]", json.dumps({**record._asdict(), "more": 1})):
        path.write_text(damaged)
        assert home.last_record("service") is None
    path.write_text(text)
    assert home.stop("service")


def test_a_service_may_open_as_many_files_as_this_user(home: Home) -> None:
    """Three connections a worker: the usual 1,024 would end at some 340 of them."""
    before = _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, most), hard))
    try:
        told = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE), 'ready', flush=True)"
        os.waitpid(begin(told, home, is_ready).pid, 0)
        assert home.log("service").read_text().split() == [str(most), str(hard), "ready"]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(1024, most), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_command_that_ends_before_its_service_leaves_no_warning(home: Home) -> None:
    program = (
        "import os, sys; from pathlib import Path; from infra.processes import Home\n"
        f"Home(Path(sys.argv[1])).start('service', [sys.executable, '-c', '{SLEEPS}'], dict(os.environ), 4200)"
    )
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", program, str(home.state)]
    done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert home.stop("service", 10.0)


def test_the_log_before_is_kept(home: Home) -> None:
    for _ in range(2):
        record = begin("print('ready', flush=True)", home, is_ready)
        os.waitpid(record.pid, 0)
    assert sorted(path.name for path in (home.state / "logs").iterdir()) == ["service.log", "service.log.old"]
