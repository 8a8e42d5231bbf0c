"""The curve of a ladder as a picture: rating over generations, games and hours, with intervals. Equal ladders give
equal bytes on equal versions of Matplotlib.
"""

import io
from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from zero.evaluation.ladder.table import CurvePoint, Ladder, Row

WIDTH, HEIGHT, DPI = 4.8, 4.2, 120
"""Inches of a panel, and dots an inch."""
MOST_LINES = 6
"""Fixed opponents shown as lines."""
SECONDS_AN_HOUR = 3600


class Panel(NamedTuple):
    """One of the curves."""

    title: str
    place: Callable[[CurvePoint], float | None]
    """Of a point on the axis; None where it is not known."""


PANELS = (
    Panel("generation", lambda point: point.generation),
    Panel("self-play games", lambda point: point.games),
    Panel("hours", lambda point: None if point.seconds is None else point.seconds / SECONDS_AN_HOUR),
)


def ladder_png(ladder: Ladder) -> bytes:
    """The picture as a PNG file; panels without a point are left out."""
    panels = [panel for panel in PANELS if any(panel.place(point) is not None for point in ladder.curve)] or [PANELS[0]]
    figure = Figure((WIDTH * len(panels), HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, each in zip(panels, axes, strict=True):
        _draw(each, panel, ladder)
    axes[0].set_ylabel("rating (95 % interval)")
    figure.suptitle(f"{ladder.lineage}{_how(ladder)}", fontsize=11)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _draw(axes: Axes, panel: Panel, ladder: Ladder) -> None:
    placed = [(place, point) for point in ladder.curve if (place := panel.place(point)) is not None]
    if placed:
        below = [point.elo - point.low for _, point in placed]
        above = [point.high - point.elo for _, point in placed]
        elo = [point.elo for _, point in placed]
        axes.errorbar([place for place, _ in placed], elo, (below, above), marker="o", markersize=3, capsize=2, lw=1)
    for number, row in enumerate(_fixed(ladder), 1):
        axes.axhline(row.elo, color=f"C{number}", lw=1, ls="--", label=row.entry.name)
        axes.axhspan(row.low, row.high, color=f"C{number}", alpha=0.12, lw=0)
    if panel is PANELS[0]:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    axes.set_xlabel(panel.title)
    axes.grid(alpha=0.3)


def _fixed(ladder: Ladder) -> list[Row]:
    """Opponents without a network on the curve's scale, the strongest first."""
    keys = {point.key for point in ladder.curve}
    groups = {row.group for row in ladder.rows if row.entry.key in keys}
    return [row for row in ladder.rows if row.group in groups and row.entry.kind != "network"][:MOST_LINES]


def _how(ladder: Ladder) -> str:
    return f", {ladder.simulations} simulations a move" if ladder.simulations is not None else ""
