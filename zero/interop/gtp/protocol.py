"""Lines of the Go Text Protocol: parses commands and formats answers.

Input is cleaned as the protocol requires: control characters and comments are removed, empty lines have no answer.
Lines are read from the file descriptor, without a thread. So an analysis can check for the next command, and a program
that ends does not wait for one.
"""

import os
import re
import select
from typing import IO, Any, NamedTuple

from zero.errors import ZeroError

MAX_LINE_BYTES = 1 << 16
"""Far more than a valid command: all points of a 19x19 board are 1,500 characters."""
READ_BYTES = 1 << 16

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""All control characters except tab and newline."""
ID = re.compile(r"[0-9]+")
WORD = re.compile(r"[^ \t\n]+")


class CommandError(ZeroError):
    """A command failed; the message is the answer after the question mark."""


class Command(NamedTuple):
    """One command."""

    id: str  # digits; empty if the controller sent none
    name: str  # empty if nothing follows the id
    arguments: tuple[str, ...]


def parse_command(line: str) -> Command | None:
    """Parses a line; None if it is empty or a comment."""
    words = WORD.findall(CONTROL.sub("", line).partition("#")[0])
    if not words:
        return None
    number = words.pop(0) if ID.fullmatch(words[0]) else ""
    return Command(number, words[0] if words else "", tuple(words[1:]))


def success(command_id: str, text: str) -> str:
    """Answer to a command that succeeded."""
    return _answer("=", command_id, text)


def failure(command_id: str, text: str) -> str:
    """Answer to a command that failed."""
    return _answer("?", command_id, text)


class Lines:
    """The lines of a stream. Non-ASCII bytes are decoded like file names, so that `loadsgf` finds any file."""

    def __init__(self, stream: IO[Any]) -> None:
        """Reads the stream's file descriptor. Nothing may have been read through the stream's buffer before."""
        self._file = stream.fileno()
        self._read = bytearray()
        self._at_end = False

    def next(self) -> str | None:
        """Next line without its newline, which the last line may lack; None at the end of the stream.

        Raises:
          CommandError: the line is too long for a command and was skipped.
        """
        too_long = False
        while (end := self._read.find(b"\n")) < 0 and not self._at_end:
            if len(self._read) > MAX_LINE_BYTES:  # dropped at once, so that no input fills the memory
                too_long = True
                self._read.clear()
            self._fill()
        if end < 0:
            end = len(self._read)
            if not end and not too_long:
                return None
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        if too_long or len(line) > MAX_LINE_BYTES:
            raise CommandError(f"syntax error: a line of more than {MAX_LINE_BYTES} bytes")
        return os.fsdecode(line)

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds` for a complete line or the end of the stream; returns True if it has come."""
        while b"\n" not in self._read and not self._at_end and len(self._read) <= MAX_LINE_BYTES:
            if not select.select([self._file], [], [], seconds)[0]:
                return False
            self._fill()
            seconds = 0.0  # half a line has come; do not wait for the rest, the caller polls again
        return True

    def _fill(self) -> None:
        """Reads the next bytes; blocks until they come or the stream ends."""
        data = os.read(self._file, READ_BYTES)
        self._at_end = not data
        self._read += data


def _answer(sign: str, command_id: str, text: str) -> str:
    """An answer, without empty lines in its text, because an empty line ends it."""
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    return " ".join([f"{sign}{command_id}", *lines[:1]]) + "".join(f"\n{line}" for line in lines[1:]) + "\n\n"
