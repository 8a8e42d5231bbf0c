"""The loop of the Go Text Protocol: a line in, an answer out, until `quit` or the end of the input."""

import logging
from collections.abc import Callable
from itertools import chain
from typing import Protocol

from zero.errors import ZeroError
from zero.interop.gtp.engine import Engine
from zero.interop.gtp.protocol import CommandError, HasFile, Lines, answer, command_of, refusal

log = logging.getLogger(__name__)


class Output(Protocol):
    """Where answers go: a text stream."""

    def write(self, text: str, /) -> object:
        """Writes text."""
        ...

    def flush(self) -> None:
        """Sends what was written."""
        ...


def serve_gtp(lines_in: HasFile, lines_out: Output, new_engine: Callable[[Callable[[float], bool]], Engine]) -> None:
    """Answers commands until `quit`, the end of the input, or until nobody reads the answers.

    Args:
      lines_in: commands; read by its descriptor, so give `sys.stdin` unread.
      lines_out: answers.
      new_engine: makes the engine; what it is given waits so many seconds at most and says whether a next line has
        come.
    """
    lines = Lines(lines_in)
    try:
        _serve(lines, lines_out, new_engine(lines.wait))
    except (BrokenPipeError, KeyboardInterrupt):
        return


def _serve(lines: Lines, lines_out: Output, engine: Engine) -> None:
    def tell(text: str) -> None:
        lines_out.write(text)
        lines_out.flush()

    while not engine.has_quit:
        try:
            line = lines.next()
        except CommandError as error:
            tell(refusal("", str(error)))
            continue
        if line is None:
            return
        if (command := command_of(line)) is None:
            continue
        try:
            result = engine.run(command.name, command.arguments)
            if isinstance(result, str):
                tell(answer(command.id, result))
                continue
            first = next(result, None)  # before the sign of success is sent
        except ZeroError as error:
            tell(refusal(command.id, str(error)))
            continue
        tell(f"={command.id}\n")
        try:
            for row in chain([] if first is None else [first], result):
                tell(f"{row}\n")
        except ZeroError as error:
            log.warning("%s ends early: %s", command.name, error)  # its answer has begun and cannot be taken back
        tell("\n")
