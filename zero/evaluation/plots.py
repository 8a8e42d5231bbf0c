"""What the pictures of this package have in common."""

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GRID_POINTS = 200
"""Positions at which a band is computed."""

Curve = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]
"""Positions in ascending order, and a number for each of them."""


def png_of(figure: Figure) -> bytes:
    """The picture without the library's version, so that equal pictures have equal bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def draw_band(axes: Axes, curves: Sequence[Curve], end: float) -> None:
    """Draws the range of the curves from where all have begun to `end`. One that has ended keeps its last number."""
    begin = max((xs[0] for xs, _ in curves), default=end)
    if len(curves) > 1 and end > begin:
        grid = np.linspace(begin, end, GRID_POINTS)
        rows = np.array([np.interp(grid, xs, numbers) for xs, numbers in curves])
        axes.fill_between(grid, rows.min(axis=0), rows.max(axis=0), color="C7", alpha=0.2, lw=0)
