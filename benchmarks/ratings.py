"""Draws the ladders of several lineages in one picture, such as those of one preset with several seeds.

    python -m benchmarks.ratings .zero/ladders/*/ladder.json --out ratings.png

`zero elo LINEAGE --games 400` makes a ladder. All of them must have the same anchor and number of simulations.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zero.errors import ParamsError, ZeroError
from zero.evaluation.ladder import Ladder
from zero.storage.files import read_manifest, write_atomic

SECONDS_PER_HOUR = 3600
WIDTH, HEIGHT, DPI = 7.2, 4.4, 120
"""Size in inches, and dots per inch."""
GRID_POINTS = 200
"""Hours at which a band is computed."""

Curve = tuple[Sequence[float], Sequence[float]]
"""Hours in ascending order, and a number for each of them."""


def ratings_png(ladders: Sequence[Ladder]) -> bytes:
    """Rating over hours of each lineage, the range over all of them, and the opponents without a network, as a PNG.

    Raises:
      ParamsError: two ladders have different anchors or simulations, or one has no curve over hours.
    """
    first = ladders[0]
    figure = Figure((WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    curves: list[Curve] = []
    for number, ladder in enumerate(ladders):
        if _scale(ladder) != _scale(first):
            raise ParamsError(
                f"{first.lineage} has the scale {_scale(first)}, {ladder.lineage} has {_scale(ladder)}; add games "
                "against the same opponents with the same number of simulations"
            )
        points = [point for point in ladder.curve if point.seconds is not None]
        if not points:
            raise ParamsError(f"{ladder.lineage} has no curve over hours; make more games with `zero elo`")
        hours = [(point.seconds or 0.0) / SECONDS_PER_HOUR for point in points]
        elo = [point.elo for point in points]
        spread = [[point.elo - point.low for point in points], [point.high - point.elo for point in points]]
        axes.errorbar(hours, elo, spread, color=f"C{number}", marker="o", ms=3, lw=1, capsize=2, label=ladder.lineage)
        curves.append((hours, elo))
    draw_band(axes, curves, min(hours[-1] for hours, _ in curves))
    # A random player has another rating in each ladder, far from all others.
    shown = [row for ladder in ladders for row in ladder.rows if row.entry.kind not in ("network", "random")]
    opponents = {row.entry.name: row.elo for row in shown}
    for number, (name, rating) in enumerate(sorted(opponents.items(), key=lambda item: -item[1])):
        axes.axhline(rating, color="black", lw=0.8, ls="--")
        place, side = ("axes fraction", "data"), "top" if number % 2 else "bottom"
        axes.annotate(name, (0.01, rating), xycoords=place, ha="left", va=side, fontsize=7)
    axes.set(xlabel="hours of generations", ylabel="rating (95 % interval)", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="lower right")
    figure.suptitle(f"{first.simulations} simulations per move", fontsize=10)
    return png_of(figure)


def draw_band(axes: Axes, curves: Sequence[Curve], end: float) -> None:
    """Draws the range of the curves from where all have begun to `end`. One that has ended keeps its last number."""
    begin = max((hours[0] for hours, _ in curves), default=end)
    if len(curves) > 1 and end > begin:
        grid = np.linspace(begin, end, GRID_POINTS)
        rows = np.array([np.interp(grid, hours, numbers) for hours, numbers in curves])
        axes.fill_between(grid, rows.min(axis=0), rows.max(axis=0), color="C7", alpha=0.2, lw=0)


def png_of(figure: Figure) -> bytes:
    """The picture without the library's version, so that equal pictures have equal bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _scale(ladder: Ladder) -> str:
    """Reference of the largest group, and the simulations of the champions."""
    return f"{ladder.scales[0].reference} = {ladder.scales[0].elo:.0f} at {ladder.simulations} simulations"


def main(
    ladders: Annotated[list[Path], typer.Argument(metavar="LADDER.JSON...", help="Files that `zero elo` wrote.")],
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("ratings.png"),
) -> None:
    """Draws the ladders of several lineages in one picture."""
    try:
        write_atomic(out, ratings_png([read_manifest(path.parent, Ladder, path.name) for path in ladders]))
    except ZeroError as error:
        typer.echo(f"ratings: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(str(out))


if __name__ == "__main__":
    typer.run(main)
