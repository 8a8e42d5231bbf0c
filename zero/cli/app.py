"""The command `zero` itself, the panels of its help, and the arguments that many commands have."""

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Trains AlphaGo Zero players whose every generation can be rebuilt and audited.

A **lineage** is a chain of generations. Make one with `zero new go9`, make a generation with
`prefect deployment run zero-generation` (or with `dvc repro` in its workspace and `zero advance go9`),
see where it stands with `zero status`.""",
)
STAGES = "Stages (run by `dvc repro` in a lineage's workspace)"
LINEAGES = "Lineages"
SHARDS = "Shards (run by executors)"
PLAYERS = "Players"
TOOLS = "Tools"

Lineage = Annotated[str, typer.Argument(help="Name of the lineage.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of prose.")]
