"""A GTP engine (Go Text Protocol, version 2) as a child process. Every request has a time limit.

It knows nothing of games; `gtp` plays them. The end of the engine's standard error is kept for messages. The engine
ends with this process (`zero.processes`).
Specification: https://www.lysator.liu.se/~gunnar/gtp/gtp2-spec-draft2/gtp2-spec.html
"""

import contextlib
import os
import re
import select
import shutil
import signal
import string
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from zero.errors import OpponentError
from zero.processes import SIGNALLED, supervised

SYSTEM_GAMES_DIR = "/usr/games"
"""Debian's folder of game programs, which is not always on PATH."""
ANSWER = re.compile(r"[=?]\d*(\s|$)")
"""Begins the first answer. An engine may print other lines before it, such as a line of equals signs."""
ANSWER_SECONDS = 60.0
MAX_ANSWER_BYTES = 1 << 20
"""The longest valid answer is a list of commands with some kilobytes."""
MAX_DIAGNOSTICS_BYTES = 1 << 14
MAX_SHOWN = 120
"""Maximum number of characters of engine output in a message."""
QUIT_SECONDS = 2.0
EXIT_SECONDS = 0.5
"""Time limit for the exit status of an engine that closed its output."""
READ_BYTES = 1 << 16


class EngineError(OpponentError):
    """An engine died, timed out or answered incorrectly. Its process has been ended."""


class EngineFailureError(EngineError):
    """An engine answered a request with a failure (`? ...`). It accepts further requests."""


