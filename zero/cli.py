"""The command `zero`. One line an error; the experiment is in `params.yaml` and never in a flag."""

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from zero.errors import ServerError, ZeroError
from zero.params import load_params, preset_text, presets
from zero.progress import progress_of
from zero.settings import Settings, home_dir, open_store

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
TOOLS = "Tools"

Lineage = Annotated[str, typer.Argument(help="Name of the lineage.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of prose.")]


@app.command(rich_help_panel=LINEAGES)
def new(
    lineage: Lineage = "go9",
    preset: Annotated[str, typer.Option(help=f"Parameters to begin with: {', '.join(presets())}.")] = "",
    params: Annotated[Path | None, typer.Option(help="A parameters file instead of a preset.")] = None,
) -> None:
    """Makes a lineage: its workspace, its branch, and generation 0, the seeded random network.

    Without `--preset` or `--params` it begins with the project's `params.yaml`.
    """
    from zero.lineage import new_lineage, uncommitted_files

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
    made = new_lineage(home, lineage, text, source)
    if uncommitted := uncommitted_files(home):
        typer.echo(f"note: a lineage begins from committed code; not in it: {', '.join(uncommitted)}", err=True)
    typer.echo(f"lineage {lineage} begins at {lineage}/gen-0000 in {made.workspace}")
    typer.echo("next: prefect deployment run zero-generation --watch" + _lineage_parameter(lineage))


@app.command(rich_help_panel=LINEAGES)
def status(
    lineage: Annotated[str, typer.Argument(help="Name of the lineage; all when not given.")] = "",
    as_json: Json = False,
) -> None:
    """Shows where the lineages stand: champion, last decisions, and what is next."""
    from zero.report import servers, status_json, status_screen

    home = home_dir()
    names = _names(home, lineage)
    if as_json:
        typer.echo(json.dumps(status_json(home, names), indent=1, sort_keys=True))
        return
    if not names:
        typer.echo(f"no lineage in {home} yet; make one with `zero new go9`")
    for name in names:
        status_screen(home, name)
    for server, address in servers(home).items():
        typer.echo(f"{server}: {address}")


@app.command(rich_help_panel=LINEAGES)
def resignation(lineage: Lineage = "go9") -> None:
    """Shows what resignation cost in each generation: calibration games, false positives, thresholds."""
    from zero.report import resignation_screen

    resignation_screen(home_dir(), lineage)


@app.command(rich_help_panel=LINEAGES)
def prepare(lineage: Lineage = "go9") -> None:
    """Checks a lineage's workspace and sets it up for its next generation."""
    from zero.lineage import find_workspace, writer_lock
    from zero.registry import prepare as prepare_workspace

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
    from zero.lineage import find_workspace, writer_lock
    from zero.registry import advance as advance_workspace
    from zero.report import decision_lines

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
                }
            )
        )
    else:
        for line in decision_lines(done.entry, done.tag):
            typer.echo(line)
        if url:
            typer.echo(f"MLflow run: {url}")


@app.command(rich_help_panel=LINEAGES)
def track(lineage: Lineage = "go9", as_json: Json = False) -> None:
    """Writes to MLflow the recorded generations it does not have yet.

    The server is that of MLFLOW_TRACKING_URI, else the one that `make up` started.
    """
    from zero.lineage import find_workspace
    from zero.report import servers

    home = home_dir()
    uri = Settings().tracking_uri or servers(home).get("mlflow", "")
    if not uri:
        raise ServerError("no MLflow server: start one with `make up`, or set MLFLOW_TRACKING_URI to an address")
    url = _track(home, find_workspace(home, lineage), uri)
    typer.echo(json.dumps({"lineage": lineage, "mlflow_url": url}) if as_json else f"{lineage} is tracked: {url}")


@app.command(rich_help_panel=LINEAGES)
def restore(lineage: Lineage = "go9") -> None:
    """Makes a lineage's workspace again out of its branch and the DVC remote, where it was lost."""
    from zero.lineage import restore_lineage

    made = restore_lineage(home_dir(), lineage)
    typer.echo(f"lineage {lineage} is in {made.workspace}; next is generation {made.next_generation}")


@app.command(rich_help_panel=LINEAGES)
def stop(lineage: Lineage = "go9") -> None:
    """Asks a running campaign to stop after the generation in hand."""
    from zero.lineage import find_workspace, request_stop

    request_stop(find_workspace(home_dir(), lineage))
    typer.echo(f"the campaign of {lineage} stops after the generation in hand")


