"""Commands about lineages: make one, see it, record its generations."""

import json
from pathlib import Path
from typing import Annotated

import typer

from zero.cli.app import LINEAGES, Json, Lineage, app
from zero.config.presets import preset_text, presets
from zero.config.settings import Settings, home_dir
from zero.errors import ServerError, ZeroError


@app.command(rich_help_panel=LINEAGES)
def new(
    lineage: Lineage = "go9",
    preset: Annotated[str, typer.Option(help=f"Parameters to begin with: {', '.join(presets())}.")] = "",
    params: Annotated[Path | None, typer.Option(help="A parameters file instead of a preset.")] = None,
) -> None:
    """Makes a lineage: its workspace, its branch, and generation 0, the seeded random network.

    Without `--preset` or `--params` it begins with the project's `params.yaml`. Each `auto` in the file becomes the
    value that is fastest on this machine, and the lineage records that value.
    """
    from zero.config.auto import check_profile, explain, resolve_auto
    from zero.config.params import parse_params
    from zero.lineage.workspace import new_lineage, uncommitted_files
    from zero.network.profile import this_machine

    home = home_dir()
    if preset and params:
        raise ZeroError("give --preset or --params, not both")
    if preset:
        text, source = preset_text(preset), f"preset {preset}"
    else:
        path = params or home / "params.yaml"
        try:
            text, source = path.read_text(errors="replace"), str(path)
        except OSError as error:
            raise ZeroError(
                f"cannot read {path}: {error.strerror}; give --preset, one of {', '.join(presets())}"
            ) from None
    machine = this_machine(text)
    resolved = resolve_auto(text, machine)
    profile = parse_params(resolved, source).profile
    check_profile(profile, machine, source)
    workspace = new_lineage(home, lineage, resolved, source)
    if uncommitted := uncommitted_files(home):
        typer.echo(f"note: a lineage begins from committed code; not in it: {', '.join(uncommitted)}", err=True)
    typer.echo(f"lineage {lineage} begins at {lineage}/gen-0000 in {workspace}")
    if resolved != text:
        typer.echo(explain(profile, machine))
    typer.echo("next: prefect deployment run zero-generation --watch" + _lineage_parameter(lineage))


@app.command(rich_help_panel=LINEAGES)
def status(
    lineage: Annotated[str, typer.Argument(help="Name of the lineage; all when not given.")] = "",
    as_json: Json = False,
) -> None:
    """Shows where the lineages stand: champion, last decisions, and what is next."""
    from zero.lineage.status import print_status, servers, status_json

    home = home_dir()
    names = _names(home, lineage)
    if as_json:
        typer.echo(json.dumps(status_json(home, names), indent=1, sort_keys=True))
        return
    if not names:
        typer.echo(f"no lineage in {home} yet; make one with `zero new go9`")
    for name in names:
        print_status(home, name)
    for server, address in servers(home).items():
        typer.echo(f"{server}: {address}")


@app.command(rich_help_panel=LINEAGES)
def resignation(lineage: Lineage = "go9") -> None:
    """Shows what resignation cost in each generation: calibration games, false positives, thresholds."""
    from zero.lineage.status import print_resignation

    print_resignation(home_dir(), lineage)


@app.command(rich_help_panel=LINEAGES)
def prepare(lineage: Lineage = "go9") -> None:
    """Checks a lineage's workspace and sets it up for its next generation."""
    from zero.lineage.registry import prepare as prepare_workspace
    from zero.lineage.workspace import writer_lock
    from zero.record.ledger import find_workspace

    workspace = find_workspace(home_dir(), lineage)
    with writer_lock(workspace):
        current = prepare_workspace(workspace)
    typer.echo(json.dumps({"generation": current.model_dump(mode="json"), "workspace": str(workspace)}))


