"""Commands that check the record, and find what a bad object affected."""

import time
from pathlib import Path
from typing import Annotated

import typer

from zero.cli.app import LINEAGES, Json, app
from zero.config.settings import Settings, home_dir
from zero.errors import ZeroError

MISMATCH, INCOMPLETE = 1, 3
"""Exit status of an audit with mismatches, and of one without that could not check everything."""


@app.command(rich_help_panel=LINEAGES)
def audit(
    target: Annotated[
        str,
        typer.Argument(metavar="[LINEAGE | TAG]", help="A lineage, or a generation with its ancestors."),
    ] = "",
    key: Annotated[
        Path | None, typer.Option(help="Public key (PEM) that must have signed, in addition to the key in the record.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Checks the complete record: tags, ledger, data, matches, signatures and MLflow against one another.

    Exit status 0: everything agrees; 1: something does not; 3: nothing disagrees, but something is missing on this
    machine and was not checked. Needs no network. MLflow is checked if MLFLOW_TRACKING_URI names a server or `make up`
    started one.
    """
    from zero.audit import as_json as audit_json
    from zero.audit import audit as audit_record
    from zero.audit.console import print_audit
    from zero.lineage.status import servers

    home = home_dir()
    uri = Settings().tracking_uri or servers(home).get("mlflow", "")
    started = time.monotonic()
    found = audit_record(home, target, uri, _key(key))
    if as_json:
        typer.echo(audit_json(found))
    else:
        print_audit(found, time.monotonic() - started)
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