@app.command(rich_help_panel=LINEAGES)
def checkout(
    tag: Annotated[str, typer.Argument(help="A generation, such as go9/gen-0001.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
) -> None:
    """Clones a generation with its data into a folder of its own, to look at it or to run `dvc repro` there."""
    from zero.lineage import checkout_generation

    checkout_generation(home_dir(), tag, folder.resolve())
    typer.echo(f"{tag} is in {folder}; `cd {folder} && dvc repro` says that nothing has changed")


@app.command(rich_help_panel=STAGES)
def selfplay() -> None:
    """Stage 1: the champion plays against itself."""
    _play_stage("selfplay")


@app.command(rich_help_panel=STAGES)
def replay() -> None:
    """Stage 2: the window of games to train on."""
    from zero.lineage import writer_lock
    from zero.replay import run

    with writer_lock(Path.cwd()):
        window = run(Path.cwd())
    typer.echo(f"window: {window.num_games} games, {window.num_positions} positions")


@app.command(rich_help_panel=STAGES)
def training() -> None:
    """Stage 3: the trainee learns from the window and becomes the challenger."""
    from zero.lineage import writer_lock
    from zero.network.profile import prepare_torch

    profile = load_params(Path.cwd()).profile
    prepare_torch(profile, profile.training_threads)
    from zero.training import run

    with writer_lock(Path.cwd()), progress_of("training", "steps") as progress:
        checkpoint = run(Path.cwd(), progress)
    typer.echo(f"challenger {checkpoint.weights.sha256[:12]} after {checkpoint.step} steps")


@app.command(rich_help_panel=STAGES)
def gating() -> None:
    """Stage 4: the challenger plays the champion, and the better player stays."""
    _play_stage("gating")


@app.command(rich_help_panel=SHARDS, hidden=True)
def worker() -> None:
    """Plays the shard specifications that come in on standard input; see `zero.shards.worker`."""
    from zero.shards.worker import main as serve

    with open_store(Path.cwd()) as store:
        serve(store)


@app.command(rich_help_panel=SHARDS)
def shard(spec_file: Annotated[Path, typer.Argument(help="A ShardSpec as JSON, as printed by `zero plan`.")]) -> None:
    """Plays one shard into the store and prints its receipt."""
    from pydantic import ValidationError

    from zero.shards.spec import ShardSpec
    from zero.shards.worker import play_into_store

    try:
        spec = ShardSpec.model_validate_json(spec_file.read_bytes())
    except OSError as error:
        raise ZeroError(f"cannot read {spec_file}: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        raise ZeroError(
            f"{spec_file} is no shard specification: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        ) from None
    with open_store(Path.cwd()) as store, progress_of(spec.kind, "games") as progress:
        receipt = play_into_store(spec, store, lambda done: progress(done, spec.num_games))
    typer.echo(receipt.model_dump_json())


@app.command(rich_help_panel=SHARDS)
def plan(
    stage: Annotated[Literal["selfplay", "gating"], typer.Argument(help="The stage whose shards to plan.")],
    missing: Annotated[bool, typer.Option("--missing", help="Only those that the store lacks.")] = False,
) -> None:
    """Prints the specifications of a stage's shards, one JSON object a line."""
    from zero import gating as gating_stage
    from zero import selfplay as selfplay_stage
    from zero.shards.collect import missing_shards

    with open_store(Path.cwd()) as store:
        specs = (selfplay_stage if stage == "selfplay" else gating_stage).plan(Path.cwd(), store)
        for spec in missing_shards(specs, store) if missing else specs:
            typer.echo(spec.model_dump_json())


@app.command(rich_help_panel=TOOLS)
def sgf(
    games: Annotated[Path, typer.Argument(help="Folder of a game set, such as data/match.")],
    out: Annotated[Path, typer.Argument(help="SGF file to write; many games make a collection.")],
    game: Annotated[int | None, typer.Option(help="Number of one game; all when not given.")] = None,
) -> None:
    """Writes games as SGF, with komi, rules, result and the digests of the players."""
    from zero.report import write_games_as_sgf

    count = write_games_as_sgf(Path.cwd(), games, out, game)
    typer.echo(f"{count} games in {out}")


@app.command(rich_help_panel=TOOLS)
def export(
    source: Annotated[str, typer.Argument(help="A generation (go9/gen-0012), a lineage, or a weight file.")],
    out: Annotated[Path, typer.Argument(help="File to write.")],
    file_format: Annotated[Literal["leela-zero", "onnx"], typer.Option("--format", help="Format of the file.")],
) -> None:
    """Writes a network for other programs: text weights of Leela Zero (19x19 Go), or ONNX."""
    from zero.interop.export import export as write_network

    num_bytes = write_network(home_dir(), source, out, file_format)
    typer.echo(f"{out}: {num_bytes} bytes")


@app.command(rich_help_panel=TOOLS)
def bench(
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds a measurement.")] = 3.0,
    repeats: Annotated[int, typer.Option(min=1, help="Times each is measured; medians are shown.")] = 3,
    as_json: Json = False,
) -> None:
    """Measures, side by side on one core: network evaluations, self-play, search alone, rules alone."""
    from zero.bench import run_bench, table

    result = run_bench(load_params(home_dir()), seconds, repeats)
    typer.echo(result.model_dump_json(indent=1) if as_json else table(result))


def main() -> Any:
    """Runs the command; an error that a user can cause is one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        app()
    except ZeroError as error:
        typer.echo(f"zero: {error}", err=True)
        sys.exit(1)


def _play_stage(stage: Literal["selfplay", "gating"]) -> None:
    from zero import gating as gating_stage
    from zero import selfplay as selfplay_stage
    from zero.lineage import writer_lock

    here = Path.cwd()
    with writer_lock(here), open_store(here) as store, progress_of(stage, "games") as progress:
        if stage == "selfplay":
            games = selfplay_stage.run(here, store, progress)
            summary = f"{games.num_games} games, {games.num_positions} positions"
        else:
            decision = gating_stage.run(here, store, progress)
            match = decision.match
            word = "promoted" if decision.promoted else "refused"
            summary = f"challenger {word}: {match.wins} wins, {match.losses} losses, {match.draws} draws"
    typer.echo(summary)


def _track(home: Path, workspace: Path, uri: str) -> str:
    from zero.catch_up import catch_up
    from zero.tracking import champion_url

    receipts = catch_up(home, workspace, uri)
    if receipts:
        return receipts[-1].url
    from zero.record import read_ledger

    return champion_url(read_ledger(workspace)[0].lineage, uri)


def _names(home: Path, lineage: str) -> list[str]:
    from zero.lineage import find_workspace, lineages

    if lineage:
        find_workspace(home, lineage)
        return [lineage]
    return lineages(home)


def _lineage_parameter(lineage: str) -> str:
    return "" if lineage == "go9" else f" --param lineage={lineage}"
