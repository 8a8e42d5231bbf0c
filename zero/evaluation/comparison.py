"""Compares the newest networks of lineages (`zero compare`): strength, moves and outcomes of held-out games.

This is figure 4 of the paper for any networks: the rating in a round robin, and on the test split of a dataset the
accuracy of predicted moves and the squared error of predicted outcomes. The lineages of an ablation learned from the
same games for the same number of steps.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from zero.config.params import NetworkParams, Params
from zero.errors import LineageError, ParamsError
from zero.evaluation.held_out import TEST, Evaluation, Metrics, backfill
from zero.evaluation.match import results_dir
from zero.evaluation.plots import png_of
from zero.evaluation.tournament import Standing, Tournament, play_tournament
from zero.network.weights import new_network
from zero.progress import Progress
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord, champion_maker
from zero.statistics import wilson_interval
from zero.storage.files import canonical_json, write_atomic
from zero.storage.manifests import Checkpoint, Manifest

COMPARISONS_DIR, COMPARISON_FILE, PLOT_FILE = "comparisons", "comparison.json", "comparison.png"
PANEL_WIDTH, HEIGHT, DPI = 3.4, 3.4, 120
"""Size of a panel in inches, and dots per inch."""


class ComparedNetwork(Manifest):
    """The newest champion of a lineage."""

    lineage: str
    generation: int
    network: NetworkParams
    num_weights: int
    """Trained numbers of the network."""
    num_steps: int
    """Optimiser steps since generation 0."""
    standing: Standing
    test: Metrics | None
    """On the test split; None without a dataset."""


class Comparison(Manifest):
    """Networks of several lineages, the strongest first."""

    networks: tuple[ComparedNetwork, ...]
    tournament: Tournament


class Newest(NamedTuple):
    """The newest generation of a lineage, and how its champion predicts the test split."""

    generation: Generation
    num_steps: int
    """Training steps of the champion."""
    test: Evaluation | None


def compare(
    home: Path,
    lineages: Sequence[str],
    num_games: int,
    opening_moves: int = 4,
    simulations: int | None = None,
    dataset: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Evaluates the champions of the newest generations, and plays a round robin between them.

    What an earlier call computed or played is used again.

    Args:
      home: the project's folder.
      lineages: names; each needs a generation after generation 0.
      num_games: games of each match, an even number.
      opening_moves: random moves at the start of each pair of games.
      simulations: of each move; by default those of each lineage's gating. 0: the raw networks.
      dataset: whose test split is used; by default that of each lineage's parameters.
      progress: receives (games done, all games).

    Raises:
      LineageError: a lineage is unknown or named twice, has no generation with a network that learned, or is alone.
      ParamsError: two lineages have the same network, play different games, or have different test splits.
    """
    if len(set(lineages)) < max(2, len(lineages)):
        raise LineageError(f"a comparison needs two lineages or more, each once, got {' '.join(lineages)}")
    with ProjectRecord(home) as record:
        newest = {name: _newest(home, record, name, dataset) for name in lineages}
        _check_test_games(newest)
        option = "" if simulations is None else f",simulations={simulations}"
        texts = {f"{each.generation.tag}{option}": name for name, each in newest.items()}
        played = play_tournament(home, [*texts], num_games, opening_moves, progress=progress)
        networks = tuple(_compared(row, texts[row.text], newest[texts[row.text]]) for row in played.standings)
    return Comparison(networks=networks, tournament=played)


