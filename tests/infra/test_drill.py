"""The drill's own parts: the hook that kills at a named moment, and the log that it goes on from."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.drill.log import EQUAL, Line, Log, num_kills, summary, summary_text
from infra.drill.moments import Moment, generation_moments, new_lineage_moments
from infra.drill.project import HOOK_DIR

KILLED = -signal.SIGKILL


def run(tmp_path: Path, moment: Moment, program: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program in a group of its own that a moment may end."""
    plan, used = tmp_path / "plan.json", tmp_path / "used"
    used.mkdir(exist_ok=True)
    plan.write_text(json.dumps({"used_dir": str(used), "moments": [moment._asdict()]}))
    environment = {**os.environ, "PYTHONPATH": str(HOOK_DIR), "ZERO_DRILL": str(plan)}
    command = [sys.executable, "-c", program, "the program"]
    return subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, start_new_session=True
    )


def moment(event: str, target: str, **fields: object) -> Moment:
    made = {"name": "here", "process": "the program", "event": event, "target": target, "victim": "self", **fields}
    return Moment(**made)  # type: ignore[arg-type]


def test_killed_before_a_file_is_renamed_it_has_its_old_name(tmp_path: Path) -> None:
    program = "import os; open('a', 'w').close(); os.rename('a', 'b')"
    assert run(tmp_path, moment("rename", "^b$"), program).returncode == KILLED
    assert (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_killed_after_a_file_is_opened_it_is_empty(tmp_path: Path) -> None:
    program = "file = open('a', 'w'); file.write('text'); open('c', 'w')"
    assert run(tmp_path, moment("write", "^a$", when="after"), program).returncode == KILLED
    assert (tmp_path / "a").read_text() == "" and not (tmp_path / "c").exists()


def test_reading_is_not_writing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    assert run(tmp_path, moment("write", "^a$"), "print(open('a').read())").stdout == "text\n"
    assert run(tmp_path, moment("read", "^a$"), "print(open('a').read())").returncode == KILLED


def test_the_second_event_is_waited_for(tmp_path: Path) -> None:
    program = "import os; os.mkdir('a1'); os.mkdir('a2'); os.mkdir('a3')"
    assert run(tmp_path, moment("mkdir", "^a", nth=2), program).returncode == KILLED
    assert (tmp_path / "a1").exists() and not (tmp_path / "a2").exists()


def test_a_moment_is_used_once(tmp_path: Path) -> None:
    assert run(tmp_path, moment("mkdir", "^a$"), "import os; os.mkdir('a')").returncode == KILLED
    assert run(tmp_path, moment("mkdir", "^a$"), "import os; os.mkdir('a')").returncode == 0
    assert "the program" in json.loads((tmp_path / "used/here").read_text())["process"]


def test_another_process_is_left_alone(tmp_path: Path) -> None:
    assert run(tmp_path, moment("mkdir", "^a$", process="another"), "import os; os.mkdir('a')").returncode == 0


def test_a_command_dies_with_the_group_as_soon_as_its_file_appears(tmp_path: Path) -> None:
    program = "import subprocess; subprocess.run(['sh', '-c', 'sleep 0.2; touch lock; sleep 30; touch after'])"
    appears = moment("run", "^sh -c", when="appears", appears=str(tmp_path / "lock"), victim="group")
    assert run(tmp_path, appears, program).returncode == KILLED
    assert (tmp_path / "lock").exists()


def test_a_parent_is_killed_and_its_child_lives(tmp_path: Path) -> None:
    child = "import os, time; os.mkdir('a'); time.sleep(0.3); os.mkdir('b')"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, 'a child'])"
    ended = run(tmp_path, moment("mkdir", "^a$", process="^-c .* a child < .* the program$", victim="parent"), program)
    assert ended.returncode == KILLED
    assert (tmp_path / "b").exists()  # its output was waited for


def test_the_last_command_that_was_started_is_known(tmp_path: Path) -> None:
    program = "import os, subprocess; os.mkdir('a'); subprocess.run(['true', 'x']); os.mkdir('b')"
    assert run(tmp_path, moment("mkdir", "^[ab]$", last_run="^true x$"), program).returncode == KILLED
    assert (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_every_moment_has_a_name_of_its_own_that_can_name_a_file() -> None:
    for moments in (generation_moments("/home", 1), new_lineage_moments("/home")):
        names = [each.name for each in moments]
        assert len(set(names)) == len(names) and not any("/" in name for name in names)


def line(run_name: str, result: str = EQUAL, part: str = "loop") -> Line:
    return Line(part, run_name, "mid-shard", "-m zero worker", "group", "repro", "prepare", result, 2.0)


def test_a_log_goes_on_after_its_last_finished_run(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    Log(path, {"project_commit": "abc"}).add("round 0", EQUAL, [line("round 0"), line("round 0")])
    with path.open("a") as file:
        file.write(json.dumps(line("round 1")._asdict()) + '\n{"part": "lo')
    log = Log(path, {"project_commit": "abc"})
    assert num_kills(log) == 2 and log.done == {"round 0": EQUAL}


def test_a_log_of_other_code_is_refused(tmp_path: Path) -> None:
    Log(tmp_path / "log.jsonl", {"project_commit": "abc"})
    with pytest.raises(ValueError, match="is the log of another drill"):
        Log(tmp_path / "log.jsonl", {"project_commit": "abd"})


def test_the_summary_counts_kills_and_names_what_differs(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", {"project_commit": "abc"})
    log.add("round 0", EQUAL, [line("round 0")])
    log.add("round 1", "a shard is lost", [line("round 1", "a shard is lost")])
    log.add("disk", EQUAL, [line("disk", part="disk")])
    figures = summary(log, 100)
    assert (figures["kills"], figures["kills_with_another_result"], figures["disks_full_or_read_only"]) == (2, 1, 1)
    assert figures["runs_that_differ"] == ["round 1: a shard is lost"]
    assert "resumed by prepare; a shard is lost" in summary_text(figures, log.lines)
