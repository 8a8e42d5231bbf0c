"""Commands that check the record, find what a bad object affected, and reproduce a recorded generation."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zero.cli.app import LINEAGES, Json, app, complete_player, complete_tag, note
from zero.config.settings import home_dir, tracking_uri
from zero.errors import ZeroError

if TYPE_CHECKING:
    from zero.audit import Audit
    from zero.audit.reproduce import Reproduction

MISMATCH, INCOMPLETE = 1, 3
"""Exit status of an audit with mismatches, and of one without that could not check everything."""
HASH_DIGITS = 12


@app.command(rich_help_panel=LINEAGES)
def audit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[LINEAGE | TAG]",
            help="A lineage, or a generation with its ancestors.",
            autocompletion=complete_player,
        ),
    ] = "",
    key: Annotated[
        Path | None,
        typer.Option(help="Public key (PEM) that must verify every attestation, besides the key in the record."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Checks the complete record: tags, ledger, data, matches, signatures and MLflow against one another.

    Exit status 0: everything agrees; 1: a mismatch was found; 3: no mismatch, but something is missing on this machine
    and was not checked. Without MLflow it needs no network. MLflow is checked if MLFLOW_TRACKING_URI names a server or
    `make up` started one.
    """
    from zero.audit import audit as audit_record
    from zero.progress import progress_of

    home = home_dir()
    uri = tracking_uri(home)
    started = time.monotonic()
    with progress_of("audit", "generations") as progress:
        found = audit_record(home, target, uri, _key(key), progress)
    if as_json:
        verdict = {"has_mismatch": found.has_mismatch, "incomplete": found.incomplete}
        typer.echo(json.dumps(found.model_dump(mode="json") | verdict, indent=1, sort_keys=True))
    else:
        _show_audit(found, time.monotonic() - started)
    if found.has_mismatch or found.incomplete:
        raise typer.Exit(MISMATCH if found.has_mismatch else INCOMPLETE)


@app.command(rich_help_panel=LINEAGES)
def impact(
    subject: Annotated[
        str,
        typer.Argument(metavar="SHA | COMMIT | WORKER", help="At least 7 digits of a digest or commit, or a worker."),
    ],
    as_json: Json = False,
) -> None:
    """Lists every generation, in all lineages, that a shard, network, commit, package lock or worker affected."""
    from zero.audit.impact import impact as impact_of
    from zero.storage.store import open_store

    home = home_dir()
    with open_store(home) as store:
        found = impact_of(home, subject, store)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    typer.echo(f"{found.subject} is {found.what}")
    for use in found.uses:
        typer.echo(f"{use.tag} {use.how}: {'; '.join(use.reasons)}")
    number = len(found.uses)
    typer.echo(f"{number or 'no'} generation{'' if number == 1 else 's'} affected")


def _show_audit(found: "Audit", seconds: float) -> None:
    """Prints one table, a line for each finding, and a summary."""
    from rich.console import Console
    from rich.table import Table

    from zero.audit import Mark

    styles = {Mark.MISMATCH: "bold red", Mark.MISSING: "yellow", Mark.NOT_CHECKED: "dim"}
    console = Console()
    table = Table(title="audit", title_justify="left")
    table.add_column("generation", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("checks ok", justify="right", no_wrap=True)
    table.add_column("not ok")
    for row in found.rows:
        checks = {mark: [check for check, its in row.marks.items() if its == mark] for mark in (Mark.OK, *styles)}
        not_ok = (f"[{style}]{mark}: {', '.join(checks[mark])}[/]" for mark, style in styles.items() if checks[mark])
        count = f"{len(checks[Mark.OK])} of {sum(map(len, checks.values()))}"
        table.add_row(row.tag, row.kind or "none", count, "; ".join(not_ok))
    console.print(table)
    for finding in found.findings:
        console.print(finding.line(), style=styles[finding.mark], markup=False, highlight=False, soft_wrap=True)
    number, missing = (
        sum(finding.mark == mark for finding in found.findings) for mark in (Mark.MISMATCH, Mark.MISSING)
    )
    verdict = f"{number or 'no'} mismatch{'' if number == 1 else 'es'}"
    verdict += f", {missing} missing and not checked" if missing else ""
    server = f"MLflow {found.mlflow}" if found.mlflow else "MLflow not checked"
    line = f"{len(found.rows)} generations in {seconds:.1f} s: {verdict} ({server})"
    console.print(line, highlight=False, soft_wrap=True)


def _key(path: Path | None) -> bytes | None:
    from zero.record.signing import read_public_key

    if path is None:
        return None
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise ZeroError(f"cannot read the key {path}: {error.strerror}; give a public key file (PEM)") from None
    read_public_key(pem, str(path))
    return pem


@app.command(rich_help_panel=LINEAGES)
def reproduce(
    tag: Annotated[str, typer.Argument(help="A generation, such as go9/gen-0012.", autocompletion=complete_tag)],
    sample: Annotated[
        int, typer.Option(min=0, help="Only play this many random shards of self-play and of the match again.")
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

    if sample:
        found = sample_generation(home_dir(), tag, sample, note)
    else:
        found = reproduce_generation(home_dir(), tag, note, keep.resolve() if keep else None)
    if as_json:
        typer.echo(json.dumps(found.model_dump(mode="json") | {"equal": found.equal}))
    else:
        _show_reproduction(found)
    if not found.equal:
        raise typer.Exit(1)


def _show_reproduction(found: "Reproduction") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"reproduction of {found.tag}", title_justify="left")
    table.add_column("stage", no_wrap=True)
    table.add_column("output", overflow="fold")
    table.add_column("recorded", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("seconds", no_wrap=True, justify="right")
    for stage in found.stages:
        for index, out in enumerate(stage.outs):
            name, seconds = (stage.stage, f"{stage.seconds:.1f}") if index == 0 else ("", "")
            table.add_row(name, out.path, _short(out.then), "equal" if out.equal else "DIFFERS", seconds)
    Console().print(table)
    for line in lines_about(found):
        typer.echo(line)


def lines_about(found: "Reproduction") -> list[str]:
    """Lines below the table: differences, execution profiles, verdict."""
    different = [out for stage in found.stages for out in stage.outs if not out.equal]
    lines = [f"{out.path}: recorded {_short(out.then)}, reproduced {_short(out.now)}" for out in different]
    first = [f"{out.path}: {out.first}" for out in different if out.first]
    lines += ["first differences:", *first] if first else []
    profile = ", ".join(f"{name} {value}" for name, value in found.profile_now.items())
    if found.other_profile:
        changes = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in found.other_profile.items())
        lines.append(f"the execution profile differs: {changes}; equal bytes are guaranteed for equal profiles only")
    else:
        lines.append(f"equal execution profile: {profile}")
    if found.lock_equal is not None:
        lines.append("dvc.lock " + ("is equal, byte for byte" if found.lock_equal else "differs"))
    seconds = sum(stage.seconds for stage in found.stages)
    lines.append(f"{found.tag} {'equals the record' if found.equal else 'DIFFERS from the record'} ({seconds:.0f} s)")
    if found.folder:
        lines.append(f"the clone is {found.folder}")
    return lines


def _short(digest: str) -> str:
    return digest[:HASH_DIGITS] or "none"
