"""The command `zero`: its options, its help panels, and what several commands have in common."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel

from zero.config.params import PARAMS_FILE, preset_text, presets
from zero.config.settings import PROGRESS_OFF, home_dir, is_quiet
from zero.errors import LineageError, ZeroError
from zero.record.ledger import lineages_here
from zero.storage.vcs import git

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Trains AlphaGo Zero players. Every generation can be rebuilt bit for bit and audited.

A **lineage** is a chain of generations. `zero new go9` creates one. `prefect deployment run zero-generation` makes its
next generation; without Prefect, run `dvc repro` in its workspace and then `zero advance go9`. `zero status` shows the
result. `zero` without a command shows where the project stands.

**Exit status**: 0 success; 1 an error, reported in one line on standard error, or a check that failed; 2 wrong
arguments; 3 an audit that found no mismatch but could not check everything; 130 interrupted with Ctrl-C.""",
)
STAGES = "Stages (run by `dvc repro` in a lineage's workspace)"
LINEAGES = "Lineages"
SHARDS = "Shards (run by executors)"
PLAYERS = "Players"
TOOLS = "Tools"


def complete_lineage(incomplete: str) -> list[str]:
    """Names of lineages for the shell's completion."""
    return [name for name in lineages_here(home_dir()) if name.startswith(incomplete)]


def complete_tag(incomplete: str) -> list[str]:
    """Tags of generations for the shell's completion; empty outside a project."""
    try:
        tags = git(home_dir(), "tag", "--list", "*/gen-*").split()
    except LineageError:
        return []
    return [tag for tag in tags if tag.startswith(incomplete)]


def complete_player(incomplete: str) -> list[str]:
    """Lineages, and the generations of a lineage once its name is written."""
    return [*complete_lineage(incomplete), *(complete_tag(incomplete) if "/" in incomplete else ())]


def complete_preset(incomplete: str) -> list[str]:
    """Names of presets for the shell's completion."""
    return [name for name in presets() if name.startswith(incomplete)]


Lineage = Annotated[str, typer.Argument(help="Name of the lineage.", autocompletion=complete_lineage)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.callback()
def start(
    context: typer.Context,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no notes: only results, warnings and errors.")
    ] = False,
) -> None:
    """Applies the options of `zero`. Without a command it shows where the project stands."""
    if quiet:
        os.environ["ZERO_PROGRESS"] = PROGRESS_OFF  # in the environment, so that child processes are quiet too
    if is_quiet():
        logging.getLogger().setLevel(logging.WARNING)
    if context.invoked_subcommand is None:
        from zero.lineage.overview import overview_lines

        for line in overview_lines(home_dir()):
            typer.echo(line)


def note(line: str) -> None:
    """Prints a note about the work on standard error, but not with `--quiet`."""
    if not is_quiet():
        typer.echo(line, err=True)


def params_source(preset: str, params: Path | None) -> tuple[str, str]:
    """Text and name of the parameters that a command starts with: a preset, a file, or the project's own.

    Raises:
      ZeroError: both are given, there is no such preset, or the file cannot be read.
    """
    if preset and params:
        raise ZeroError("--preset and --params exclude each other; give one of them")
    if preset:
        return preset_text(preset), f"preset {preset}"
    path = params or home_dir() / PARAMS_FILE
    try:
        return path.read_text("utf-8", errors="replace"), str(path)
    except OSError as error:
        raise ZeroError(f"cannot read {path}: {error.strerror}; give --preset, one of {', '.join(presets())}") from None


def show(result: BaseModel, as_json: bool, tables: Iterable["Table"] = (), lines: Iterable[str] = ()) -> None:
    """Prints a result: as JSON, or as tables and lines."""
    if as_json:
        typer.echo(result.model_dump_json())  # one line: a flow reads JSON line by line
        return
    from rich.console import Console

    for table in tables:
        Console().print(table)
    for line in lines:
        typer.echo(line)


@contextmanager
def tracking_is_optional(remedy: str) -> Iterator[None]:
    """Logs an error of tracking as a warning with `remedy`, because the result is already on disk."""
    try:
        yield
    except ZeroError as error:
        typer.echo(f"not tracked: {error}; {remedy}", err=True)
