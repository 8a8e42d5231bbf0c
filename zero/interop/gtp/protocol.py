"""Lines of the Go Text Protocol: what a controller wrote as commands, and answers as lines.

Noise is answered as the protocol asks: control characters vanish, a comment is passed over, an empty line has no
answer. Lines are read by file descriptor and not by a thread, so that an analysis can look for the next command and a
program that ends does not wait for one.
"""

import os
import re
import select
from typing import NamedTuple, Protocol

from zero.errors import ZeroError

MAX_LINE_BYTES = 1 << 16
"""A command is far shorter: all the points of a 19x19 board are 1,500 characters."""
READ_BYTES = 1 << 16

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""All control characters but tab and newline."""
ID = re.compile(r"[0-9]+")
WORD = re.compile(r"[^ \t\n]+")


class CommandError(ZeroError):
    """A command that cannot be done; the message is the answer after the question mark."""


class Command(NamedTuple):
    """One command."""

    id: str  # digits, or empty where the controller gave none
    name: str  # empty where nothing follows the number
    arguments: tuple[str, ...]


class HasFile(Protocol):
    """What can be read by its file descriptor: a pipe, a terminal, a file."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


def command_of(line: str) -> Command | None:
    """The command of a line; None where there is none: it is empty or a comment."""
    words = WORD.findall(CONTROL.sub("", line).partition("#")[0])
    if not words:
        return None
    number = words.pop(0) if ID.fullmatch(words[0]) else ""
    return Command(number, words[0] if words else "", tuple(words[1:]))


def answer(command_id: str, text: str) -> str:
    """The whole answer to a command that was done."""
    return _answer("=", command_id, text)


def refusal(command_id: str, text: str) -> str:
    """The whole answer to a command that was not done."""
    return _answer("?", command_id, text)


class Lines:
    """The lines of a stream, one by one. Bytes that are no ASCII can be parts of a file's name and are read as such."""

    def __init__(self, stream: HasFile) -> None:
        """Reads the stream by its descriptor: nothing of it may have been read through a buffer."""
        self._file = stream.fileno()
        self._read = bytearray()
        self._at_end = False

    def next(self) -> str | None:
        """The next line without its end, also the last where that has none; None at the end of the stream.

        Raises:
          CommandError: the line is too long for a command; it has been passed over.
        """
        too_long = False
        while (end := self._read.find(b"\n")) < 0 and not self._at_end:
            if len(self._read) > MAX_LINE_BYTES:
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
        """True once a whole line or the end has come; waits for it so long at most."""
        while b"\n" not in self._read and not self._at_end and len(self._read) <= MAX_LINE_BYTES:
            if not select.select([self._file], [], [], seconds)[0]:
                return False
            self._fill()
            seconds = 0.0
        return True

    def _fill(self) -> None:
        """Waits for bytes, or the end."""
        data = os.read(self._file, READ_BYTES)
        self._at_end = not data
        self._read += data


def _answer(sign: str, command_id: str, text: str) -> str:
    """An empty line ends an answer, so none is left in it."""
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    return " ".join([f"{sign}{command_id}", *lines[:1]]) + "".join(f"\n{line}" for line in lines[1:]) + "\n\n"
