"""Commands for lineages: create, show, record, track, restore, roll back and branch them."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zero.cli.app import (
    LINEAGES,
    Json,
    Lineage,
    app,
    complete_lineage,
    complete_preset,
    complete_tag,
    note,
    params_source,
    tracking_is_optional,
)
from zero.config.params import presets
from zero.config.settings import home_dir, tracking_uri
from zero.errors import LineageError, ServerError

if TYPE_CHECKING:
    from zero.lineage.registry import Recorded

Tag = Annotated[str, typer.Argument(help="Tag of a generation, such as go9/gen-0004.", autocompletion=complete_tag)]


@app.command(rich_help_panel=LINEAGES)
def new(
    lineage: Lineage = "go9",
    preset: Annotated[
        str, typer.Option(help=f"Initial parameters: {', '.join(presets())}.", autocompletion=complete_preset)
    ] = "",
    params: Annotated[Path | None, typer.Option(help="A parameters file instead of a preset.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another value, such as `seed=7` or `search.c_puct=2`; can be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Creates a lineage: its workspace, its branch, and generation 0, a random network with a fixed seed.

    The default of the parameters is the project's `params.yaml`. Each `auto` in the file is replaced by the fastest
    value for this machine, and the lineage records that value.
    """
    from zero.config.auto import check_profile, explain, resolve_auto
    from zero.config.params import parse_params, with_changes
    from zero.lineage.workspace import new_lineage, uncommitted_files
    from zero.network.profile import this_machine
    from zero.progress import progress_of

    home = home_dir()
    text, source = params_source(preset, params)
    text = with_changes(text, changes or (), source)
    machine = this_machine(text)
    resolved = resolve_auto(text, machine)
    parsed = parse_params(resolved, source)
    check_profile(parsed.profile, machine, source)
    # Without imported games it takes seconds.
    with progress_of("dataset", "games") if parsed.dataset else nullcontext() as progress:
        workspace = new_lineage(home, lineage, resolved, source, progress)
    if uncommitted := uncommitted_files(home):
        typer.echo(f"warning: a lineage starts from committed code; not committed: {', '.join(uncommitted)}", err=True)
    if as_json:
        typer.echo(json.dumps({"lineage": lineage, "tag": f"{lineage}/gen-0000", "workspace": str(workspace)}))
        return
    typer.echo(f"lineage {lineage} starts with {lineage}/gen-0000 in {workspace}")
    if resolved != text:
        typer.echo(explain(parsed.profile, machine))
    note(f"next: make generation LINEAGE={lineage}")


@app.command(rich_help_panel=LINEAGES)
def status(
    lineage: Annotated[
        str, typer.Argument(help="Name of the lineage; by default all lineages.", autocompletion=complete_lineage)
    ] = "",
    last: Annotated[bool, typer.Option("--last", help="Only the last decision, and what to do next.")] = False,
    as_json: Json = False,
) -> None:
    """Shows the state of the lineages: champion, last decisions, next step."""
    from zero.lineage.overview import answering_servers, closing_lines
    from zero.lineage.status import print_status, status_json
    from zero.record.ledger import lineages_here

    home = home_dir()
    names = [lineage] if lineage else lineages_here(home)
    if as_json:
        typer.echo(json.dumps(status_json(home, names), indent=1, sort_keys=True))
        return
    if not names:
        typer.echo(f"no lineage in {home} yet; make one with `zero new go9`")
    for name in names:
        if last:
            typer.echo("\n".join(closing_lines(home, name)))
        else:
            print_status(home, name)
    if not last:
        for server, address in answering_servers(home).items():
            typer.echo(f"{server}: {address}")


