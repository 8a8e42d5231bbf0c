"""The command `zero`: its help panels, arguments that several commands have, and the warning about MLflow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from zero.errors import ZeroError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Trains AlphaGo Zero players. Every generation can be rebuilt bit for bit and audited.

A **lineage** is a chain of generations. `zero new go9` creates one. `prefect deployment run zero-generation` makes its
next generation; without Prefect, run `dvc repro` in its workspace and then `zero advance go9`. `zero status` shows the
result.

**Exit status**: 0 success; 1 an error, reported in one line on standard error, or a check that failed; 2 wrong
arguments; 3 an audit that found no mismatch but could not check everything.""",
)
STAGES = "Stages (run by `dvc repro` in a lineage's workspace)"
LINEAGES = "Lineages"
SHARDS = "Shards (run by executors)"
PLAYERS = "Players"
TOOLS = "Tools"

Lineage = Annotated[str, typer.Argument(help="Name of the lineage.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@contextmanager
def tracking_is_optional(remedy: str) -> Iterator[None]:
    """Turns an error of tracking into a warning with `remedy`: the result itself is already on disk."""
    try:
        yield
    except ZeroError as error:
        typer.echo(f"not tracked: {error}; {remedy}", err=True)