def comparison_table(comparison: Comparison) -> Table:
    """A row for each network, the strongest first."""
    table = Table(title=f"networks compared, {comparison.tournament.reference} is the reference", title_justify="left")
    table.add_column("lineage", no_wrap=True)
    for column in ("heads", "tower", "weights", "steps", "rating", "95 % interval", "accuracy", "value error"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in comparison.networks:
        row, test = each.standing, each.test
        table.add_row(
            *(
                each.lineage,
                each.network.heads,
                f"{each.network.tower} {each.network.num_blocks}x{each.network.num_channels}",
            ),
            *(f"{each.num_weights:,}", f"{each.num_steps:,}", f"{row.elo:z.0f}"),
            row.interval,
            *("·", "·") if test is None else (f"{test.policy_accuracy:.1%}", f"{test.value_error:.3f}"),
        )
    return table


def write_comparison(home: Path, comparison: Comparison) -> Path:
    """Writes data and picture below `.zero/comparisons`, and returns their folder.

    Raises:
      StorageError: a file cannot be written.
    """
    folder = results_dir(home, COMPARISONS_DIR, comparison)
    write_atomic(folder / COMPARISON_FILE, canonical_json(comparison))
    write_atomic(folder / PLOT_FILE, comparison_png(comparison))
    return folder


def comparison_png(comparison: Comparison) -> bytes:
    """Ratings, accuracies and value errors as a PNG; the first two with intervals of 95 %.

    Those of accuracies are as if the positions of a game were independent, see `held_out.NUM_TEST_POSITIONS`.
    """
    networks = comparison.networks[::-1]  # from below, so that the strongest is at the top
    names = [each.lineage for each in networks]
    tests = [each.test for each in networks]
    figure = Figure((PANEL_WIDTH * 3, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    rows = [each.standing for each in networks]
    spread = [[row.elo - row.low for row in rows], [row.high - row.elo for row in rows]]
    axes[0].errorbar([row.elo for row in rows], names, xerr=spread, fmt="o", capsize=3)
    axes[0].set_xlabel("rating")
    for panel, label in ((axes[1], "accuracy of moves (%)"), (axes[2], "squared error of outcomes")):
        panel.set_xlabel(label)
    for name, test in zip(names, tests, strict=True):
        if test is not None:
            low, high = wilson_interval(test.policy_accuracy, test.num_positions)
            # By rounding, the bound at 0 or 1 can be on the wrong side.
            sides = 100 * np.abs([[test.policy_accuracy - low], [high - test.policy_accuracy]])
            axes[1].errorbar([100 * test.policy_accuracy], [name], xerr=sides, fmt="o", color="C0", capsize=3)
            axes[2].plot([test.value_error], [name], "o", color="C0")
    for panel in axes:
        panel.grid(alpha=0.3)
    return png_of(figure)


def _newest(home: Path, record: ProjectRecord, lineage: str, dataset: Path | None) -> Newest:
    generation = record.ancestry(lineage)[-1]
    if generation.entry is None or generation.entry.champion_generation == 0:
        raise LineageError(
            f"{lineage} has no network that learned yet; make one with `make generation LINEAGE={lineage}`"
        )
    # The newest challenger may have been refused, and a rollback or a branch has no challenger.
    maker = champion_maker(record, lineage, generation.number)
    num_steps = training_steps(maker.challenger, maker.params)
    results = [each for result in backfill(home, maker.lineage, dataset=dataset) for each in result.evaluations]
    wanted = (TEST, generation.entry.champion)
    return Newest(generation, num_steps, next((each for each in results if (each.games, each.weights) == wanted), None))


def training_steps(challenger: Checkpoint | None, params: Params | None) -> int:
    """Optimiser steps since generation 0 of the weights of a challenger that was trained with these parameters."""
    if challenger is None:
        return 0
    # A dead training records the step from which the next one starts, but its weights were trained for more.
    more = params.training.num_steps if challenger.restarts and params is not None else 0
    return challenger.step + more


def _check_test_games(newest: Mapping[str, Newest]) -> None:
    """Checks that the networks with a test result were evaluated on the same games.

    Raises:
      ParamsError: the games differ.
    """
    digests = {name: each.test.games_digest for name, each in newest.items() if each.test}
    if len(set(digests.values())) > 1:
        raise ParamsError(
            f"{' and '.join(digests)} have different test games; name one dataset for all with --dataset, a folder "
            "that `zero import` made"
        )


def _compared(row: Standing, lineage: str, newest: Newest) -> ComparedNetwork:
    generation = newest.generation
    params = generation.read_params()
    network = new_network(params.network, params.game, params.seed)
    return ComparedNetwork(
        lineage=lineage,
        generation=generation.number,
        network=params.network,
        num_weights=sum(weight.numel() for weight in network.parameters()),
        num_steps=newest.num_steps,
        standing=row,
        test=newest.test.metrics if newest.test else None,
    )
