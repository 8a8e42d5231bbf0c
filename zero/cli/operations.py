"""Commands that take a lineage back, or begin another at one of its generations."""

import json
from typing import Annotated

import typer

from zero.cli.app import LINEAGES, Json, app
from zero.config.settings import Settings, home_dir
from zero.errors import LineageError, ZeroError

Generation = Annotated[str, typer.Argument(help="A generation of the lineage, such as go9/gen-0004.")]
Name = Annotated[str, typer.Argument(help="Name of the lineage.")]


@app.command(rich_help_panel=LINEAGES)
def rollback(lineage: Name, tag: Generation, as_json: Json = False) -> None:
    """Lets a lineage go on from one of its earlier generations: champion, trainee and window are restored.

    Recorded as a generation of its own; nothing is deleted. Code and parameters stay as they are. Can be repeated.
    """
    from zero.lineage.rollback import rollback as roll_back
    from zero.lineage.workspace import writer_lock
    from zero.record.ledger import find_workspace

    home = home_dir()
    workspace = find_workspace(home, lineage)
    with writer_lock(workspace):
        done = roll_back(home, workspace, tag)
    _tell(lineage, done.tag, done.commit, tag, "is rolled back to", as_json)


@app.command(rich_help_panel=LINEAGES)
def branch(
    lineage: Name,
    tag: Generation,
    new: Annotated[str, typer.Argument(help="Name of the lineage to make.")],
    as_json: Json = False,
) -> None:
    """Begins a new lineage at a generation of another: with its code, parameters, champion, trainee and window.

    With unchanged parameters its next generation is that of the other lineage, game by game and bit by bit.
    """
    from zero.lineage.rollback import branch as branch_off

    if not tag.startswith(f"{lineage}/"):
        raise LineageError(f"{tag} is not of lineage {lineage!r}; name one of its generations, {lineage}/gen-0000")
    done = branch_off(home_dir(), tag, new)
    _tell(new, done.tag, done.commit, tag, "branches from", as_json)


def _tell(lineage: str, made: str, commit: str, source: str, words: str, as_json: bool) -> None:
    from zero.record.ledger import find_workspace
    from zero.tracking.catch_up import catch_up

    home = home_dir()
    if uri := Settings().tracking_uri:
        try:
            catch_up(home, find_workspace(home, lineage), uri)
        except ZeroError as error:  # the record is made; tracking can be caught up
            typer.echo(f"not tracked: {error}; catch up later with `zero track {lineage}`", err=True)
    if as_json:
        typer.echo(json.dumps({"lineage": lineage, "tag": made, "commit": commit, "source": source}))
    else:
        typer.echo(f"{lineage} {words} {source}; recorded as {made}")
        typer.echo(f"next: prefect deployment run zero-generation --watch --param lineage={lineage}")
