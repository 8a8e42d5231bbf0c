"""The loop of the Go Text Protocol: reads a command and writes its answer, until `quit` or the end of the input."""

import logging
from collections.abc import Callable
from itertools import chain
from typing import IO, Any, TextIO

from zero.errors import ZeroError
from zero.interop.gtp.engine import Engine
from zero.interop.gtp.protocol import CommandError, Lines, failure, parse_command, success

log = logging.getLogger(__name__)


def serve_gtp(commands: IO[Any], answers: TextIO, new_engine: Callable[[Callable[[float], bool]], Engine]) -> None:
    """Answers commands until `quit`, until the input ends, or until no one reads the answers.

    Args:
      commands: input; it is read from its file descriptor, so pass `sys.stdin` unread.
      answers: output.
      new_engine: makes the engine. Its argument waits up to a number of seconds and returns True if the next line has
        come.
    """
    lines = Lines(commands)
    try:
        _serve(lines, answers, new_engine(lines.wait))
    except (BrokenPipeError, KeyboardInterrupt):
        return


def _serve(lines: Lines, answers: TextIO, engine: Engine) -> None:
    def write(text: str) -> None:
        answers.write(text)
        answers.flush()

    while not engine.has_quit:
        try:
            line = lines.next()
        except CommandError as error:
            write(failure("", str(error)))
            continue
        if line is None:
            return
        if (command := parse_command(line)) is None:
            continue
        try:
            result = engine.run(command.name, command.arguments)
            if isinstance(result, str):
                write(success(command.id, result))
                continue
            first = next(result, None)  # if this fails, the answer can still begin with `?`
        except ZeroError as error:
            write(failure(command.id, str(error)))
            continue
        write(f"={command.id}\n")
        try:
            for row in chain([] if first is None else [first], result):
                write(f"{row}\n")
        except ZeroError as error:
            log.warning("%s ended early: %s", command.name, error)  # the answer has begun and cannot become a failure
        write("\n")
