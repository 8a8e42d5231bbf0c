"""The command `zero`. An error is one line; parameters of the experiment are in `params.yaml`, never options."""

import errno
import logging
import sys
from typing import Any

import typer

from zero.cli import (  # each module adds its commands to the app
    audit,  # noqa: F401
    lineages,  # noqa: F401
    players,  # noqa: F401
    report,  # noqa: F401
    shards,  # noqa: F401
    stages,  # noqa: F401
    tools,  # noqa: F401
    web,  # noqa: F401
)
from zero.cli.app import app
from zero.errors import ZeroError

NOT_WRITABLE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EROFS: "mount it writable",
}
"""Remedies for the errors that any write can raise."""
NOT_USABLE = "check that path and its permissions, or give another"
"""Remedy for the other errors of the operating system that name a path."""


class StderrHandler(logging.Handler):
    """Writes log lines to the present standard error, which a progress bar replaces while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        print(self.format(record), file=sys.stderr)


def main() -> Any:
    """Runs the command. An error that a user can cause is one line on standard error and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[StderrHandler()])
    try:
        app()
    except ZeroError as error:
        typer.echo(f"zero: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        path = f" {error.filename}" if error.filename else ""
        if error.errno in NOT_WRITABLE:
            what, remedy = f"cannot write{path}", f"{NOT_WRITABLE[error.errno]} and run the same command again"
        elif path:
            what, remedy = f"cannot use{path}", NOT_USABLE
        else:
            raise
        typer.echo(f"zero: {what}: {error.strerror}; {remedy}", err=True)
        sys.exit(1)
