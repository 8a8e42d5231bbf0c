"""Commands of a flow: their words, their errors, and their end."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest

from flows.begin import LEASH_VARIABLE, answer_of, ask
from flows.generation import SHARED_MODULES as GENERATION_MODULES
from flows.processes import LEASH, Leash, one_leash, run_dvc_stage, run_zero, settings_of_children
from flows.worker import SHARED_MODULES as WORKER_MODULES
from zero.errors import LineageError, WorkerError

PROJECT = Path(__file__).parents[2]
SLEEPS = "import time; time.sleep(300)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace whose `zero` and `dvc` are what a test writes."""
    for name in ("zero", "dvc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    return tmp_path


@pytest.fixture(params=[False, True], ids=["alone", "of one leash"])
def workspace(folder: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The same; each command has a leash of its own, or all have one."""
    with one_leash(folder, "zero") if request.param else contextlib.nullcontext():
        yield folder


def write(workspace: Path, program: str, code: str) -> None:
    (workspace / program / "__main__.py").write_text(code)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def leash_process() -> psutil.Process:
    """The one leash that is alive."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess):  # other tests leave some
            if str(LEASH) in child.cmdline():
                found.append(child)
    [process] = found
    return process


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


@pytest.mark.parametrize("modules", [(), ("zero",)], ids=["a new interpreter", "a fork"])
@pytest.mark.parametrize(
    ("code", "status"), [("", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_a_leash_has_the_status_of_its_command(folder: Path, modules: tuple[str, ...], code: str, status: int) -> None:
    write(folder, "zero", code)
    with Leash(folder, modules) as leash:
        assert leash.run("zero", [], print) == status
        assert leash.run("zero", [], print) == status


def test_commands_share_what_was_imported_until_a_source_changes(folder: Path) -> None:
    (folder / "zero/part.py").write_text("import os\nNUMBER = os.getpid()")
    write(folder, "zero", "from zero.part import NUMBER; print(NUMBER)")
    told: list[str] = []
    with one_leash(folder, "zero.part"):
        for _ in range(2):
            run_zero(folder, "x", listen=told.append)
        (folder / "zero/part.py").write_text("NUMBER = 'changed'")
        for _ in range(2):
            run_zero(folder, "x", listen=told.append)
    assert told[0] == told[1] and told[2:] == ["changed", "changed"]
    run_zero(folder, "x", listen=told.append)
    assert told[4] == "changed", "outside, each is alone"


def test_a_source_that_is_not_imported_yet_counts_as_well(folder: Path) -> None:
    (folder / "zero/part.py").write_text("import os\nNUMBER = os.getpid()")
    (folder / "zero/late.py").write_text("")
    write(folder, "zero", "from zero.part import NUMBER; print(NUMBER)")
    told: list[str] = []
    with Leash(folder, ("zero.part",)) as leash:
        leash.run("zero", [], told.append)
        leash.run("zero", [], told.append)
        (folder / "zero/late.py").write_text("X = 1")
        leash.run("zero", [], told.append)
        (folder / "zero/late.py").unlink()
        leash.run("zero", [], told.append)
    assert told[0] == told[1] and len(set(told)) == 3


def test_a_source_that_changes_while_it_is_imported_is_not_what_was_imported(folder: Path) -> None:
    (folder / "zero/part.py").write_text("VALUE = 'before'")
    (folder / "zero/slow.py").write_text("import time, zero.part\nopen('importing', 'w')\ntime.sleep(1)")
    write(folder, "zero", "from zero.part import VALUE; print(VALUE)")
    told: list[str] = []
    with Leash(folder, ("zero.slow",)) as leash:
        while not (folder / "importing").exists():
            time.sleep(0.01)
        (folder / "zero/part.py").write_text("VALUE = 'changed'")
        leash.run("zero", [], told.append)
    assert told == ["changed\n"]


def test_a_package_that_goes_away_meanwhile_is_no_trouble(folder: Path) -> None:
    write(folder, "zero", "print('hello')")
    with Leash(folder, ("zero", "dvc")) as leash:
        assert leash.run("zero", [], print) == 0
        shutil.rmtree(folder / "dvc")
        (folder / "dvc").touch()
        assert leash.run("zero", [], print) == 0


def test_what_has_code_of_its_own_is_not_run_by_another_folders(folder: Path, tmp_path: Path) -> None:
    write(folder, "zero", "print('of the leash')")
    other = tmp_path / "other"
    (other / "zero").mkdir(parents=True)
    (other / "zero/__init__.py").touch()
    write(other, "zero", "print('its own')")
    with Leash(folder, ("zero",)) as leash:
        for place, said in ((folder, "of the leash"), (other, "its own")):
            with tempfile.TemporaryFile() as output:
                with ask(leash.address, place, ["zero"], os.environ, (output.fileno(), output.fileno())) as line:
                    assert answer_of(line) == 0
                output.seek(0)
                assert output.read().decode() == f"{said}\n"


def test_a_signal_that_is_sent_with_the_request_is_not_lost(folder: Path) -> None:
    write(folder, "zero", SLEEPS)
    with (
        Leash(folder, ("zero",)) as leash,
        open(os.devnull, "wb") as output,
        ask(leash.address, folder, ["zero"], os.environ, (output.fileno(), output.fileno())) as line,
    ):
        line.send(bytes([signal.SIGTERM]))
        assert answer_of(line) == 128 + signal.SIGTERM


def test_a_leash_that_stands_still_is_closed_all_the_same(folder: Path) -> None:
    with Leash(folder, ("zero",)):
        server = leash_process()
        server.suspend()
    assert gone_in_time(server.pid)


def test_code_that_lacks_what_is_imported_runs_all_the_same(folder: Path) -> None:
    write(folder, "zero", "print('hello')")
    told: list[str] = []
    with one_leash(folder, "zero", "zero.of_a_later_day"):
        run_zero(folder, "x", listen=told.append)
    assert told == ["hello"]


def test_commands_of_several_threads_do_not_mix(folder: Path) -> None:
    write(folder, "zero", "import sys, time\nfor _ in range(20): print(sys.argv[1], flush=True); time.sleep(0.005)")
    told: dict[int, list[str]] = {number: [] for number in range(6)}

    def run(number: int) -> None:
        run_zero(folder, str(number), listen=told[number].append)

    with one_leash(folder, "zero"):
        threads = [Thread(target=run, args=(number,)) for number in told]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == {number: [str(number)] * 20 for number in told}


def test_a_leash_whose_first_process_was_killed_goes_on_with_another(folder: Path) -> None:
    (folder / "zero/part.py").write_text("import os\nNUMBER = os.getpid()")
    write(folder, "zero", "from zero.part import NUMBER; print(NUMBER)")
    told: list[str] = []
    with Leash(folder, ("zero.part",)) as leash:
        assert leash.run("zero", [], told.append) == 0
        server = leash_process()
        assert told == [f"{server.pid}\n"]
        server.kill()
        server.wait()
        assert leash.run("zero", [], told.append) == leash.run("zero", [], told.append) == 0
    assert told[1] == told[2] != told[0]


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_command_ends_with_the_process_beside_it(folder: Path) -> None:
    write(folder, "zero", f"import os; print(os.getpid(), os.getppid(), flush=True); {SLEEPS}")
    told: list[int] = []

    def kill(line: str) -> None:
        told.extend(map(int, line.split()))
        os.kill(told[1], signal.SIGKILL)

    with Leash(folder, ("zero",)) as leash:
        assert leash.run("zero", [], kill) is None
    assert gone_in_time(*told)


@pytest.mark.parametrize("modules", [(), ("zero",)], ids=["a new interpreter", "a fork"])
def test_what_a_leash_holds_ends_when_its_parent_is_killed(folder: Path, modules: tuple[str, ...]) -> None:
    inner = f"import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-c', '{SLEEPS}']);"
    inner += f"open('pids', 'w').write(f'{{os.getpid()}} {{os.getppid()}} {{p.pid}} .'); {SLEEPS}"
    write(folder, "zero", inner)
    outer = f"import pathlib; from flows.processes import Leash; here = pathlib.Path({str(folder)!r})\n"
    outer += f"Leash(here, {modules}).run('zero', [], print)"
    parent = subprocess.Popen([sys.executable, "-c", outer], cwd=PROJECT)
    pids = folder / "pids"
    while not (pids.exists() and pids.read_text().endswith(".")):
        time.sleep(0.02)
    held = [int(word) for word in pids.read_text().split()[:3]]
    servers = [child.pid for child in psutil.Process(parent.pid).children()]
    assert len(servers) == 1 and all(alive(pid) for pid in held)
    parent.kill()
    parent.wait()
    assert gone_in_time(*held, *servers)


def test_what_a_command_leaves_behind_ends_with_it(folder: Path) -> None:
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', '{SLEEPS}'], stdout=-3); print(p.pid)"
    write(folder, "zero", code.replace("stdout=-3", "stdout=-3, stderr=-3"))
    told: list[str] = []
    run_zero(folder, "x", listen=told.append)
    assert gone_in_time(int(told[0]))


BEGUN = """
import signal, sys, time
def told(number, frame):
    print("told", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, told)
print("begun", sys.argv[1], flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize(("number", "status", "said"), [(signal.SIGTERM, 5, "told\n"), (signal.SIGKILL, -9, "")])
def test_what_a_worker_starts_is_the_run_for_signals_and_its_end(
    tmp_path: Path, number: int, status: int, said: str
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/__init__.py").touch()
    (tmp_path / "flows/begin.py").write_text(BEGUN)
    with Leash(tmp_path, ("flows",)) as leash:
        env = os.environ | {LEASH_VARIABLE: leash.address}
        command = [sys.executable, str(PROJECT / "flows/begin.py")]
        with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as begun:
            assert begun.stdout and begun.stdout.readline() == "begun engine\n"
            server = leash_process()
            _, run = server.children(recursive=True)
            os.kill(begun.pid if number == signal.SIGTERM else run.pid, number)
            assert begun.wait(20) == status and begun.stdout.read() == said


def test_a_run_ends_with_what_its_worker_has_started(folder: Path) -> None:
    (folder / "flows").mkdir()
    (folder / "flows/__init__.py").touch()
    (folder / "flows/begin.py").write_text(f"import os; print(os.getpid(), flush=True); {SLEEPS}")
    with Leash(folder, ("flows",)) as leash:
        env = os.environ | {LEASH_VARIABLE: leash.address}
        command = [sys.executable, str(PROJECT / "flows/begin.py")]
        with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as begun:
            assert begun.stdout
            run = int(begun.stdout.readline())
            begun.kill()
        assert gone_in_time(run)


@pytest.mark.parametrize("modules", [GENERATION_MODULES, WORKER_MODULES], ids=["generation", "worker"])
def test_no_library_is_shared_that_reads_a_lineages_instruction_set_from_the_environment(
    modules: tuple[str, ...],
) -> None:
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *modules], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert not {"torch", "openvino", "mlflow"} & set(done.stdout.split())
