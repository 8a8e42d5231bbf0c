"""Curves of training over generations, games and hours (`zero curves`), as in figure 3 of the paper.

Each curve has a point per generation: the rating of its champion (`zero elo`), and how well the champion predicts the
moves and the outcomes of held-out games (`zero evaluate`). Several lineages are drawn over each other. A lineage with
one point, such as one that learned from imported games alone, is drawn as a line.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.table import Table

from zero.errors import LineageError, ParamsError
from zero.evaluation.held_out import GNUGO, MISSING, TEST, GenerationEvaluation, Metrics, backfill, has_gnugo_games
from zero.evaluation.ladder import CurvePoint, Ladder, lineage_ladder, with_totals
from zero.evaluation.match import results_dir
from zero.evaluation.plots import draw_band, png_of
from zero.games.rules import rules_of
from zero.progress import Progress
from zero.record.lineages import ProjectRecord
from zero.storage.files import canonical_json, write_atomic
from zero.storage.manifests import Manifest

CURVES_DIR, CURVES_FILE, PLOT_FILE = "curves", "curves.json", "curves.png"
NEXT_GAMES = "later-1"
"""Held-out games of a lineage that has no others: the self-play of the next generation."""
PANEL_WIDTH, HEIGHT, DPI = 4.4, 3.8, 120
"""Size of a panel in inches, and dots per inch."""
SECONDS_PER_HOUR = 3600

Axis = Literal["hours", "games", "generations"]
AXES: dict[Axis, str] = {"hours": "hours of generations", "games": "self-play games", "generations": "generation"}


class ChampionPoint(Manifest):
    """The champion after a generation."""

    generation: int
    games: int | None
    """Self-play games of the lineage so far; None if the record lacks them for a generation."""
    hours: float | None
    """Wall clock of its stages so far; None if the costs of a generation are not noted."""
    rating: tuple[float, float, float] | None
    """Elo and its 95 % interval; None if the champion has no games that count."""
    held_out: Metrics | None
    """On the held-out games; None if the games or the network are not on this machine."""


class Curve(Manifest):
    """The points of a lineage, oldest first."""

    lineage: str
    points: tuple[ChampionPoint, ...]


class Curves(Manifest):
    """Curves of lineages on the same scales."""

    held_out_games: str
    """One of `held_out.GAME_SETS`."""
    scale: str
    """Reference of the ratings and the simulations per move; empty if no champion has a rating."""
    opponents: dict[str, float]
    """Ratings of the opponents without a network."""
    curves: tuple[Curve, ...]


def lineage_curves(
    home: Path,
    lineages: Sequence[str],
    simulations: int | None = None,
    dataset: Path | None = None,
    progress: Progress | None = None,
) -> Curves:
    """The curves of lineages. Missing held-out evaluations are computed; no games are played.

    Args:
      home: the project's folder.
      lineages: names, each once.
      simulations: of the rated champions; by default the number with which most were rated.
      dataset: whose test split is predicted; by default that of each lineage's parameters.
      progress: receives (evaluations done, evaluations to do), for each lineage in turn.

    Raises:
      LineageError: a lineage is unknown, named twice, or its newest parameters cannot be read.
      ParamsError: the ratings or the held-out games of two lineages cannot be compared.
    """
    if len(set(lineages)) < len(lineages):
        raise LineageError(f"a lineage is named twice in {' '.join(lineages)}; name each once")
    results = {name: backfill(home, name, progress, dataset) for name in lineages}
    games = _common_games(results)
    ladders = {name: lineage_ladder(home, name, simulations) for name in lineages}
    with ProjectRecord(home) as record:
        curves = [_curve(record, ladders[name], results[name], games) for name in lineages]
    return Curves(
        held_out_games=games,
        scale=_common_scale(ladders.values()),
        opponents=common_opponents(ladders.values()),
        curves=tuple(curves),
    )


def common_opponents(ladders: Collection[Ladder]) -> dict[str, float]:
    """Ratings of the opponents by name that have one rating, the same in each ladder.

    With several ladders that leaves the anchor. A random player is left out: it is far from all others.
    """
    found: dict[str, list[float]] = {}
    for ladder in ladders:
        group = _group_of_curve(ladder)  # ratings of other groups are on another scale
        for row in ladder.rows:
            if row.group == group and row.entry.kind not in ("network", "random"):
                found.setdefault(row.entry.name, []).append(row.elo)
    return {name: elos[0] for name, elos in found.items() if elos == elos[:1] * len(ladders)}


def curves_table(curves: Curves) -> Table:
    """A row for each generation that has a rating or an evaluation."""
    table = Table(title=f"held-out games: {curves.held_out_games}; rating: {curves.scale}", title_justify="left")
    table.add_column("generation", no_wrap=True)
    for column in ("hours", "games", "rating", "95 % interval", "accuracy", "value error"):
        table.add_column(column, justify="right", no_wrap=True)
    for curve in curves.curves:
        for point in curve.points:
            rating, test = point.rating, point.held_out
            if rating is not None or test is not None:
                table.add_row(
                    f"{curve.lineage} {point.generation}",
                    MISSING if point.hours is None else f"{point.hours:.2f}",
                    MISSING if point.games is None else f"{point.games:,}",
                    *(MISSING, MISSING)
                    if rating is None
                    else (f"{rating[0]:.0f}", f"{rating[1]:.0f} to {rating[2]:.0f}"),
                    *(MISSING, MISSING) if test is None else (f"{test.policy_accuracy:.1%}", f"{test.value_error:.3f}"),
                )
    return table


def write_curves(home: Path, curves: Curves, over: Axis = "hours", spread: bool = False) -> Path:
    """Writes data and picture below `.zero/curves`, and returns their folder.

    Raises:
      ParamsError: no generation of a lineage has a known position on the axis.
      StorageError: a file cannot be written.
    """
    names = [curve.lineage for curve in curves.curves]
    folder = results_dir(home, CURVES_DIR, {"lineages": names, "games": curves.held_out_games, "scale": curves.scale})
    write_atomic(folder / PLOT_FILE, curves_png(curves, over, spread))
    write_atomic(folder / CURVES_FILE, canonical_json(curves))
    return folder


def curves_png(curves: Curves, over: Axis = "hours", spread: bool = False) -> bytes:
    """Rating, accuracy of moves and squared error of outcomes as a PNG.

    Args:
      curves: the curves.
      over: horizontal axis.
      spread: also draw the range over all lineages, which should then differ in their seed alone.

    Raises:
      ParamsError: no generation of a lineage has a known position on the axis.
    """
    figure = Figure((3 * PANEL_WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, 3)
    quantities: tuple[tuple[str, Callable[[ChampionPoint], tuple[float, ...] | None]], ...] = (
        ("rating (95 % interval)", lambda point: point.rating),
        ("accuracy of moves (%)", lambda point: (100 * point.held_out.policy_accuracy,) if point.held_out else None),
        ("squared error of outcomes", lambda point: (point.held_out.value_error,) if point.held_out else None),
    )
    for panel, (label, values) in zip(panels, quantities, strict=True):
        panel.set(xlabel=AXES[over], ylabel=label)
        panel.grid(alpha=0.3)
        panel.xaxis.set_major_locator(MaxNLocator(integer=over != "hours"))
        lines = []
        for number, curve in enumerate(curves.curves):
            placed = [point for point in curve.points if _position(point, over) is not None]
            if not placed:
                raise ParamsError(f"the record has no {over} of {curve.lineage}; draw it over generations")
            known = [(_position(point, over) or 0.0, *value) for point in placed if (value := values(point))]
            if known:
                lines.append(_draw(panel, np.array(known, float), f"C{number}", curve.lineage))
        if spread:
            long = [(line[:, 0], line[:, 1]) for line in lines if len(line) > 1]
            draw_band(panel, long, min((xs[-1] for xs, _ in long), default=0.0))
    for number, (name, elo) in enumerate(sorted(curves.opponents.items(), key=lambda item: -item[1])):
        panels[0].axhline(elo, color="black", lw=0.8, ls="--")
        side = "top" if number % 2 else "bottom"  # in turn, so that names of near ratings do not overlap
        panels[0].annotate(name, (0.01, elo), xycoords=("axes fraction", "data"), ha="left", va=side, fontsize=7)
    # A lineage has the same colour in all panels, so one legend is enough.
    for panel in panels:
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
            break
    figure.suptitle(f"{curves.scale}; held-out games: {curves.held_out_games}", fontsize=10)
    return png_of(figure)


def _curve(record: ProjectRecord, ladder: Ladder, results: Sequence[GenerationEvaluation], games: str) -> Curve:
    rated: dict[int, CurvePoint] = {point.generation: point for point in ladder.curve}
    evaluated = {result.generation: result.find("champion", games) for result in results}
    points: dict[int, ChampionPoint] = {}
    for generation, total, seconds in with_totals(record.ancestry(ladder.lineage)):
        rating = rated.get(generation.number)
        # The first generation of a branch has the number of its source, and replaces it.
        points[generation.number] = ChampionPoint(
            generation=generation.number,
            games=total,
            hours=None if seconds is None else seconds / SECONDS_PER_HOUR,
            rating=(rating.elo, rating.low, rating.high) if rating else None,
            held_out=evaluated.get(generation.number),
        )
    return Curve(lineage=ladder.lineage, points=tuple(points[number] for number in sorted(points)))


def _common_games(results: dict[str, list[GenerationEvaluation]]) -> str:
    """The held-out games that all lineages have: a test split, those of GNU Go, or those of the next generation."""
    digests = {
        name: {each.games_digest for result in found for each in result.evaluations if each.games == TEST}
        for name, found in results.items()
    }
    if all(len(each) == 1 for each in digests.values()) and len(set.union(*digests.values())) == 1:
        return TEST
    games = {result.game for found in results.values() for result in found}
    if games and all(has_gnugo_games(rules_of(game)) for game in games):
        return GNUGO
    if len(results) > 1:
        raise ParamsError(
            f"{' and '.join(results)} have no held-out games in common; give them with --dataset, a dataset that "
            "`zero import` made"
        )
    return NEXT_GAMES


def _common_scale(ladders: Iterable[Ladder]) -> str:
    """The reference of all ladders and their simulations; empty without ratings."""
    rated = [ladder for ladder in ladders if ladder.curve]
    scales = {ladder.lineage: ladder.scales[_group_of_curve(ladder)] for ladder in rated}
    texts = {}
    for each in rated:
        scale = scales[each.lineage]
        texts[each.lineage] = f"{scale.reference} = {scale.elo:.0f} at {each.simulations} simulations"
    if len(set(texts.values())) > 1:
        found = ", ".join(f"that of {name} is {text}" for name, text in texts.items())
        number = rated[0].simulations
        if any(each.simulations != number for each in rated):
            other = next(each.lineage for each in rated if each.simulations != number)
            remedy = (
                f"rate all with the same number: `zero elo {other} --games 100 --simulations {number}`, then "
                f"`zero curves {' '.join(texts)} --simulations {number}`"
            )
        else:
            other = next((name for name, scale in scales.items() if not scale.is_anchor), rated[-1].lineage)
            remedy = f"play against the same opponents: `zero elo {other} --games 100`"
        raise ParamsError(f"the ratings have different scales: {found}; {remedy}")
    return next(iter(texts.values()), "")


def _group_of_curve(ladder: Ladder) -> int:
    """The group of the players of the curve; the largest one without a curve."""
    keys = {point.key for point in ladder.curve}
    return next((row.group for row in ladder.rows if row.entry.key in keys), 0)


def _position(point: ChampionPoint, over: Axis) -> float | None:
    return {"hours": point.hours, "games": point.games, "generations": point.generation}[over]


def _draw(axes: Axes, points: np.ndarray, colour: str, label: str) -> np.ndarray:
    """Draws points [N, 2], or [N, 4] with the bounds of an interval; a line across for one point. Returns [N, 2]."""
    xs, ys = points[:, 0], points[:, 1]
    if len(points) == 1:
        axes.axhline(ys[0], color=colour, lw=1, ls=":", label=label)
    else:
        bounds = (ys - points[:, 2], points[:, 3] - ys) if points.shape[1] > 2 else None
        axes.errorbar(xs, ys, bounds, color=colour, marker="o", ms=3, lw=1, capsize=2, label=label)
    return points[:, :2]
