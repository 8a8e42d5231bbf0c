"""Parsing of commands and formatting of answers, also for invalid input."""

import os
import time
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zero.interop.gtp_protocol import Command, Lines, format_answer, parse_command


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("name", Command("", "name", ())),
        ("7 play B D4", Command("7", "play", ("B", "D4"))),
        ("007 name", Command("007", "name", ())),
        ("\tplay\tb  D4  ", Command("", "play", ("b", "D4"))),
        ("play b D4 # the best", Command("", "play", ("b", "D4"))),
        ("pl\x00ay b\x07 D4\r", Command("", "play", ("b", "D4"))),
        ("12abc", Command("", "12abc", ())),
        ("-3 name", Command("", "-3", ("name",))),
        ("5", Command("5", "", ())),
        ("", None),
        (" \t\r", None),
        ("# 3 name", None),
        ("\x01\x02", None),
    ],
)
def test_a_line_is_parsed(line, command):
    assert parse_command(line) == command


@settings(deadline=None)  # a busy machine takes any time
@given(st.text())
def test_any_line_is_a_command_or_none(line):
    command = parse_command(line)
    assert command is None or command.id or command.name


@pytest.mark.parametrize(
    ("text", "lines"), [("", "=3\n\n"), ("D4", "=3 D4\n\n"), ("a\n\nb \n", "=3 a\nb\n\n"), ("\n \n", "=3\n\n")]
)
def test_an_answer_contains_one_empty_line_at_its_end(text, lines):
    assert format_answer("=", "3", text) == lines


@pytest.fixture
def pipe():
    """A reader of lines and the descriptor that writes them."""
    source, target = os.pipe()
    with os.fdopen(source, "rb") as file:
        yield Lines(file), target


def test_lines_are_cut_at_newlines(pipe):
    lines, target = pipe
    os.write(target, b"name\r\n\nplay b D4\nhalf a li")
    assert [lines.next() for _ in range(3)] == ["name\r", "", "play b D4"]
    os.write(target, b"ne\nthe last has no end")
    os.close(target)
    assert [lines.next() for _ in range(3)] == ["half a line", "the last has no end", None]


def test_non_ascii_bytes_are_parts_of_a_file_name(pipe):
    lines, target = pipe
    name = b"/tmp/j\xc3\xbcrgen\xc2\xa0\xff.sgf"
    os.write(target, b"loadsgf " + name + b"\n")
    os.close(target)
    line = lines.next()
    assert line and (command := parse_command(line))
    assert [os.fsencode(word) for word in command.arguments] == [name]


def test_waiting_needs_a_complete_line(pipe):
    lines, target = pipe
    assert not lines.wait(0.0)
    os.write(target, b"na")
    assert not lines.wait(0.0)
    os.write(target, b"me\n")
    assert lines.wait(0.0)
    assert lines.wait(0.0)
    assert lines.next() == "name"
    assert not lines.wait(0.01)
    os.close(target)
    assert lines.wait(0.0)
    assert lines.next() is None


def test_waiting_ends_when_a_line_comes(pipe):
    lines, target = pipe

    def write_later() -> None:
        time.sleep(0.05)
        os.write(target, b"name\n")

    writer = Thread(target=write_later)
    writer.start()
    started = time.perf_counter()
    assert lines.wait(60.0)
    assert time.perf_counter() - started < 30
    writer.join()
    os.close(target)
