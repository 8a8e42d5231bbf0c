"""The command that reproduces a recorded generation."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zero.cli.app import LINEAGES, Json, app
from zero.config.settings import home_dir
from zero.errors import ZeroError

if TYPE_CHECKING:
    from zero.audit.results import Compared, Reproduction

TABLE_WIDTH = 120
HASH_DIGITS = 12


@app.command(rich_help_panel=LINEAGES)
def reproduce(
    tag: Annotated[str, typer.Argument(help="A generation, such as go9/gen-0012.")],
    sample: Annotated[
        int, typer.Option(min=0, help="Only replay this many random shards of self-play and of the match.")
    ] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the clone in this folder; a second call continues an interrupted one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Computes a generation again in a clean clone with its own code and compares every hash with the record.

    Exit status 0: all hashes are equal; 1: at least one differs.
    """
    from zero.audit.reproduce import reproduce as reproduce_generation
    from zero.audit.reproduce import sample as sample_generation

    if sample and keep:
        raise ZeroError("--sample and --keep exclude each other (a sample has no clone); give one of them")

    def listen(line: str) -> None:
        typer.echo(line, err=True)

    if sample:
        found = sample_generation(home_dir(), tag, sample, listen)
    else:
        found = reproduce_generation(home_dir(), tag, listen, keep.resolve() if keep else None)
    if as_json:
        typer.echo(json.dumps(found.model_dump(mode="json") | {"equal": found.equal}))
    else:
        _show(found)
    if not found.equal:
        raise typer.Exit(1)


def _show(found: "Reproduction") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"reproduction of {found.tag}", title_justify="left")
    for column in ("stage", "output", "recorded", "reproduced", "", "seconds"):
        table.add_column(column, no_wrap=True, justify="right" if column == "seconds" else "left")
    for stage in found.stages:
        for index, out in enumerate(stage.outs):
            name, seconds = (stage.stage, f"{stage.seconds:.1f}") if index == 0 else ("", "")
            table.add_row(name, out.path, *_hashes(out), "equal" if out.equal else "DIFFERS", seconds)
    console = Console()
    Console(width=max(TABLE_WIDTH, console.width)).print(table)
    for line in lines_about(found):
        typer.echo(line)


def lines_about(found: "Reproduction") -> list[str]:
    """Lines below the table: first differences, execution profiles, verdict."""
    lines = [f"{out.path}: {out.first}" for stage in found.stages for out in stage.outs if out.first]
    lines[:0] = ["first differences:"] if lines else []
    profile = ", ".join(f"{name} {value}" for name, value in found.profile_now.items())
    if found.other_profile:
        changes = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in found.other_profile.items())
        lines.append(f"the execution profile differs: {changes}; equal bytes are guaranteed for equal profiles only")
    else:
        lines.append(f"equal execution profile: {profile}")
    if found.match:
        match = found.match
        verdict = "compatible with chance" if match.agrees else "not compatible with chance"
        lines.append(
            f"score of the challenger: recorded {match.then.score:.1%}, reproduced {match.now.score:.1%}, difference "
            f"{match.difference:+.1%} (95 % interval {match.interval[0]:+.1%} to {match.interval[1]:+.1%}), {verdict}"
        )
    if found.lock_equal is not None:
        lines.append("dvc.lock " + ("is equal, byte for byte" if found.lock_equal else "differs"))
    seconds = sum(stage.seconds for stage in found.stages)
    lines.append(f"{found.tag} {'equals the record' if found.equal else 'DIFFERS from the record'} ({seconds:.0f} s)")
    if found.folder:
        lines.append(f"the clone is {found.folder}")
    return lines


def _hashes(out: "Compared") -> tuple[str, str]:
    return out.then[:HASH_DIGITS], out.now[:HASH_DIGITS]
