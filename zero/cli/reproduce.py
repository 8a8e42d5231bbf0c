"""The command that computes a recorded generation again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zero.cli.app import LINEAGES, Json, app
from zero.config.settings import home_dir
from zero.errors import ZeroError

if TYPE_CHECKING:
    from zero.audit.reproduce.results import Compared, Reproduction

TABLE_WIDTH = 120
HASH_DIGITS = 12


@app.command(rich_help_panel=LINEAGES)
def reproduce(
    tag: Annotated[str, typer.Argument(help="A generation, such as go9/gen-0012.")],
    sample: Annotated[
        int, typer.Option(min=0, help="Only play this many random shards of self-play and of the match again.")
    ] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the clone in this folder; a second call goes on where the first stopped.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Computes a generation again in a clean clone, by its own code, and compares every hash with the record.

    The exit status is 0 only where everything came out the same.
    """
    from zero.audit.reproduce import reproduce as reproduce_generation
    from zero.audit.reproduce import sample as sample_generation

    if sample and keep:
        raise ZeroError("a sample keeps nothing; give --sample or --keep, not both")

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

    table = Table(title=f"{found.tag} computed again", title_justify="left")
    for column in ("stage", "what", "then", "now", "", "seconds"):
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
    """What the table does not say: where it differs first, the profiles, the verdict."""
    lines = [f"{out.path}: {out.first}" for stage in found.stages for out in stage.outs if out.first]
    lines[:0] = ["first differences:"] if lines else []
    profile = ", ".join(f"{name} {value}" for name, value in found.profile_now.items())
    if found.other_profile:
        changes = ", ".join(f"{name} {then} then, {now} now" for name, (then, now) in found.other_profile.items())
        lines.append(f"another execution profile: {changes}; equal bytes are promised on one profile only")
    else:
        lines.append(f"execution profile, then as now: {profile}")
    if found.match:
        match = found.match
        verdict = "so chance explains the difference" if match.agrees else "which chance does not explain"
        lines.append(
            f"the challenger's score in the match was {match.then.score:.1%}, now it is {match.now.score:.1%}: "
            f"{match.difference:+.1%} (95 % interval {match.interval[0]:+.1%} to {match.interval[1]:+.1%}), {verdict}"
        )
    if found.lock_equal is not None:
        lines.append("dvc.lock is " + ("the same, byte for byte" if found.lock_equal else "another one"))
    seconds = sum(stage.seconds for stage in found.stages)
    lines.append(f"{found.tag} {'equals the record' if found.equal else 'DIFFERS from the record'} ({seconds:.0f} s)")
    if found.folder:
        lines.append(f"everything is in {found.folder}")
    return lines


def _hashes(out: "Compared") -> tuple[str, str]:
    return out.then[:HASH_DIGITS], out.now[:HASH_DIGITS]