@app.command(rich_help_panel=LINEAGES)
def prepare(lineage: Lineage = "go9") -> None:
    """Checks a lineage's workspace and prepares it for the next generation."""
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
        int | None, typer.Option(help="Number of the generation to record; by default the current one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Records a finished generation (the registry stage) and prepares the next one.

    Steps: attestation, ledger line, commit, tag, `dvc push`, `git push`, new state, MLflow. Each step can be repeated.
    """
    from zero.lineage.registry import advance as advance_workspace
    from zero.lineage.status import warning_lines
    from zero.lineage.workspace import writer_lock
    from zero.record.ledger import find_workspace
    from zero.record.lineages import workspace_generations
    from zero.record.texts import entry_lines

    home = home_dir()
    workspace = find_workspace(home, lineage)
    with writer_lock(workspace):
        done = advance_workspace(workspace, generation)
    url = None
    if uri := tracking_uri(home):
        with tracking_is_optional(f"write it later with `zero track {lineage}`"):
            url = _track(home, workspace, uri)
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
        for line in entry_lines(done.entry):
            typer.echo(line)
        for line in warnings:
            typer.echo(f"warning: {line}")
        if url:
            typer.echo(f"MLflow run: {url}")


@app.command(rich_help_panel=LINEAGES)
def track(
    lineage: Lineage = "go9",
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Delete the generations, the ladder and the models in MLflow first.")
    ] = False,
) -> None:
    """Writes the recorded generations to MLflow that are missing there.

    The server is MLFLOW_TRACKING_URI or, without it, the one that `make up` started.
    """
    from zero.record.ledger import find_workspace

    home = home_dir()
    uri = tracking_uri(home)
    if not uri:
        raise ServerError("MLFLOW_TRACKING_URI is not set and no local server runs; set it, or run `make up`")
    workspace = find_workspace(home, lineage)
    url = _track(home, workspace, uri, rebuild)
    typer.echo(f"{lineage} is tracked: {url}")


@app.command(rich_help_panel=LINEAGES)
def restore(lineage: Lineage = "go9") -> None:
    """Restores a lost workspace of a lineage from its branch and the DVC remote."""
    from zero.lineage.workspace import restore_lineage
    from zero.record.ledger import read_ledger

    workspace = restore_lineage(home_dir(), lineage)
    newest = read_ledger(workspace)[-1].generation
    typer.echo(f"lineage {lineage} is in {workspace}; next is generation {newest + 1}")


@app.command(rich_help_panel=LINEAGES)
def stop(lineage: Lineage = "go9") -> None:
    """Requests a running campaign to stop after the current generation."""
    from zero.lineage.workspace import request_stop
    from zero.record.ledger import find_workspace

    request_stop(find_workspace(home_dir(), lineage))
    typer.echo(f"if a campaign of {lineage} is running, it stops after the current generation")


@app.command(rich_help_panel=LINEAGES)
def provenance(
    tag: Tag, key: Annotated[Path | None, typer.Option(help="Public key (PEM) for the check.")] = None
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
def checkout(tag: Tag, folder: Annotated[Path, typer.Argument(help="A new folder.")]) -> None:
    """Clones a generation with its data into a new folder, to inspect it or to run `dvc repro` there."""
    from zero.lineage.workspace import checkout_generation, missing_data

    checkout_generation(home_dir(), tag, folder.resolve())
    if missing := missing_data(folder.resolve()):
        typer.echo(f"{tag} is in {folder} without {', '.join(missing)}, which this machine lacks; `dvc pull` there")
    else:
        typer.echo(f"{tag} is in {folder}; `cd {folder} && dvc repro` reports that nothing has changed")


@app.command(rich_help_panel=LINEAGES)
def rollback(lineage: Lineage, tag: Tag, as_json: Json = False) -> None:
    """Continues a lineage from one of its earlier generations: champion, trainee and window are restored.

    The rollback is recorded as a generation; nothing is deleted. Code and parameters do not change.
    """
    from zero.lineage.rollback import rollback as roll_back
    from zero.lineage.workspace import writer_lock
    from zero.record.ledger import find_workspace

    home = home_dir()
    workspace = find_workspace(home, lineage)
    with writer_lock(workspace):
        done = roll_back(home, workspace, tag)
    _report(done, "is rolled back to", as_json)


@app.command(rich_help_panel=LINEAGES)
def branch(
    lineage: Lineage,
    tag: Tag,
    new: Annotated[str, typer.Argument(help="Name of the new lineage.")],
    as_json: Json = False,
) -> None:
    """Creates a lineage from a generation of another one, with its code, parameters, champion, trainee and window.

    With unchanged parameters the next generation is that of the other lineage, bit for bit.
    """
    from zero.lineage.rollback import branch as branch_off

    if not tag.startswith(f"{lineage}/"):
        raise LineageError(
            f"{tag} is not a generation of lineage {lineage!r}; give one of its tags, such as {lineage}/gen-0000"
        )
    done = branch_off(home_dir(), tag, new)
    _report(done, "branches from", as_json)


def _report(done: "Recorded", verb: str, as_json: bool) -> None:
    """Writes a recorded rollback or branch to MLflow, and prints it."""
    from zero.record.ledger import find_workspace

    home, lineage = home_dir(), done.entry.lineage
    source = done.entry.source.tag if done.entry.source else ""
    if uri := tracking_uri(home):
        with tracking_is_optional(f"write it later with `zero track {lineage}`"):
            _track(home, find_workspace(home, lineage), uri)
    if as_json:
        typer.echo(json.dumps({"lineage": lineage, "tag": done.tag, "commit": done.commit, "source": source}))
    else:
        typer.echo(f"{lineage} {verb} {source}; recorded as {done.tag}")
        note(f"next: make generation LINEAGE={lineage}")


def _track(home: Path, workspace: Path, uri: str, rebuild: bool = False) -> str:
    """Writes the missing generations to MLflow with their reports; returns the address of the newest one's run."""
    from zero.cli.report import report_file
    from zero.tracking.backfill import backfill

    return backfill(home, workspace, uri, rebuild, lambda generation: report_file(home, generation.tag))
