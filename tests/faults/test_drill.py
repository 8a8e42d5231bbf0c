"""The hook of the crash drill, which injects a fault at the n-th event. A generation under faults: test_crashes."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.drill.project import HOOK_DIR, Fault
from tests.faults.drill.rounds import random_faults

KILLED = -signal.SIGKILL


def run(folder: Path, fault: Fault, program: str) -> tuple[int, str]:
    """Runs a program in a process group of its own; returns its exit status and the note about the fault."""
    counter = folder.parent / "events"
    plan = fault._asdict() | {"counter": str(counter), "project": str(folder), "ballast": str(folder / "ballast")}
    environment = {**os.environ, "PYTHONPATH": str(HOOK_DIR), "ZERO_DRILL": json.dumps(plan)}
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, start_new_session=True)
    note = Path(f"{counter}.note")
    return done.returncode, note.read_text() if note.exists() else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_the_process_is_killed_before_the_nth_event(folder: Path) -> None:
    status, note = run(folder, Fault(3, victim="self"), "import os; [os.mkdir(name) for name in 'abcd']")
    assert status == KILLED and "event 3," in note and note.endswith(": mkdir c")
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_reading_and_files_outside_the_project_are_not_events(folder: Path) -> None:
    assert run(folder, Fault(1), f"open({__file__!r}).read(); open('../outside', 'w')") == (0, "")
    assert (folder.parent / "events").stat().st_size == 0


def test_only_events_that_match_the_pattern_count(folder: Path) -> None:
    fault = Fault(2, pattern=r"^start true")
    program = "import os, subprocess; os.mkdir('a'); [subprocess.run(['true', name]) for name in 'abc']"
    assert run(folder, fault, program)[1].endswith(": start true b")


def test_a_fault_is_injected_once(folder: Path) -> None:
    assert run(folder, Fault(1), "import os; os.mkdir('a')")[0] == KILLED
    assert run(folder, Fault(1), "import os; os.mkdir('a')")[0] == 0


def test_the_events_of_a_child_count_and_its_parent_is_killed(folder: Path) -> None:
    child = "import os, time; os.mkdir('b'); time.sleep(0.3); os.mkdir('c')"
    program = f"import os, subprocess, sys; os.mkdir('a'); subprocess.run([sys.executable, '-c', {child!r}])"
    status, note = run(folder, Fault(3, victim="parent"), program)  # the second event is the start of the child
    assert status == KILLED and note.endswith(": mkdir b")


def test_sigterm_can_be_handled(folder: Path) -> None:
    program = "import os, signal, sys; signal.signal(15, lambda *_: sys.exit(3)); os.mkdir('a'); os.mkdir('b')"
    assert run(folder, Fault(1, kind="term", victim="self"), program)[0] == 3


def test_random_faults_come_about_as_often_as_asked() -> None:
    faults = list(itertools.islice(random_faults(300, 3, random.Random(1)), 200))
    assert 80 < sum(fault.nth for fault in faults) / len(faults) < 120
    assert {fault.kind for fault in faults} == {"kill", "term", "disk"}
    assert {fault.victim for fault in faults} == {"self", "parent", "group"}
