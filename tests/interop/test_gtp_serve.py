"""The loop: one answer to each command, whatever input is between them."""

import io
import os
import re
import tempfile
import time
from collections.abc import Callable
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interop.engines import GO5, engine_program, network_session, random_session, transcript
from tests.interop.test_gtp_analysis import as_lizzie
from tests.search.evaluators import HashEvaluator
from zero.errors import StorageError
from zero.interop.gtp import GtpServer, serve_gtp
from zero.interop.gtp_protocol import Lines, parse_command

ANSWER = re.compile(r"([=?])(\d*)(?: ([^\n]+(?:\n[^\n]+)*)|(?:\n[^\n]+)*)?\n\n")


def answers(text):
    """Sign, id and text of each answer; checks that nothing is between them."""
    found, end = [], 0
    while end < len(text):
        match = ANSWER.match(text, end)
        assert match, text[end : end + 200]
        found.append((match[1], match[2], match[3] or ""))
        end = match.end()
    return found


def test_each_command_has_an_answer_with_its_id():
    data = b"1 name\n\n# nothing\n2 protocol_version\r\nwhat\n 33\tkomi x\n4\nquit\nname\n"
    assert transcript(data) == "=1 zero\n\n=2 2\n\n? unknown command\n\n?33 syntax error\n\n?4 syntax error\n\n=\n\n"


def test_the_end_of_the_input_ends_the_loop():
    assert transcript(b"") == ""
    assert transcript(b"name") == "= zero\n\n"
    assert transcript(b"# only a comment") == ""


def test_an_analysis_is_one_answer_that_ends_with_the_next_command():
    text = transcript(b"1 lz-analyze b 10\n2 name\n")
    first, rest = text.split("\n\n", 1)
    assert first.startswith("=1\ninfo move ")
    assert rest == "=2 zero\n\n"


@pytest.mark.parametrize("next_line", [b"name\n", b"\n", b"quit\n", b""])
def test_an_analysis_continues_until_a_line_comes(next_line):
    source, target = os.pipe()
    out = io.StringIO()
    session = network_session(GO5)
    session.new_game(GO5)
    session.search(8, None)  # compiles the kernels
    with os.fdopen(source, "rb") as file:
        thread = Thread(target=serve_gtp, args=(session, GO5, file, out))
        thread.start()
        os.write(target, b"lz-analyze interval 5\n")
        deadline = time.monotonic() + 60
        while out.getvalue().count("\n") < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.write(target, next_line)
        os.close(target)
        thread.join(60)
    assert not thread.is_alive()
    first, rest = out.getvalue().split("\n\n", 1)
    lines = first.split("\n")
    assert len(lines) >= 6
    assert lines[0] == "="
    assert all(line.startswith("info move ") for line in lines[1:])
    assert rest == {b"name\n": "= zero\n\n", b"quit\n": "=\n\n"}.get(next_line, "")


def test_visits_grow_during_an_analysis():
    class Slow(HashEvaluator):
        def evaluate(self, planes, prior, value):
            time.sleep(0.002)
            super().evaluate(planes, prior, value)

    rounds = []

    def interrupted(_: float) -> bool:
        rounds.append(1)
        return len(rounds) >= 9

    one = GtpServer(network_session(GO5, Slow(GO5)), GO5, interrupted)
    lines = list(one.run("lz-analyze", ("b", "0")))
    totals = [sum(visits for visits, _, _ in as_lizzie(line).values()) for line in lines]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1] <= 9 * 30


class Failing(HashEvaluator):
    """An evaluator that fails once `is_lost` returns True. It is slow, so that the tree is not full before."""

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__(GO5)
        self.is_lost = is_lost

    def evaluate(self, planes, prior, value):
        if self.is_lost():
            raise StorageError("the network is gone")
        time.sleep(0.005)
        super().evaluate(planes, prior, value)


def test_a_failed_analysis_is_reported_and_the_next_command_is_answered():
    text = transcript(b"1 lz-analyze b 1\n2 name\n", network_session(GO5, Failing(lambda: True)))
    assert text == "?1 the network is gone\n\n=2 zero\n\n"


def test_an_analysis_that_fails_later_ends_its_answer(caplog, monkeypatch):
    monkeypatch.setattr(Lines, "wait", lambda self, seconds: False)
    out = io.StringIO()
    session = network_session(GO5, Failing(lambda: out.getvalue().count("\n") == 2))
    with tempfile.TemporaryFile() as file:
        file.write(b"1 lz-analyze b 1\n2 name\n")
        file.seek(0)
        serve_gtp(session, GO5, file, out)
    first, rest = out.getvalue().split("\n\n", 1)
    assert first.startswith("=1\ninfo move ") and rest == "=2 zero\n\n"
    assert "lz-analyze ended early: the network is gone" in caplog.text


def test_it_ends_if_no_one_reads_the_answers():
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    source, target = os.pipe()
    os.write(target, b"name\n")
    with os.fdopen(source, "rb") as file:
        serve_gtp(random_session(), GO5, file, Closed())
    os.close(target)


VOCABULARY = """
1 22 play genmove b w black white C3 A1 pass Z9 E5 undo komi 7.5 -1 nan boardsize 5 2 9 showboard clear_board
final_score final_status_list alive loadsgf /dev/null time_settings 0 1 time_left reg_genmove lz-analyze
lz-genmove_analyze interval maxmoves set_free_handicap fixed_handicap place_free_handicap 4 # list_commands
known_command quit_ name version
"""
WORDS = st.sampled_from(VOCABULARY.split())
LINES = st.lists(
    st.one_of(
        st.binary(max_size=30).filter(lambda line: b"\n" not in line and not re.search(rb"quit", line)),
        st.lists(WORDS, max_size=6).map(lambda words: " ".join(words).encode()),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_invalid_input_never_ends_it_and_each_command_has_one_answer(lines, ending, is_random):
    session = random_session() if is_random else network_session(GO5, num_simulations=4)
    text = transcript(ending.join([*lines, b"77777 name", b""]), session)
    expected = [parse_command(line.decode("ascii", errors="replace")) for line in lines]
    numbers = [command.id for command in expected if command is not None]
    assert [number for _, number, _ in answers(text)] == [*numbers, "77777"]
    assert text.endswith("=77777 zero\n\n")


def test_it_runs_as_a_program():
    with engine_program("random") as program:
        assert program.ask("name") == "zero"
        assert program.ask("boardsize 19") == ""
        name = program.ask("genmove b")
        assert f"move 1 was X {name}" in program.ask("showboard")
        with pytest.raises(RuntimeError, match="unknown command"):
            program.ask("make_tea")
