"""One engine that speaks the Go Text Protocol, version 2, as a child process: asks, and never waits for ever.

Not for games: those are in `gtp`. The engine's diagnostics are read along and their end is kept. It ends with whoever
started it (`leash`). Specification: https://www.lysator.liu.se/~gunnar/gtp/gtp2-spec-draft2/gtp2-spec.html
"""

import contextlib
import os
import select
import shutil
import signal
import string
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from zero.errors import OpponentError

LEASH = Path(__file__).with_name("leash.py")
GAMES_DIR = "/usr/games"
"""Where Debian keeps engines; it is not on everybody's path."""
ANSWER_SECONDS = 60.0
MAX_ANSWER_BYTES = 1 << 20
"""The longest honest answer, the list of commands of a large engine, is some kilobytes."""
MAX_DIAGNOSTICS_BYTES = 1 << 14
MAX_SHOWN = 120
"""Characters of an engine's words in a message."""
QUIT_SECONDS = 2.0
LAST_WORDS_SECONDS = 0.5
READ_BYTES = 1 << 16
SIGNALLED = 128
"""What the leash, as a shell, adds to the signal that ended a program."""


class EngineError(OpponentError):
    """An engine died, was silent for too long or answered nonsense; it has been ended."""


class RefusedError(EngineError):
    """An engine answered `? ...`; it goes on."""


