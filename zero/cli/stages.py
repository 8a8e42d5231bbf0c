"""Commands that `dvc repro` runs in a lineage's workspace: the stages of a generation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from zero.cli.app import STAGES, app
from zero.progress import progress_of
from zero.storage.manifests import Checkpoint
from zero.storage.store import open_store

if TYPE_CHECKING:
    from zero.stages.inputs import Inputs


@app.command(rich_help_panel=STAGES)
def selfplay() -> None:
    """Stage 1: the champion plays games against itself."""
    _play_stage("selfplay")


@app.command(rich_help_panel=STAGES)
def replay() -> None:
    """Stage 2: selects the window of games for training."""
    from zero.stages.replay import run

    with _stage_inputs("replay") as inputs, open_store(inputs.folder) as store:
        window = run(inputs, store)
    typer.echo(f"window: {window.num_games} games, {window.num_positions} positions")


@app.command(rich_help_panel=STAGES)
def training() -> None:
    """Stage 3: trains the latest network on the window; the result is the challenger."""
    from zero.stages.remote_training import fetch

    with (
        _stage_inputs("training") as inputs,
        open_store(inputs.folder) as store,
        progress_of("training", "steps") as progress,
    ):
        checkpoint = fetch(inputs, store) or _train(inputs, progress)
    after = "the training is dead, the next one begins after step" if checkpoint.restarts else "trained up to step"
    typer.echo(f"challenger {checkpoint.weights.sha256[:12]}, {after} {checkpoint.step}")


@app.command(rich_help_panel=STAGES)
def gating() -> None:
    """Stage 4: the challenger plays a match against the champion; the result decides whether it is promoted."""
    _play_stage("gating")


@app.command(rich_help_panel=STAGES)
def verification() -> None:
    """Stage 5: plays some shards again and compares the results (re-execution check)."""
    from zero.stages.verification import run

    with (
        _stage_inputs("verification") as inputs,
        open_store(inputs.folder) as store,
        progress_of("verification", "games") as progress,
    ):
        metrics = run(inputs, store, progress)
    games = metrics.selfplay.num_games + metrics.gating.num_games
    typer.echo(
        f"{games} games of {metrics.selfplay.num_shards + metrics.gating.num_shards} shards played again and equal"
    )


def _train(inputs: "Inputs", progress: Callable[[int, int], None]) -> Checkpoint:
    """Trains in this process. Sets the environment of PyTorch before its import."""
    from zero.network.profile import prepare_torch

    profile = inputs.params.profile
    prepare_torch(profile, profile.training_threads)
    from zero.stages.training import run

    return run(inputs, progress)


def _play_stage(stage: Literal["selfplay", "gating"]) -> None:
    from zero.stages import gating as gating_stage
    from zero.stages import selfplay as selfplay_stage

    with _stage_inputs(stage) as inputs, open_store(inputs.folder) as store, progress_of(stage, "games") as progress:
        if stage == "selfplay":
            games = selfplay_stage.run(inputs, store, progress)
            summary = f"{games.num_games} games, {games.num_positions} positions"
        else:
            decision = gating_stage.run(inputs, store, progress)
            match = decision.match
            word = "promoted" if decision.promoted else "refused"
            summary = f"challenger {word}: {match.wins} wins, {match.losses} losses, {match.draws} draws"
    typer.echo(summary)


@contextmanager
def _stage_inputs(stage: str) -> Iterator["Inputs"]:
    """The workspace, locked against other writers; the costs of the stage are measured."""
    from zero.lineage.workspace import writer_lock
    from zero.stages.costs import stage_costs
    from zero.stages.inputs import read_inputs

    here = Path.cwd()
    with writer_lock(here):
        inputs = read_inputs(here)
        with stage_costs(inputs, stage):
            yield inputs
