"""Commands that `dvc repro` runs in a lineage's workspace: the stages of a generation."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from zero.cli.app import STAGES, app
from zero.progress import progress_of
from zero.storage.store import Store, open_store

if TYPE_CHECKING:
    from zero.stages.inputs import Inputs


@app.command(rich_help_panel=STAGES)
def selfplay() -> None:
    """Stage 1: the champion plays games against itself."""
    from zero.stages.selfplay import run

    with _stage("selfplay") as (inputs, store), progress_of("selfplay", "games") as progress:
        games = run(inputs, store, progress)
    typer.echo(f"{games.num_games} games, {games.num_positions} positions")


@app.command(rich_help_panel=STAGES)
def replay() -> None:
    """Stage 2: checks the new games against the data contract and adds them to the training window."""
    from zero.stages.replay import run

    with _stage("replay") as (inputs, store):
        window = run(inputs, store)
    typer.echo(f"window: {window.num_games} games, {window.num_positions} positions")


@app.command(rich_help_panel=STAGES)
def training() -> None:
    """Stage 3: trains the latest network on the window; the result is the challenger."""
    from zero.stages.remote_training import fetch

    with _stage("training") as (inputs, store), progress_of("training", "steps") as progress:
        checkpoint = fetch(inputs, store)
        if checkpoint is None:
            from zero.stages.training import run  # imports torch, whose environment `fetch` has set

            checkpoint = run(inputs, progress)
    after = "the training is dead, the next one begins after step" if checkpoint.restarts else "trained up to step"
    typer.echo(f"challenger {checkpoint.weights.sha256[:12]}, {after} {checkpoint.step}")


@app.command(rich_help_panel=STAGES)
def gating() -> None:
    """Stage 4: the challenger plays a match against the champion; the result decides whether it is promoted."""
    from zero.stages.gating import run

    with _stage("gating") as (inputs, store), progress_of("gating", "games") as progress:
        decision = run(inputs, store, progress)
    match, word = decision.match, "promoted" if decision.promoted else "refused"
    typer.echo(f"challenger {word}: {match.wins} wins, {match.losses} losses, {match.draws} draws")


@app.command(rich_help_panel=STAGES)
def verification() -> None:
    """Stage 5: plays some shards again and compares the results (re-execution check)."""
    from zero.stages.verification import run

    with _stage("verification") as (inputs, store), progress_of("verification", "games") as progress:
        metrics = run(inputs, store, progress)
    num_games = metrics.selfplay.num_games + metrics.gating.num_games
    num_shards = metrics.selfplay.num_shards + metrics.gating.num_shards
    typer.echo(f"{num_games} games of {num_shards} shards played again and equal")


@contextmanager
def _stage(name: str) -> Iterator[tuple["Inputs", Store]]:
    """What a stage needs, with the workspace locked against other writers; its costs are measured."""
    from zero.lineage.workspace import writer_lock
    from zero.stages.costs import stage_costs
    from zero.stages.inputs import read_inputs

    here = Path.cwd()
    with writer_lock(here):
        inputs = read_inputs(here)
        with stage_costs(inputs, name), open_store(here) as store:
            yield inputs, store