def program_path(name: str) -> str | None:
    """Path of a program on the path or among Debian's games; None where it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), GAMES_DIR]))


class GtpEngine:
    """A running engine; close it, or use it in a `with`. One thread at a time may ask; any may `kill`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = ANSWER_SECONDS
    ) -> None:
        """Starts the program; that it is a GTP engine shows when it is asked.

        Args:
          command: the program and its arguments.
          environment: variables it has beside those of this process.
          seconds: limit of an answer.

        Raises:
          OpponentError: there is no such program, or no room for another process.
        """
        path = program_path(command[0]) if command else None
        if path is None:
            raise OpponentError(
                f"cannot find the program {command[0] if command else ''!r}; install it, or give its path"
            )
        self.name = Path(command[0]).name
        self._seconds = seconds
        self._number = 0  # of the last command
        self._unwritten = b""  # of that command
        self._unread = bytearray()  # of the standard output
        self._diagnostics = bytearray()
        self._is_mute = False  # the standard error has ended
        lifeline = self._lifeline = -1
        try:
            lifeline, self._lifeline = os.pipe()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(lifeline), path, *command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **(environment or {})},
                pass_fds=(lifeline,),
            )
        except OSError as error:
            if self._lifeline >= 0:
                os.close(self._lifeline)
            raise OpponentError(f"cannot start {self.name}: {error}; play fewer games at once") from None
        finally:
            if lifeline >= 0:
                os.close(lifeline)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._is_well = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def diagnostics(self) -> str:
        """The end of what it wrote on its standard error since the last command, that command's own included."""
        return self._diagnostics.decode(errors="replace")

    def ask(self, command: str, seconds: float | None = None) -> str:
        """The answer to a command, without its number; lines are separated by newlines.

        Lines before the answer that are none are skipped. `seconds` stands in for the limit that the engine was made
        with.

        Raises:
          RefusedError: the engine refuses the command; it may be asked on.
          EngineError: it died, gave no answer in time, wrote too much, or answered another command. It has been ended.
        """
        assert "\n" not in command, "a command is one line"
        if not self._is_well:
            raise EngineError(f"{self.name} was ended before `{command}`")
        self._number += 1
        self._diagnostics.clear()
        seconds = self._seconds if seconds is None else seconds
        try:
            return self._answer(command, seconds)
        except RefusedError:
            raise
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it at once, with all it has started; `close` is still to come. Any thread may call it."""
        self._is_well = False
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def close(self) -> None:
        """Ends it, politely where it is well, and takes its resources back."""
        if self._is_well:
            with contextlib.suppress(OSError):
                self._stdin.write(b"quit\n")
                self._stdin.close()
            deadline = time.monotonic() + QUIT_SECONDS
            while self._read(deadline):
                pass
        self.kill()
        self._process.wait()
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def _answer(self, command: str, seconds: float) -> str:
        """Writes the command and reads to the empty line after its answer."""
        deadline = time.monotonic() + seconds
        self._unwritten = f"{self._number} {command}\n".encode()
        num_bytes = len(self._unread)
        lines: list[str] = []  # of the answer
        before = ""  # the last line before it
        while True:
            end = self._unread.find(b"\n")
            if end < 0:
                chunk = self._read(deadline)
                num_bytes += len(chunk or b"")
                if chunk is None:
                    said = lines[0] if lines else _cleaned(self._unread) or before
                    what = f"only {_shown(said)}" if said else "nothing"
                    raise EngineError(f"{self.name} did not answer `{command}` within {seconds:g} s; it said {what}")
                if not chunk:
                    raise EngineError(f"{self.name} {self._end()} at `{command}`{self._last_words()}")
                if num_bytes > MAX_ANSWER_BYTES:
                    raise EngineError(f"{self.name} wrote more than {MAX_ANSWER_BYTES:,} bytes at `{command}`")
                self._unread += chunk
                continue
            text = _cleaned(self._unread[:end])
            del self._unread[: end + 1]
            if lines and not text:
                self._read_diagnostics()
                return self._judged(command, lines)
            if lines or text.startswith(("=", "?")):
                lines.append(text)
            else:
                before = text or before

    def _judged(self, command: str, lines: list[str]) -> str:
        """The text of an answer, whose first line begins with the sign and the number."""
        sign, first = lines[0][0], lines[0][1:]
        text = first.lstrip(string.digits)
        digits = first[: len(first) - len(text)]
        text = "\n".join([text.strip(), *lines[1:]])
        if digits != str(self._number):
            raise EngineError(
                f"{self.name} answered `{command}` with {_shown(lines[0])}, which lacks its number {self._number}"
            )
        if sign == "?":
            raise RefusedError(f"{self.name} refused `{command}`: {text[:MAX_SHOWN] or 'it gave no reason'}")
        return text

    def _read(self, deadline: float) -> bytes | None:
        """The next bytes of its output; none at the end of it, None at the deadline. Meanwhile writes what is left."""
        while (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._stdout, select.POLLIN)
            if not self._is_mute:
                poll.register(self._stderr, select.POLLIN)
            if self._unwritten:
                poll.register(self._stdin, select.POLLOUT)
            ready = {descriptor for descriptor, _ in poll.poll(1000 * left)}
            if self._stderr.fileno() in ready:
                self._read_diagnostics()
            if self._unwritten and self._stdin.fileno() in ready:
                self._write()
            if self._stdout.fileno() in ready:
                return self._stdout.read(READ_BYTES) or b""
        return None

    def _write(self) -> None:
        try:
            self._unwritten = self._unwritten[self._stdin.write(self._unwritten) or 0 :]
        except BrokenPipeError:
            self._unwritten = b""  # it has ended, or listens no more: what it says next, or does not, tells

    def _read_diagnostics(self) -> None:
        """Takes what there is on its standard error and keeps the end."""
        chunk = self._stderr.read(READ_BYTES)  # None where there is nothing yet
        self._is_mute = chunk == b""
        self._diagnostics += chunk or b""
        del self._diagnostics[:-MAX_DIAGNOSTICS_BYTES]

    def _end(self) -> str:
        """How it ended, after the end of its output."""
        try:
            status = self._process.wait(LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if SIGNALLED < status < SIGNALLED + signal.NSIG:
            return f"was killed by signal {status - SIGNALLED}"
        return f"ended with status {status}"

    def _last_words(self) -> str:
        """The last line of its diagnostics, as the end of a message."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while not self._is_mute and (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._stderr, select.POLLIN)
            if poll.poll(1000 * left):
                self._read_diagnostics()
        words = [text for line in self._diagnostics.splitlines() if (text := _cleaned(line).strip())]
        return f"; its last words: {words[-1][:MAX_SHOWN]}" if words else ""


def _cleaned(line: bytes | bytearray) -> str:
    """A line as GTP has it read: without control characters and blanks at its end."""
    text = line.decode("ascii", errors="replace")
    return "".join(letter for letter in text if letter == "\t" or " " <= letter != "\x7f").rstrip()


def _shown(text: str) -> str:
    """An engine's words for a message, in quotes."""
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")