@app.command(rich_help_panel=LINEAGES)
def advance(
    lineage: Lineage = "go9",
    generation: Annotated[
        int | None, typer.Option(help="Generation to record; the one in the making if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Records a finished generation (the registry stage) and sets up the next.

    Ledger line, provenance, commit, tag, `dvc push`, MLflow version and aliases, state rolled forward. Can be repeated.
    """
    from zero.lineage.registry import advance as advance_workspace
    from zero.lineage.status import decision_lines, warning_lines
    from zero.lineage.workspace import writer_lock
    from zero.record.ledger import find_workspace
    from zero.record.lineages import workspace_generations

    home = home_dir()
    workspace = find_workspace(home, lineage)
    with writer_lock(workspace):
        done = advance_workspace(workspace, generation)
    url = None
    if Settings().tracking_uri:
        try:
            url = _track(home, workspace, Settings().tracking_uri)
        except ZeroError as error:  # the record is made; tracking can be caught up
            typer.echo(f"not tracked: {error}; catch up later with `zero track {lineage}`", err=True)
    with workspace_generations(workspace) as generations:
        warnings = warning_lines(next(each for each in generations if each.tag == done.tag))
    if as_json:
        promoted = done.entry.decision.promoted if done.entry.decision else True
        typer.echo(
            json.dumps(
                {
                    "lineage": done.entry.lineage,
                    "generation": done.entry.generation,
                    "tag": done.tag,
                    "commit": done.commit,
                    "promoted": promoted,
                    "mlflow_url": url,
                    "warnings": warnings,
                }
            )
        )
    else:
        for line in decision_lines(done.entry, done.tag):
            typer.echo(line)
        for line in warnings:
            typer.echo(f"warning: {line}")
        if url:
            typer.echo(f"MLflow run: {url}")


@app.command(rich_help_panel=LINEAGES)
def track(
    lineage: Lineage = "go9",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Delete what MLflow has of the lineage and write all of it again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Writes to MLflow the recorded generations it does not have yet.

    The server is that of MLFLOW_TRACKING_URI, else the one that `make up` started.
    """
    from zero.lineage.status import servers
    from zero.record.ledger import find_workspace
    from zero.tracking.catch_up import rebuild as rebuild_notebook

    home = home_dir()
    uri = Settings().tracking_uri or servers(home).get("mlflow", "")
    if not uri:
        raise ServerError("no MLflow server: start one with `make up`, or set MLFLOW_TRACKING_URI to an address")
    workspace = find_workspace(home, lineage)
    if rebuild:
        rebuild_notebook(home, workspace, uri)
    url = _track(home, workspace, uri)
    typer.echo(json.dumps({"lineage": lineage, "mlflow_url": url}) if as_json else f"{lineage} is tracked: {url}")


@app.command(rich_help_panel=LINEAGES)
def restore(lineage: Lineage = "go9") -> None:
    """Makes a lineage's workspace again out of its branch and the DVC remote, where it was lost."""
    from zero.lineage.workspace import restore_lineage
    from zero.record.ledger import read_ledger

    workspace = restore_lineage(home_dir(), lineage)
    newest = read_ledger(workspace)[-1].generation
    typer.echo(f"lineage {lineage} is in {workspace}; next is generation {newest + 1}")


@app.command(rich_help_panel=LINEAGES)
def stop(lineage: Lineage = "go9") -> None:
    """Asks a running campaign to stop after the generation in hand."""
    from zero.lineage.workspace import request_stop
    from zero.record.ledger import find_workspace

    request_stop(find_workspace(home_dir(), lineage))
    typer.echo(f"the campaign of {lineage} stops after the generation in hand")


@app.command(rich_help_panel=LINEAGES)
def provenance(
    tag: Annotated[str, typer.Argument(help="A generation, such as go9/gen-0001.")],
    key: Annotated[Path | None, typer.Option(help="Public key (PEM) to check with.")] = None,
) -> None:
    """Prints the attestation of a generation: the digests of its weights and of everything they were made from.

    Exit status 1: the signature is not valid for the key.
    """
    from zero.record.attestation import recorded_attestation

    attestation, is_signed = recorded_attestation(home_dir(), tag, key)
    typer.echo(json.dumps(json.loads(attestation), indent=1, sort_keys=True))
    typer.echo(f"signature: {'valid' if is_signed else 'NOT valid for this key'}", err=True)
    if not is_signed:
        raise typer.Exit(1)


@app.command(rich_help_panel=LINEAGES)
def checkout(
    tag: Annotated[str, typer.Argument(help="A generation, such as go9/gen-0001.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
) -> None:
    """Clones a generation with its data into a folder of its own, to look at it or to run `dvc repro` there."""
    from zero.lineage.workspace import checkout_generation

    checkout_generation(home_dir(), tag, folder.resolve())
    typer.echo(f"{tag} is in {folder}; `cd {folder} && dvc repro` says that nothing has changed")


def _track(home: Path, workspace: Path, uri: str) -> str:
    from zero.tracking import champion_url
    from zero.tracking.catch_up import catch_up

    receipts = catch_up(home, workspace, uri)
    if receipts:
        return receipts[-1].url
    from zero.record.ledger import read_ledger

    return champion_url(read_ledger(workspace)[0].lineage, uri)


def _names(home: Path, lineage: str) -> list[str]:
    from zero.record.ledger import find_workspace, lineages

    if lineage:
        find_workspace(home, lineage)
        return [lineage]
    return lineages(home)


def _lineage_parameter(lineage: str) -> str:
    return "" if lineage == "go9" else f" --param lineage={lineage}"
