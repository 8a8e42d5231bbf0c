"""Where the games of some generations begin, as a picture: a small board each, darker where more games began."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from matplotlib.figure import Figure

from zero.evaluation.probes.table import GenerationYardsticks
from zero.games.coords import LETTERS
from zero.games.position import Rules
from zero.storage.files import write_atomic

MOST_BOARDS, IN_A_ROW = 12, 4
BOARD_INCHES, DPI = 2.2, 100
PICTURE_FILE = "first-moves.png"
Item = TypeVar("Item")


def write_picture(folder: Path, rules: Rules, yardsticks: Sequence[GenerationYardsticks]) -> Path:
    """Writes the picture into the folder of the yardsticks; the file.

    Raises:
      StorageError: it cannot be written.
    """
    write_atomic(folder / PICTURE_FILE, first_moves_png(rules, yardsticks))
    return folder / PICTURE_FILE


def first_moves_png(rules: Rules, yardsticks: Sequence[GenerationYardsticks]) -> bytes:
    """Boards of up to 12 generations, spread evenly, the first and the last among them, as a PNG file."""
    shown = spread(yardsticks, MOST_BOARDS)
    rows = -(-len(shown) // IN_A_ROW)
    columns = min(len(shown), IN_A_ROW)
    figure = Figure((BOARD_INCHES * columns, BOARD_INCHES * 1.15 * rows), dpi=DPI, layout="constrained")
    boards = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes, each in zip(boards, shown, strict=False):
        share = np.array(each.shape.first_moves) / each.shape.num_games
        axes.imshow(share[: rules.num_points].reshape(rules.rows, rules.columns), cmap="Greys", vmin=0)
        passes = share[rules.num_points :].sum()
        best = float(share[: rules.num_points].max())
        title = f"{each.generation}: up to {best:.0%}" + (f", pass {passes:.0%}" if passes else "")
        axes.set_title(title, fontsize=7)
        axes.set_xticks(range(rules.columns), LETTERS[: rules.columns], fontsize=5)
        axes.set_yticks(range(rules.rows), [str(rules.rows - row) for row in range(rules.rows)], fontsize=5)
    for axes in boards[len(shown) :]:
        axes.set_axis_off()
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of them, spread evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]
