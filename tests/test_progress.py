"""Progress of long work: a bar on a terminal, lines in a log, JSON lines for a program, nothing if it is off."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from tests.end_to_end.project import SOURCE_DIR
from zero import progress
from zero.progress import progress_of

WORK = """
import time
from zero.progress import progress_of
with progress_of("match", "games") as report:
    for done in range(5):
        report(done, 4)
        time.sleep(0.3)
"""


def test_a_terminal_shows_a_bar_with_the_time_left() -> None:
    ours, theirs = os.openpty()
    environment = {**os.environ, "ZERO_PROGRESS": "", "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.Popen([sys.executable, "-c", WORK], cwd=SOURCE_DIR, env=environment, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert done.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"match .* 3/4 games 0:00:\d\d 0:00:\d\d", text), text


def test_a_log_gets_lines_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZERO_PROGRESS", "")
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with progress_of("match", "games") as report:
        for done in (0, 200, 300, 400):  # the speed is known after two changes
            report(done, 400)
            time.sleep(0.1)
    first, second, third, last = capsys.readouterr().err.splitlines()
    assert [first, second, last] == [f"match: {done} of 400 games" for done in (0, 200, 400)]
    assert re.fullmatch(r"match: 300 of 400 games, 0:00:\d\d left", third)


def test_short_work_leaves_no_line_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZERO_PROGRESS", "")
    with progress_of("match", "games") as report:
        report(4, 4)
    assert capsys.readouterr().err == ""


def test_a_program_gets_json_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ZERO_PROGRESS", "json")
    with progress_of("match", "games") as report:
        report(1, 4)
        report(2, 4)  # within a second of the first one
        report(4, 4)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["done"] for event in events] == [1, 4]


def test_progress_can_be_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ZERO_PROGRESS", "off")
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with progress_of("match", "games") as report:
        report(4, 4)
    assert capsys.readouterr() == ("", "")
