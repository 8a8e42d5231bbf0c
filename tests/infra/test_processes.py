"""Processes that outlive their command: known again, ended whole, and nobody else's."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from infra.processes import (
    OPEN_FILES,
    Record,
    end_service,
    lives,
    process_tree,
    read_process,
    read_record,
    start_service,
    write_json,
)

SLEEPS = "import time; time.sleep(300)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEPS}"
CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEPS}']);"
CHILD_WITH_A_SESSION = CHILD.replace("']);", "'], start_new_session=True);")


def begin(code: str, folder: Path, ready: Callable[[Path], bool] | None = None) -> Record:
    log = folder / "service.log"
    record = start_service([sys.executable, "-c", code], dict(os.environ), folder, log, 0)
    while ready and not ready(log):
        time.sleep(0.01)
    return record


def is_ready(log: Path) -> bool:
    return "ready" in log.read_text()


def test_a_service_ends_with_its_children_in_whatever_session(tmp_path: Path) -> None:
    record = begin(f"{CHILD} {CHILD_WITH_A_SESSION} print('ready', flush=True); {SLEEPS}", tmp_path, is_ready)
    tree = process_tree(record)
    assert len(tree) == 3
    assert end_service(record, 10.0)
    assert not any(lives(process) for process in tree)
    assert not end_service(record, 10.0)


def test_the_orphans_of_a_killed_service_are_found(tmp_path: Path) -> None:
    record = begin(f"{CHILD} print('ready', flush=True); {SLEEPS}", tmp_path, is_ready)
    os.kill(record.pid, 9)
    os.waitpid(record.pid, 0)
    orphans = process_tree(record)
    assert orphans and record.pid not in [process.pid for process in orphans]
    assert end_service(record, 10.0)
    assert process_tree(record) == []


def test_a_service_that_ignores_the_request_is_forced(tmp_path: Path) -> None:
    record = begin(STUBBORN, tmp_path, is_ready)
    assert end_service(record, 0.3)
    assert not lives(record)


def test_a_number_that_was_given_to_another_process_is_not_signalled(tmp_path: Path) -> None:
    record = begin(SLEEPS, tmp_path)
    reused = record._replace(started="another boot:12345")
    assert process_tree(reused) == [] and not lives(reused)
    assert not end_service(reused, 1.0)
    assert lives(record)
    end_service(record, 10.0)


def test_the_remains_of_a_process_do_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    while (found := read_process(child.pid)) is not None:
        assert found.parent == os.getpid()
        time.sleep(0.01)
    assert child.wait() == 0


def test_a_half_written_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "worker.json"
    write_json(path, Record(12, "boot:34", 4200)._asdict())
    assert read_record(path) == Record(12, "boot:34", 4200)
    path.write_text(path.read_text()[:20])
    assert read_record(path) is None


def test_a_service_may_open_as_many_files_as_this_user(tmp_path: Path) -> None:
    """Three connections a worker: the usual 1,024 would end at some 340 of them."""
    before = _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, most), hard))
    try:
        told = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE), 'ready', flush=True)"
        os.waitpid(begin(told, tmp_path, is_ready).pid, 0)
        assert (tmp_path / "service.log").read_text().split() == [str(most), str(hard), "ready"]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(1024, most), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_log_before_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        record = begin("print('ready', flush=True)", tmp_path, is_ready)
        os.waitpid(record.pid, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["service.log", "service.log.old"]
