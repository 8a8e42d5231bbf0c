"""`python -m benchmarks.solved --seeds 1,2,3`: how long 5x5 Go takes from nothing, a lineage of `go5` for each seed.

5x5 Go is solved: Black takes the whole board, first move in the centre. After each generation its champion is asked for
the empty board, with a PUCT root, whose visits gather on one move. A seed is through when it would play the centre and
values that above the goal for Black, between -1 and 1. Time is that of `zero prepare`, `dvc repro` and `zero advance`;
nothing else should run. Lineages are left as they are, and a call that was cut short goes on with them, but with the
time of its own generations alone.
"""

import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer
import yaml

from zero.config.presets import preset_text
from zero.config.settings import STATE_FOLDER, home_dir
from zero.errors import ZeroError
from zero.games.coords import action_to_name
from zero.players.build import open_session
from zero.players.session import NetworkSession
from zero.record.ledger import lineages, read_ledger
from zero.storage.files import write_atomic
from zero.storage.layout import workspace_dir
from zero.storage.vcs import environment

PRESET, CENTRE = "go5", "C3"
SIMULATIONS = 800
"""Of the question."""


def opening_of(home: Path, player: str, simulations: int = SIMULATIONS) -> tuple[str, float]:
    """The first move of a game and what the search says of it, for Black: ("C3", 0.91).

    Raises:
      ZeroError: there is no such player.
    """
    session, rules = open_session(home, f"{player},simulations={simulations},root=puct")
    assert isinstance(session, NetworkSession)
    try:
        session.new_game(rules)
        session.set_position(())
        result = session.search(simulations, None)
        return action_to_name(rules, int(result.visit_counts.argmax())), float(result.best_value)
    finally:
        session.close()


def make_generation(home: Path, lineage: str) -> float:
    """Plays, trains, gates and records one; its seconds.

    Raises:
      CalledProcessError: it failed, and has said why.
    """
    began = time.monotonic()
    for folder, command in (
        (home, ["zero", "prepare", lineage]),
        (workspace_dir(home, lineage), ["dvc", "repro", "--quiet"]),
        (home, ["zero", "advance", lineage]),
    ):
        run(folder, command)
    return time.monotonic() - began


def run(folder: Path, command: list[str]) -> None:
    """Runs a command of this virtual environment; what it prints beside errors is not shown."""
    subprocess.run(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, check=True)


def solve(home: Path, seed: int, goal: float, most_generations: int) -> bool:
    """Makes generations of one lineage until its champion is through; False where so many do not do."""
    lineage = f"{PRESET}-seed-{seed}"
    if lineage not in lineages(home):
        params = home / STATE_FOLDER / f"{lineage}.yaml"
        write_atomic(params, yaml.safe_dump(yaml.safe_load(preset_text(PRESET)) | {"seed": seed}).encode())
        run(home, ["zero", "new", lineage, "--params", str(params)])
    seconds = 0.0
    newest = read_ledger(workspace_dir(home, lineage))[-1].generation
    if newest:
        typer.echo(f"{lineage} is there, up to generation {newest}, whose time is not counted; it keeps its parameters")
    for generation in range(newest, max(newest, most_generations) + 1):
        if generation > newest:
            seconds += make_generation(home, lineage)
        move, value = opening_of(home, lineage)
        typer.echo(f"{lineage} after generation {generation}: {seconds / 60:.1f} min, {move}, {value:+.3f}")
        if move == CENTRE and value > goal:
            return True
    return False


def main(
    seeds: Annotated[str, typer.Option(help="With commas between.")] = "1,2,3",
    goal: Annotated[float, typer.Option(min=-1.0, max=1.0, help="Value of the empty board for Black.")] = 0.9,
    generations: Annotated[int, typer.Option(min=1, help="Then a seed is given up.")] = 24,
) -> None:
    """Makes lineages of 5x5 Go from nothing until each knows that Black takes the whole board; 1 where one does not."""
    if not all(seed.strip().isdecimal() for seed in seeds.split(",")):
        raise typer.BadParameter(f"{seeds!r} are not whole numbers with commas between", param_hint="--seeds")
    try:
        numbers = dict.fromkeys(int(seed) for seed in seeds.split(","))
        through = [solve(home_dir(), seed, goal, generations) for seed in numbers]
    except (ZeroError, subprocess.CalledProcessError) as error:
        typer.echo(f"solved: {error}", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(not all(through))


if __name__ == "__main__":
    typer.run(main)
