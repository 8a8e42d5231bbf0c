"""The command `zero`. One line an error; the experiment is in `params.yaml` and never in a flag."""

import errno
import logging
import sys
from typing import Any

import typer

from zero.cli import (  # each adds its commands to the app
    audit,  # noqa: F401
    lineages,  # noqa: F401
    operations,  # noqa: F401
    players,  # noqa: F401
    reproduce,  # noqa: F401
    shards,  # noqa: F401
    stages,  # noqa: F401
    tools,  # noqa: F401
)
from zero.cli.app import app
from zero.errors import ZeroError

NO_ROOM = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room, or ask for more",
    errno.EROFS: "make it writable",
}
"""What the disk says, wherever a command is just writing, and the remedy."""


def main() -> Any:
    """Runs the command; an error that a user can cause is one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        app()
    except ZeroError as error:
        typer.echo(f"zero: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        where = f"cannot write {error.filename}" if error.filename else "cannot write"
        remedy = f"{NO_ROOM[error.errno]} and run the same command again"
        typer.echo(f"zero: {where}: {error.strerror}; {remedy}", err=True)
        sys.exit(1)
