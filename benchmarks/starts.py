r"""`python -m benchmarks.starts WORKSPACE...`: does training from nothing survive its first steps, over many seeds?

Each workspace is a lineage with its own seed and the games of its generation 1, as made by `benchmarks.seeds`. The
network of generation 0 is trained on these games with the recipe and with each variant.
With `--games` each trained network plays a match against the network that it started from.

    python -m benchmarks.starts .zero/seeds/go9-laptop/project/.zero/workspaces/seed-* \
        training.warmup_steps=0,training.value_loss=squared_error
"""

import csv
import io
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
import yaml
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.variants import AS_IT_IS, changed
from zero.config.params import PARAMS_FILE, Params, load_params
from zero.data.samples import Sampler
from zero.data.window import read_window
from zero.errors import ParamsError, ZeroError
from zero.evaluation.match.results import MatchTable
from zero.evaluation.match.setup import run_match
from zero.games.rules import rules_of
from zero.network.health import Health, health_of
from zero.network.learner import Learner, StepResult
from zero.network.profile import flush_denormals, prepare_torch
from zero.network.weights import new_network, weights_bytes
from zero.players.build import num_cores
from zero.stages.training import SAMPLER_THREADS, curve_line, sample_games
from zero.storage.files import read_manifest, write_atomic
from zero.storage.layout import WINDOW_DIR
from zero.storage.manifests import Window

WEIGHTS = "weights.safetensors"
CURVE_FILE, PLOT_FILE = "starts.csv", "starts.png"
WIDE = 160
"""Columns of a table that is written to a file."""
PANEL_WIDTH, HEIGHT, DPI = 5.0, 3.6, 110


class Start(NamedTuple):
    """One training from nothing."""

    seed: int
    variant: str
    curve: tuple[StepResult, ...]
    health: Health


def train_start(workspace: Path, variant: str, num_steps: int, out: Path) -> Start:
    """Trains the network of generation 0; writes it and the initial network as player folders."""
    params = changed(load_params(workspace), variant)
    training = params.training
    prepare_torch(params.profile, 1)
    rules = rules_of(params.game)
    window = read_manifest(workspace / WINDOW_DIR, Window)
    if window.origin.generation != 1:
        raise ParamsError(
            f"{workspace} has the window of generation {window.origin.generation}; give one of generation 1"
        )
    games = sample_games(read_window(window, workspace / WINDOW_DIR, rules))
    network = new_network(params.network, params.game, params.seed)
    _write_player(out / "before", params, weights_bytes(network))
    num_threads, weight = SAMPLER_THREADS[params.profile.device], training.search_value_weight
    sampling = (params.seed, 1, training.batch_size, training.random_symmetry, num_threads, weight)
    curve: list[StepResult] = []
    with flush_denormals(), Sampler(rules, games, *sampling) as sampler:
        learner = Learner(network, training, params.profile.device, precision=params.profile.training_precision)
        for step in learner.train(sampler.batches(0, num_steps)):
            if step % training.log_interval == 0 or step == num_steps:
                curve.append(curve_line(learner.results()))
    _write_player(out / "after", params, learner.player_weights())
    return Start(params.seed, variant, tuple(curve), health_of(curve, num_steps))


def _write_player(folder: Path, params: Params, weights: bytes) -> None:
    write_atomic(folder / WEIGHTS, weights)
    write_atomic(folder / PARAMS_FILE, yaml.safe_dump(params.model_dump(mode="json"), sort_keys=False).encode())


def play(folder: Path, out: Path, num_games: int) -> MatchTable:
    """A match of a trained network against its initial network, with the simulations of gating."""
    players = (str(out / "after" / WEIGHTS), str(out / "before" / WEIGHTS))
    return run_match(folder, players, num_games, games_at_once=100).table


def table_of(starts: list[Start], matches: list[MatchTable]) -> Table:
    """A row per training."""
    table = Table()
    columns = ("seed", "variant", "value loss", "best constant", "saturated", "health", "wins-losses-draws", "score")
    for column in columns:
        table.add_column(column, justify="left" if column in ("variant", "health") else "right")
    for number, start in enumerate(starts):
        last = start.curve[-1]
        cells = [str(start.seed), start.variant, f"{last.value_loss:.3f}", f"{last.constant_value_loss:.3f}"]
        cells += [f"{last.saturated_values:.0%}", start.health.verdict]
        if matches:
            result = matches[number].result
            cells += [f"{result.wins}-{result.losses}-{result.draws}", f"{result.score:.1%}"]
        table.add_row(*cells)
    return table


def curves_csv(starts: list[Start]) -> bytes:
    """All curves as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["seed", "variant", *StepResult._fields])
    for start in starts:
        for line in start.curve:
            writer.writerow([start.seed, start.variant, line.step, *(f"{value:.6g}" for value in line[1:])])
    return file.getvalue().encode()


def curves_png(starts: list[Start]) -> bytes:
    """A panel per variant: the value loss of each seed over the steps, and the loss of the best constant value."""
    variants = list(dict.fromkeys(start.variant for start in starts))
    figure = Figure((PANEL_WIDTH * len(variants), HEIGHT), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, len(variants), sharey=True, squeeze=False)[0]
    for axes, variant in zip(panels, variants, strict=True):
        for start in (each for each in starts if each.variant == variant):
            steps = [line.step for line in start.curve]
            axes.plot(steps, [line.value_loss for line in start.curve], lw=1.2, label=str(start.seed))
            axes.plot(steps, [line.constant_value_loss for line in start.curve], color="black", lw=0.5, ls=":")
        axes.set_title(variant.replace(",", "\n"), fontsize=9)
        axes.set_xlabel("step")
        axes.set_ylim(bottom=0.0)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("value loss (dotted: best constant)")
    panels[0].legend(title="seed", fontsize=7, ncols=2)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def main(
    arguments: Annotated[
        list[str],
        typer.Argument(help="Workspaces with the games of generation 1, and variants: section.name=value,..."),
    ],
    steps: Annotated[int, typer.Option(min=1, help="Steps per training.")] = 300,
    games: Annotated[int, typer.Option(min=0, help="Games of each network against its initial network.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for networks, curves and plot.")] = Path(".zero/starts"),
) -> None:
    """Trains networks from nothing with a recipe and its variants on the games of each seed, and compares them."""
    workspaces = [Path(each) for each in arguments if Path(each).is_dir()]
    variants = [AS_IT_IS, *(each for each in arguments if not Path(each).is_dir())]
    jobs = [(workspace, variant) for workspace in workspaces for variant in variants]
    outs = [out.resolve() / f"{workspace.name}-{variants.index(variant)}" for workspace, variant in jobs]
    try:
        if not workspaces:
            raise ParamsError(f"no folder among {', '.join(arguments)}; give at least one workspace")
        with ProcessPoolExecutor(num_cores(), get_context("spawn")) as pool:
            futures = [pool.submit(train_start, *job, steps, folder) for job, folder in zip(jobs, outs, strict=True)]
            starts = [future.result() for future in track(futures, "training", console=Console(stderr=True))]
        matches = []
        if games:
            for folder in track(outs, "matches", console=Console(stderr=True)):
                matches.append(play(out.resolve(), folder, games))
    except ZeroError as error:
        typer.echo(f"starts: {error}", err=True)
        raise typer.Exit(1) from None
    write_atomic(out / CURVE_FILE, curves_csv(starts))
    write_atomic(out / PLOT_FILE, curves_png(starts))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table_of(starts, matches))


if __name__ == "__main__":
    typer.run(main)
