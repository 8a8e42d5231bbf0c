"""`python -m benchmarks.audit`: how long `zero audit` takes over a lineage of many generations."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.long_record import LINEAGE, make_long_record
from benchmarks.setting import params_of
from zero.config.params import Params
from zero.config.presets import presets
from zero.config.settings import STATE_FOLDER

PLAYER = {"num_blocks": 1, "num_channels": 4, "value_hidden": 4}
SIMULATIONS = 8


def main(
    preset: Annotated[str, typer.Option(help=f"Sizes of the record: {', '.join(presets())}.")] = "go9-laptop",
    generations: Annotated[int, typer.Option(min=1, help="Generations with a match.")] = 50,
    repeats: Annotated[int, typer.Option(min=1, help="Times the command is run.")] = 3,
    folder: Annotated[Path | None, typer.Option(help="Where the record is made, or was; else it passes.")] = None,
) -> None:
    """Makes a record once and audits it by the command, in a process of its own, as often as asked."""
    params = params_of(preset, None)
    with tempfile.TemporaryDirectory(prefix="zero-long-") as scratch:
        home = folder or Path(scratch) / "home"
        started = time.monotonic()
        if not (home / STATE_FOLDER).exists():
            make_long_record(home, params, generations, small_player(params))
        size = sum(path.stat().st_size for path in (home / STATE_FOLDER / "dvc-cache").rglob("*") if path.is_file())
        typer.echo(
            f"record of {generations} generations: {size / 1e6:.0f} MB, made in {time.monotonic() - started:.0f} s"
        )
        for _ in range(repeats):
            started, before = time.monotonic(), _processor_seconds()
            told = audit_by_command(home)
            seconds, processor = time.monotonic() - started, _processor_seconds() - before
            games = generations * params.gating.num_games
            counts = f"{games} games judged, {len(told['findings'])} findings"
            typer.echo(f"audit: {seconds:.1f} s, of which {processor:.1f} s of processor time; {counts}")


def small_player(params: Params) -> Params:
    """The same game with a player that costs little."""
    selfplay = {"num_simulations": SIMULATIONS, "calibration_fraction": 0.0}
    return params.model_copy(
        update={
            "network": params.network.model_copy(update=PLAYER),
            "selfplay": params.selfplay.model_copy(update=selfplay),
        }
    )


def audit_by_command(home: Path) -> dict[str, list[object]]:
    """What `zero audit --json` says of the lineage."""
    environment = os.environ | {"ZERO_HOME": str(home), "MLFLOW_TRACKING_URI": ""}
    command = [sys.executable, "-m", "zero", "audit", LINEAGE, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def _processor_seconds() -> float:
    """What the processes that were run have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    typer.run(main)
