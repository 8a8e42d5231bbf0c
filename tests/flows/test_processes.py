"""Commands of a flow: their words, their errors, and their end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.processes import LEASH, run_dvc_stage, run_zero, settings_of_children
from zero.errors import LineageError, WorkerError

SLEEPS = "import time; time.sleep(300)"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose `zero` and `dvc` are what a test writes."""
    for name in ("zero", "dvc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    return tmp_path


def write(workspace: Path, program: str, code: str) -> None:
    (workspace / program / "__main__.py").write_text(code)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone_in_time(*pids: int) -> bool:
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_json_is_returned_and_the_rest_is_told(workspace: Path) -> None:
    write(workspace, "zero", "import sys; print('hello', sys.argv[1:]); print('{\"a\": 1}')")
    told: list[str] = []
    assert run_zero(workspace, "plan", "gating", listen=told.append) == [{"a": 1}]
    assert told == ["hello ['plan', 'gating']"]


def test_an_error_of_zero_is_its_one_line(workspace: Path) -> None:
    write(
        workspace,
        "zero",
        "import sys; print('much'); print('zero: no champion; restore it', file=sys.stderr); sys.exit(1)",
    )
    with pytest.raises(LineageError, match=r"^zero prepare go9 failed: no champion; restore it$"):
        run_zero(workspace, "prepare", "go9", listen=lambda line: None)


def test_a_failed_stage_shows_the_cause_and_not_what_dvc_makes_of_it(workspace: Path) -> None:
    write(workspace, "dvc", "print('zero: shard altered'); print('ERROR: failed to reproduce'); raise SystemExit(255)")
    with pytest.raises(LineageError, match=r"^stage replay failed: shard altered$"):
        run_dvc_stage(workspace, "replay", lambda line: None, lambda done, total: None)


def test_a_traceback_is_shown_whole(workspace: Path) -> None:
    write(workspace, "zero", "def f():\n    return 1 / 0\nf()")
    with pytest.raises(LineageError, match=r"(?s)Traceback .*return 1 / 0.*ZeroDivisionError"):
        run_zero(workspace, "advance", listen=lambda line: None)


def test_progress_of_a_stage_is_counted_and_not_told(workspace: Path) -> None:
    write(workspace, "dvc", 'import sys; print(sys.argv[1:]); print(\'{"event": "progress", "done": 3, "total": 9}\')')
    told: list[str] = []
    seen: list[tuple[int, int]] = []
    run_dvc_stage(workspace, "training", told.append, lambda done, total: seen.append((done, total)))
    assert told == ["['repro', '--single-item', 'training']"]
    assert seen == [(3, 9)]


def test_a_killed_command_is_worth_another_try(workspace: Path) -> None:
    write(workspace, "zero", "import os; print('begun', flush=True); os.kill(os.getpid(), 9)")
    with pytest.raises(WorkerError, match="zero advance was killed; begun"):
        run_zero(workspace, "advance", listen=lambda line: None)


def test_a_leash_that_is_killed_is_worth_another_try(workspace: Path) -> None:
    write(workspace, "zero", "import os; print('begun', flush=True); os.kill(os.getppid(), 9)")
    with pytest.raises(WorkerError, match="zero advance was killed; begun"):
        run_zero(workspace, "advance", listen=lambda line: None)


def test_a_stage_killed_under_dvc_is_worth_another_try(workspace: Path) -> None:
    words = "ERROR: failed to reproduce 'training': failed to run: python -m zero training, exited with -9"
    write(workspace, "dvc", f'print("{words}"); raise SystemExit(255)')
    with pytest.raises(WorkerError, match="stage training was killed"):
        run_dvc_stage(workspace, "training", lambda line: None, lambda done, total: None)


def test_a_listener_that_is_interrupted_ends_the_command(workspace: Path) -> None:
    write(workspace, "zero", f"import os; print(os.getpid(), flush=True); {SLEEPS}")
    pids: list[int] = []

    def interrupt(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_zero(workspace, "plan", listen=interrupt)
    assert len(pids) == 1 and gone_in_time(*pids)


def test_settings_hold_for_the_children_alone(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_STORE", "before")
    monkeypatch.delenv("ZERO_PROGRESS", raising=False)
    write(workspace, "zero", "import os; print(os.environ['ZERO_STORE'], os.environ['ZERO_PROGRESS'])")
    told: list[str] = []
    with settings_of_children(ZERO_STORE="/store", ZERO_PROGRESS="json"):
        run_zero(workspace, "x", listen=told.append)
    assert told == ["/store json"]
    assert os.environ["ZERO_STORE"] == "before" and "ZERO_PROGRESS" not in os.environ


def test_what_a_leash_holds_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    inner = f"import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-c', '{SLEEPS}']);"
    inner += f"open('pids', 'w').write(f'{{os.getpid()}} {{p.pid}} .'); {SLEEPS}"
    words = f"[sys.executable, {str(LEASH)!r}, str(os.getpid()), sys.executable, '-c', {inner!r}]"
    outer = f"import os, subprocess, sys; subprocess.run({words})"
    parent = subprocess.Popen([sys.executable, "-c", outer], cwd=tmp_path)
    pids = tmp_path / "pids"
    while not (pids.exists() and pids.read_text().endswith(".")):
        time.sleep(0.02)
    held = [int(word) for word in pids.read_text().split()[:2]]
    assert all(alive(pid) for pid in held)
    parent.kill()
    parent.wait()
    assert gone_in_time(*held)


@pytest.mark.parametrize(
    ("code", "status"), [("", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_a_leash_has_the_status_of_its_command(code: str, status: int) -> None:
    words = [sys.executable, str(LEASH), str(os.getpid()), sys.executable, "-c", code]
    assert subprocess.run(words, check=False).returncode == status


def test_a_leash_whose_parent_was_gone_before_it_could_look_lets_nothing_go_on() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    words = [sys.executable, str(LEASH), str(gone.pid), sys.executable, "-c", SLEEPS]
    assert subprocess.run(words, check=False, timeout=60).returncode == 129
