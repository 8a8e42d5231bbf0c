"""Commands of a flow: their output, their errors, and that they end with the flow."""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import psutil
import pytest

from flows.commands import run_dvc_stage, run_zero
from zero.errors import LineageError, WorkerError

PROJECT = Path(__file__).parents[2]
SLEEPS_WITH_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(f"pids {os.getpid()} {child.pid}", flush=True)
time.sleep(300)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace whose `zero` and `dvc` are what a test writes."""
    for name in ("zero", "dvc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    return tmp_path


def write(workspace: Path, program: str, code: str) -> None:
    (workspace / program / "__main__.py").write_text(code)


def gone_in_time(*pids: int) -> bool:
    deadline = time.monotonic() + 120
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_json_is_returned_and_other_lines_are_passed_on(workspace: Path) -> None:
    write(workspace, "zero", "import sys; print('hello', sys.argv[1:]); print('{\"a\": 1}'); print('{not JSON}')")
    lines: list[str] = []
    assert run_zero(workspace, "plan", "gating", listen=lines.append) == [{"a": 1}]
    assert lines == ["hello ['plan', 'gating']", "{not JSON}"]


def test_a_command_reads_its_text_and_its_environment(workspace: Path) -> None:
    write(workspace, "zero", "import os, sys; print(sys.stdin.read(), os.environ['ZERO_STORE'])")
    lines: list[str] = []
    run_zero(workspace, "train", listen=lines.append, text="a specification", env={"ZERO_STORE": "here"})
    assert lines == ["a specification here"]


def test_an_error_of_zero_is_its_one_line(workspace: Path) -> None:
    write(
        workspace,
        "zero",
        "import sys; print('much'); print('zero: no champion; restore it', file=sys.stderr); sys.exit(1)",
    )
    with pytest.raises(LineageError, match=r"^zero prepare go9 failed: no champion; restore it$"):
        run_zero(workspace, "prepare", "go9", listen=lambda line: None)


def test_a_failed_stage_shows_the_cause_and_not_the_words_of_dvc(workspace: Path) -> None:
    write(workspace, "dvc", "print('zero: shard altered'); print('ERROR: failed to reproduce'); raise SystemExit(255)")
    with pytest.raises(LineageError, match=r"^stage replay failed: shard altered$"):
        run_dvc_stage(workspace, "replay", lambda line: None, lambda stage, done, total: None)


def test_a_traceback_is_shown_completely(workspace: Path) -> None:
    write(workspace, "zero", "def f():\n    return 1 / 0\nf()")
    with pytest.raises(LineageError, match=r"(?s)Traceback .*return 1 / 0.*ZeroDivisionError"):
        run_zero(workspace, "advance", listen=lambda line: None)


def test_progress_of_a_stage_is_counted_and_not_passed_on(workspace: Path) -> None:
    event = '{"event": "progress", "stage": "training", "done": 3, "total": 9}'
    write(workspace, "dvc", f"import sys; print(sys.argv[1:]); print('{{not JSON}}'); print({event!r})")
    lines: list[str] = []
    seen: list[tuple[str, int, int]] = []
    run_dvc_stage(workspace, "training", lines.append, lambda *shown: seen.append(shown))
    assert lines == ["['repro', '--single-item', 'training']", "{not JSON}"]
    assert seen == [("training", 3, 9)]


def test_a_killed_command_may_be_tried_again(workspace: Path) -> None:
    write(workspace, "zero", "import os; print('begun', flush=True); os.kill(os.getpid(), 9)")
    with pytest.raises(WorkerError, match="zero advance was killed; begun"):
        run_zero(workspace, "advance", listen=lambda line: None)


@pytest.mark.parametrize(
    "lines",
    [
        ("failed to run: zero training, exited with -9",),
        (
            "zero: training process 1 of 2 (pid 7) was killed by signal 9; run the stage again, it resumes",
            "failed to run: zero training, exited with 1",
        ),
    ],
)
def test_a_stage_whose_process_was_killed_may_be_tried_again(workspace: Path, lines: tuple[str, ...]) -> None:
    write(workspace, "dvc", f"print({os.linesep.join(lines)!r}); raise SystemExit(255)")
    with pytest.raises(WorkerError, match="stage training was killed"):
        run_dvc_stage(workspace, "training", lambda line: None, lambda stage, done, total: None)


def test_an_exception_ends_the_command_and_what_it_started(workspace: Path) -> None:
    write(workspace, "zero", SLEEPS_WITH_CHILD)
    pids: list[int] = []

    def interrupt(line: str) -> None:
        pids.extend(map(int, line.split()[1:]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_zero(workspace, "selfplay", listen=interrupt)
    assert len(pids) == 2 and gone_in_time(*pids)


def test_a_command_that_cannot_start_leaves_no_open_file(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    with pytest.raises(FileNotFoundError):
        run_zero(tmp_path / "missing", "advance", listen=lambda line: None)
    assert psutil.Process().num_fds() == before


def test_a_flow_that_is_killed_takes_its_commands_with_it(workspace: Path) -> None:
    write(workspace, "zero", SLEEPS_WITH_CHILD)
    code = (
        "from pathlib import Path\nfrom flows.commands import run_zero\n"
        f"run_zero(Path({str(workspace)!r}), 'selfplay', listen=lambda line: print(line, flush=True))"
    )
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as flow:
        assert flow.stdout
        pids = [int(word) for word in flow.stdout.readline().split()[1:]]
        flow.kill()
    assert len(pids) == 2 and gone_in_time(*pids)


def test_commands_run_at_once_in_threads(workspace: Path) -> None:
    write(workspace, "zero", "import sys, time; time.sleep(0.2); print(sys.argv[1])")
    lines: list[str] = []
    threads = [Thread(target=run_zero, args=(workspace, str(n)), kwargs={"listen": lines.append}) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lines) == ["0", "1", "2", "3"]
