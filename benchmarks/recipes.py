"""`python -m benchmarks.recipes WORKSPACE VARIANT...`: compares ways to train on the same games.

The unchanged parameters and each variant train a new network on the window of a lineage, each for the same time on one
thread. The last fifth of the time has a tenth of the learning rate, which reduces the noise of the weights. Then each
variant plays a match against the network of the unchanged parameters: losses of different architectures cannot be
compared, games can.

    python -m benchmarks.recipes .zero/workspaces/go9 network.num_blocks=6 training.optimizer=adam,training.rate=0.001
"""

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.setting import AS_IT_IS, WIDE, changed
from zero.config.params import PARAMS_FILE, Params, load_params, params_text
from zero.data.window import read_window
from zero.errors import ZeroError
from zero.evaluation.match import run_match
from zero.games.rules import rules_of
from zero.players.build import num_cores
from zero.stages.training import SAMPLER_THREADS, sample_games
from zero.storage.files import read_manifest, write_atomic
from zero.storage.layout import WEIGHTS_FILE, WINDOW_DIR
from zero.storage.manifests import Window

LATE, LATE_FACTOR = 0.8, 0.1
"""Share of the time after which the learning rate is reduced, and the factor."""
MOST_STEPS = 10**7


def train_variant(workspace: Path, params: Params, seconds: float, out: Path) -> list[str]:
    """Trains a new network for some seconds of processor time and writes it as a player folder.

    Returns:
      Weights, samples per second, steps, and the policy loss of the last steps on the training games, as text.
    """
    from zero.data.samples import Sampler
    from zero.network.learner import Learner
    from zero.network.profile import flush_denormals, prepare_torch
    from zero.network.weights import new_network

    prepare_torch(params.profile, 1)
    rules = rules_of(params.game)
    games = sample_games(read_window(read_manifest(workspace / WINDOW_DIR, Window), workspace / WINDOW_DIR, rules))
    network = new_network(params.network, params.game, params.seed)
    training, profile = params.training, params.profile
    sampling = (params.seed, 1, training.batch_size, training.random_symmetry, SAMPLER_THREADS[profile.device])
    policy_loss = float("nan")
    with flush_denormals(), Sampler(rules, games, *sampling, training.search_value_weight) as sampler:
        learner = Learner(network, training, profile.device, precision=profile.training_precision)
        began = used = 0.0
        for step in learner.train(sampler.batches(0, MOST_STEPS)):
            began = began or time.process_time()  # starts after the first step, which compiles
            used = time.process_time() - began
            if step % training.log_interval == 0 or used >= seconds:
                policy_loss = learner.results()[-1].policy_loss
            if used >= LATE * seconds and not training.kl_target:
                learner.learning_rate_factor = LATE_FACTOR
            if used >= seconds:
                break
    write_atomic(out / WEIGHTS_FILE, learner.player_weights())
    write_atomic(out / PARAMS_FILE, params_text(params).encode())
    rate, num_weights = (learner.step - 1) * training.batch_size / used, sum(w.numel() for w in network.parameters())
    return [f"{num_weights:,}", f"{rate:,.0f}", str(learner.step), f"{policy_loss:.3f}"]


def compare(
    workspace: Path, variants: list[str], seconds: float, num_games: int, simulations: int, folder: Path
) -> Table:
    """Trains all, a process a core, and plays the matches; the first row is that of the parameters as they are.

    Raises:
      ZeroError: a parameter is unknown, or the lineage has no window.
    """
    base = load_params(workspace)
    read_manifest(workspace / WINDOW_DIR, Window)  # there is one
    names, stderr = [AS_IT_IS, *variants], Console(stderr=True)
    jobs = [(changed(base, name), folder / str(number)) for number, name in enumerate(names)]
    with ProcessPoolExecutor(num_cores(), get_context("spawn")) as pool:
        futures = [pool.submit(train_variant, workspace, params, seconds, out) for params, out in jobs]
        trained = [future.result() for future in track(futures, "training", console=stderr)]
    players = [f"{out / WEIGHTS_FILE},simulations={simulations}" for _, out in jobs]
    table = Table("variant")
    for column in ("weights", "samples/s", "steps", "policy loss", "wins-losses-draws", "score", "95 %"):
        table.add_column(column, justify="right")
    table.add_row(AS_IT_IS, *trained[0])
    for name, cells, player in track(
        list(zip(variants, trained[1:], players[1:], strict=True)), "matches", console=stderr
    ):
        result = run_match(folder, (player, players[0]), num_games, opening_moves=2).table.result
        low, high = result.interval
        counts = f"{result.wins}-{result.losses}-{result.draws}"
        table.add_row(name, *cells, counts, f"{result.score:.1%}", f"{low:.1%}-{high:.1%}")
    return table


def main(
    workspace: Annotated[Path, typer.Argument(help="Workspace of a lineage, with a window of games.")],
    variants: Annotated[list[str], typer.Argument(help="Changed parameters: section.name=value,...")],
    seconds: Annotated[float, typer.Option(min=0.0, help="Processor seconds per training.")] = 120.0,
    games: Annotated[int, typer.Option(min=2, help="Games per match.")] = 200,
    simulations: Annotated[int, typer.Option(min=0, help="Simulations per move in the matches.")] = 32,
) -> None:
    """Trains variants on the same games for the same time and plays matches between them."""
    with tempfile.TemporaryDirectory(prefix="zero-recipes-") as scratch:
        try:
            table = compare(workspace, variants, seconds, games, simulations, Path(scratch))
        except ZeroError as error:
            typer.echo(f"recipes: {error}", err=True)
            raise typer.Exit(1) from None
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


if __name__ == "__main__":
    typer.run(main)