def program_path(name: str) -> str | None:
    """Path of a program on PATH or in Debian's folder of games; None if it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_GAMES_DIR]))


class GtpEngine:
    """A running engine; a context manager. One thread at a time may send requests; any thread may `kill`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = ANSWER_SECONDS
    ) -> None:
        """Starts the program. The first request shows whether it speaks GTP.

        Args:
          command: the program and its arguments.
          environment: environment variables in addition to those of this process.
          seconds: time limit of an answer.

        Raises:
          OpponentError: there is no such program, or this machine cannot start another process.
        """
        path = program_path(command[0]) if command else None
        if path is None:
            raise OpponentError(
                f"cannot find the program {command[0] if command else ''!r}; install it, or give its path"
            )
        self.name = Path(command[0]).name
        self.seconds = seconds
        self._number = 0  # number of the last request
        self._unread = bytearray()  # standard output that was read and not yet used
        with contextlib.ExitStack() as started:  # closes what was opened if the start fails
            try:
                # A file, because an engine that fills a pipe before it reads its input would block both processes for
                # ever. It is opened for appending, so that the engine goes on at the new end after it was truncated.
                self._log = started.enter_context(tempfile.TemporaryFile("a+b"))
                # The pipe ties the engine to this process, which alone keeps the write end open.
                theirs, self._connection = os.pipe()
                started.callback(os.close, self._connection)
                try:
                    self._process = subprocess.Popen(
                        supervised(theirs, [path, *command[1:]]),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=self._log,
                        bufsize=0,
                        env={**os.environ, **(environment or {})},
                        pass_fds=(theirs,),
                    )
                finally:
                    os.close(theirs)
            except OSError as error:
                raise OpponentError(f"cannot start {self.name}: {error}; play fewer games at once") from None
            started.pop_all()
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._is_usable = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def diagnostics(self) -> str:
        """End of the standard error since the last request was sent."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - MAX_DIAGNOSTICS_BYTES))
        return self._log.read().decode(errors="replace")

    def request(self, command: str) -> str:
        """Sends a command and returns the text of its answer, without its number; lines are separated by newlines.

        Lines before the answer that are not an answer are skipped.

        Raises:
          EngineFailureError: the engine answered with a failure; it accepts further requests.
          EngineError: it died, timed out, wrote too much, or answered another request. Its process has been ended.
        """
        assert "\n" not in command, "a command is one line"
        if not self._is_usable:
            raise EngineError(f"{self.name} was ended before `{command}`")
        self._number += 1
        self._log.truncate(0)
        try:
            return self._answer(command)
        except EngineFailureError:
            raise
        except BaseException:  # also Ctrl-C: the rest of the answer would be taken for the next one
            self.kill()
            raise

    def kill(self) -> None:
        """Kills the engine and the processes that it started. Any thread may call it; `close` must follow."""
        self._is_usable = False
        connection, self._connection = self._connection, -1  # one assignment: two threads must not close it twice
        if connection >= 0:
            os.close(connection)

    def close(self) -> None:
        """Ends the engine, with `quit` if it is usable, and frees its resources."""
        if self._is_usable:
            with contextlib.suppress(OSError):
                self._stdin.write(b"quit\n")
                self._stdin.close()
            deadline = time.monotonic() + QUIT_SECONDS
            while self._read(deadline):
                pass
        self.kill()
        self._process.wait()
        for file in (self._stdin, self._stdout, self._log):
            file.close()

    def _answer(self, command: str) -> str:
        """Writes the command and reads up to the empty line after its answer."""
        deadline = time.monotonic() + self.seconds
        # The pipe has room for the command: the engine has answered all commands before it. If the engine has ended or
        # closed its input, reading its output will show which.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(f"{self._number} {command}\n".encode())
        num_bytes = len(self._unread)  # a superfluous earlier answer counts too
        lines: list[str] = []  # the answer
        before = ""  # the last line before it
        while True:
            end = self._unread.find(b"\n")
            if end < 0:
                chunk = self._read(deadline)
                num_bytes += len(chunk or b"")
                if chunk is None:
                    output = lines[0] if lines else _cleaned(self._unread) or before
                    tail = _shown(output) if output else "(none)"
                    raise EngineError(
                        f"{self.name} did not answer `{command}` within {self.seconds:g} s; output: {tail}"
                    )
                if not chunk:
                    raise EngineError(f"{self.name} {self._how_it_ended()} at `{command}`{self._log_tail()}")
                if num_bytes > MAX_ANSWER_BYTES:
                    raise EngineError(f"{self.name} wrote more than {MAX_ANSWER_BYTES:,} bytes at `{command}`")
                self._unread += chunk
                continue
            text = _cleaned(self._unread[:end])
            del self._unread[: end + 1]
            if lines and not text:
                return self._checked(command, lines)
            is_answer = ANSWER.match(text) if self._number == 1 else text.startswith(("=", "?"))
            if lines or is_answer:
                lines.append(text)
            else:
                before = text or before

    def _checked(self, command: str, lines: list[str]) -> str:
        """Text of an answer, after checks of its sign and its number, with which its first line begins."""
        sign, first = lines[0][0], lines[0][1:]
        text = first.lstrip(string.digits)
        digits = first[: len(first) - len(text)]
        text = "\n".join([text.strip(), *lines[1:]])
        if digits != str(self._number):  # for example a second answer to the request before
            raise EngineError(
                f"{self.name} answered `{command}` with {_shown(lines[0])}, without the number {self._number}"
            )
        if sign == "?":
            raise EngineFailureError(f"{self.name} rejected `{command}`: {text[:MAX_SHOWN] or '(no reason given)'}")
        return text

    def _read(self, deadline: float) -> bytes | None:
        """Next bytes of the output: empty at its end, None at the deadline."""
        poll = select.poll()  # `select` fails for descriptors above 1,023, as in matches of many engines
        poll.register(self._stdout, select.POLLIN)
        left = deadline - time.monotonic()
        return self._stdout.read(READ_BYTES) if left > 0 and poll.poll(1000 * left) else None

    def _how_it_ended(self) -> str:
        """How the engine ended, after the end of its output."""
        try:
            status = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        if SIGNALLED < status < SIGNALLED + signal.NSIG:
            return f"was killed by signal {status - SIGNALLED}"
        return f"ended with status {status}"

    def _log_tail(self) -> str:
        """Last line of the standard error, as the end of a message."""
        lines = [text for line in self.diagnostics.splitlines() if (text := _cleaned(line.encode()).strip())]
        return f"; log tail: {lines[-1][:MAX_SHOWN]}" if lines else ""


def _cleaned(line: bytes | bytearray) -> str:
    """A line without control characters and trailing blanks, as GTP requires."""
    text = line.decode("ascii", errors="replace")
    return "".join(letter for letter in text if letter == "\t" or " " <= letter != "\x7f").rstrip()


def _shown(text: str) -> str:
    """Engine output for a message, shortened and in quotes."""
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")
