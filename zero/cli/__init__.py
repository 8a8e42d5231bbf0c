"""The command `zero`. One line an error; the experiment is in `params.yaml` and never in a flag."""

import logging
import sys
from typing import Any

import typer

from zero.cli import audit, lineages, operations, reproduce, shards, stages, tools  # noqa: F401 # each adds its commands to the app
from zero.cli.app import app
from zero.errors import ZeroError


def main() -> Any:
    """Runs the command; an error that a user can cause is one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        app()
    except ZeroError as error:
        typer.echo(f"zero: {error}", err=True)
        sys.exit(1)
