"""The symmetries of the board and of the position before the first move, as tables of actions."""

import numpy as np


def symmetry_table(rows: int, columns: int, num_actions: int, start: np.ndarray) -> np.ndarray:
    """The image of each action under each symmetry that keeps `start`.

    Returns:
      [K, A] int16; K = 8 on an empty square board, 4 on an empty rectangle. Symmetry 0 is the identity;
      a pass stays a pass.
    """
    points = np.arange(rows * columns).reshape(rows, columns)
    # `source` gives, for each point, the point that moves there; the table is its inverse.
    sources = [np.rot90(points, turns) for turns in range(4) if rows == columns or turns % 2 == 0]
    # The order is part of every recorded game: its random stream draws a symmetry by the index in this list.
    sources += [np.fliplr(source) for source in sources]
    table = np.empty((len(sources), num_actions), np.int16)
    table[:] = np.arange(num_actions)
    for k, source in enumerate(sources):
        table[k, source.reshape(-1)] = np.arange(rows * columns)
    return table[[np.array_equal(start[row[: rows * columns]], start) for row in table]]
