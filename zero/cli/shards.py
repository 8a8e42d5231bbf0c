"""Commands that plan and play shards, and the training, which runs through the store too."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ValidationError

from zero.cli.app import SHARDS, app
from zero.config.settings import STATE_FOLDER, home_dir
from zero.errors import LineageError, ZeroError
from zero.progress import progress_of
from zero.storage.files import first_violation
from zero.storage.store import open_store


@app.command(rich_help_panel=SHARDS, hidden=True)
def worker() -> None:
    """Plays the shard specifications that it reads from standard input; see `zero.stages.worker`."""
    from zero.stages.worker import main as serve

    # The executor that started this process has set ZERO_STORE to the URL of its own store.
    with open_store(Path.cwd()) as store:
        serve(store)
    os._exit(0)  # an ordinary end would wait 1.5 s until torch is unloaded


@app.command(rich_help_panel=SHARDS)
def shard(spec_file: Annotated[Path, typer.Argument(help="A ShardSpec as JSON, as printed by `zero plan`.")]) -> None:
    """Plays one shard, uploads it to the store and prints its receipt."""
    from zero.network.gpu_lock import lock_visible_gpus
    from zero.stages.spec import ShardSpec
    from zero.stages.worker import play_into_store

    try:
        spec = ShardSpec.model_validate_json(spec_file.read_bytes())
    except OSError as error:
        raise ZeroError(f"cannot read {spec_file}: {error.strerror}; give a line of `zero plan` in a file") from None
    except ValidationError as error:
        raise ZeroError(
            f"{spec_file} is not a shard specification: {first_violation(error)}; give a line of `zero plan` in a file"
        ) from None
    with lock_visible_gpus(spec.device), open_store(Path.cwd()) as store, progress_of(spec.kind, "games") as progress:
        receipt = play_into_store(spec, store, lambda done: progress(done, spec.num_games))
    typer.echo(receipt.model_dump_json())


@app.command(rich_help_panel=SHARDS)
def train() -> None:
    """Executes the training that it reads from standard input, as printed by `zero plan training`.

    It reads the window from the store and writes the challenger to it. The next run resumes an interrupted training.
    """
    from zero.stages.remote_training import TrainingSpec, train_into_store

    try:
        spec = TrainingSpec.model_validate_json(sys.stdin.buffer.read())
    except ValidationError as error:
        raise LineageError(
            f"this worker's code does not know this training specification: {first_violation(error)}; check out the "
            "lineage's code here"
        ) from None
    home = home_dir()
    with open_store(home) as store, progress_of("training", "steps") as progress:
        train_into_store(spec, store, home / STATE_FOLDER / "trainings" / spec.key(), progress)
    typer.echo(f"the challenger of {spec.origin.lineage}, generation {spec.origin.generation}, is in {store.url}")


@app.command(rich_help_panel=SHARDS)
def plan(
    stage: Annotated[Literal["selfplay", "training", "gating"], typer.Argument(help="The stage to plan.")],
    missing: Annotated[bool, typer.Option("--missing", help="Only those without a result in the store.")] = False,
    ahead: Annotated[
        bool, typer.Option("--next", help="Self-play of the next generation; needs selfplay.overlap = true.")
    ] = False,
) -> None:
    """Prints the specifications of a stage's shards, or of its training, one JSON object per line."""
    from zero.stages.inputs import read_inputs

    if ahead and stage != "selfplay":
        raise ZeroError(f"{stage} of the next generation cannot be planned yet; `--next` works with selfplay only")
    here = Path.cwd()
    inputs = read_inputs(here)
    if stage == "training":
        from zero.stages.remote_training import plan as plan_training

        with open_store(here) as store:
            if training := plan_training(inputs, store, only_missing=missing):
                typer.echo(training.model_dump_json())
        return
    from zero.stages import gating as gating_stage
    from zero.stages import selfplay as selfplay_stage
    from zero.stages.collect import missing_shards

    with open_store(here) as store:
        if ahead:
            specs = selfplay_stage.plan_next(inputs, store)
        else:
            specs = (selfplay_stage if stage == "selfplay" else gating_stage).plan(inputs, store)
        for spec in missing_shards(specs, store) if missing else specs:
            typer.echo(spec.model_dump_json())
