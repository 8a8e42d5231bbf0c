"""Shows held-out evaluation: tables for the console, a plot of the first moves, a run in MLflow."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from zero.evaluation.held_out import GAME_SETS, NETWORKS, OPENING_LENGTHS, GenerationEvaluation, Metrics
from zero.games.coordinates import LETTERS
from zero.games.rules import rules_of
from zero.storage.files import canonical_json, write_atomic
from zero.tracking.backfill import track_summary
from zero.tracking.pages import Point

STAGE = "evaluation"
"""Name of the run in MLflow."""
NOTE = "Held-out evaluation (`zero evaluate`): the step is the generation; `later-1` are the games of the next one."
MAX_ROWS = 20
"""Generations in a table, the newest ones."""
MISSING = "·"
PLOT_FILE = "first-moves.png"
MAX_BOARDS, BOARDS_PER_ROW = 12, 4
BOARD_INCHES, DPI = 2.2, 100
Item = TypeVar("Item")


def evaluation_tables(results: Sequence[GenerationEvaluation]) -> Iterator[Table]:
    """A table of the networks and a table of the games of the newest generations."""
    title = "networks on held-out games: policy accuracy / cross-entropy / squared value error"
    networks = Table(title=title, title_justify="left")
    networks.add_column("generation", justify="right")
    networks.add_column("network")
    for games in (*GAME_SETS, "entropy"):
        networks.add_column(games, justify="right", no_wrap=True)
    statistics = Table(title="self-play games", title_justify="left")
    openings = [f"openings of {moves}" for moves in OPENING_LENGTHS]
    for column in ("generation", "games", "start value", "target entropy", *openings):
        statistics.add_column(column, justify="right")
    for each in results[-MAX_ROWS:]:
        for network in NETWORKS[:1] if each.is_promoted else NETWORKS:
            found = [each.find(network, games) for games in GAME_SETS]
            entropy = MISSING if found[0] is None else f"{found[0].entropy:.2f}"
            networks.add_row(str(each.generation), network, *map(_cell, found), entropy)
        shown = each.statistics
        statistics.add_row(
            *(str(each.generation), str(shown.num_games), f"{shown.start_value:+.2f}", f"{shown.target_entropy:.2f}"),
            *(str(shown.unique_openings[moves]) for moves in OPENING_LENGTHS),
        )
    yield networks
    yield statistics


def write_first_moves(folder: Path, results: Sequence[GenerationEvaluation]) -> None:
    """Writes the plot of the first moves into `folder`.

    Raises:
      StorageError: the file cannot be written.
    """
    write_atomic(folder / PLOT_FILE, first_moves_png(results))


def first_moves_png(results: Sequence[GenerationEvaluation]) -> bytes:
    """First moves of self-play as a PNG: one board per generation, darker where more games started.

    At most 12 generations are shown, at equal distances, with the first and the last one.
    """
    shown = spread(results, MAX_BOARDS)
    rows, columns = -(-len(shown) // BOARDS_PER_ROW), min(len(shown), BOARDS_PER_ROW)
    figure = Figure((BOARD_INCHES * columns, BOARD_INCHES * 1.15 * rows), dpi=DPI, layout="constrained")
    boards = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes, each in zip(boards, shown, strict=False):
        rules = rules_of(each.game)
        share = np.array(each.statistics.first_moves) / each.statistics.num_games
        axes.imshow(share[: rules.num_points].reshape(rules.rows, rules.columns), cmap="Greys", vmin=0)
        passes = share[rules.num_points :].sum()
        highest = float(share[: rules.num_points].max())
        title = f"{each.generation}: up to {highest:.0%}" + (f", pass {passes:.0%}" if passes else "")
        axes.set_title(title, fontsize=7)
        axes.set_xticks(range(rules.columns), LETTERS[: rules.columns], fontsize=5)
        axes.set_yticks(range(rules.rows), [str(rules.rows - row) for row in range(rules.rows)], fontsize=5)
    for axes in boards[len(shown) :]:
        axes.set_axis_off()
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})  # without the library's version: equal bytes
    return file.getvalue()


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` items at equal distances, with the first and the last one."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def track_evaluation(uri: str, lineage: str, results: Sequence[GenerationEvaluation]) -> str:
    """Writes the results to MLflow in place of the older ones; returns the address of the run.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
    """
    points = [point for each in results for point in evaluation_points(each)]
    content = {f"gen-{each.generation:04d}": each.model_dump(mode="json") for each in results}
    files = {"evaluation.json": canonical_json(content)}
    if results:
        files[PLOT_FILE] = first_moves_png(results)
    return track_summary(uri, lineage, STAGE, NOTE, points, files)


def evaluation_points(result: GenerationEvaluation) -> list[Point]:
    """Metrics of one generation, such as `challenger/later-1/policy_accuracy` and `games/start_value`."""
    statistics = result.statistics
    numbers: dict[str, float] = {
        "games/start_value": statistics.start_value,
        "games/target_entropy": statistics.target_entropy,
        "games/first_move_share": max(statistics.first_moves) / statistics.num_games,
    }
    numbers |= {f"games/unique_openings_{moves}": number for moves, number in statistics.unique_openings.items()}
    for network in NETWORKS:
        for games in GAME_SETS:
            if (metrics := result.find(network, games)) is not None:
                values = metrics.model_dump(exclude={"num_positions"})
                numbers |= {f"{network}/{games}/{name}": value for name, value in values.items()}
    return [Point(name, float(value), result.generation) for name, value in numbers.items()]


def _cell(metrics: Metrics | None) -> str:
    if metrics is None:
        return MISSING
    return f"{metrics.policy_accuracy:.1%} / {metrics.cross_entropy:.2f} / {metrics.value_error:.2f}"
