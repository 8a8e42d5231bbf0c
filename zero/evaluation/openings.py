"""The openings of a lineage's self-play over its generations (`zero openings`), as in figure 5 of the paper.

Two kinds of sequences are counted, both up to the symmetries of the board:

- **openings**: the first moves of a game;
- **corners**: the first moves in a corner of the board, in their order; the first stone counts as Black's. Only Go has
  them.

Shards are read one after the other from DVC's cache. The result is a table and a picture.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from zero.config.params import GameParams
from zero.config.settings import STATE_FOLDER
from zero.data.records import GameColumns
from zero.errors import LineageError, ParamsError
from zero.games.coordinates import action_to_name
from zero.games.position import BLACK, GO, OTHELLO, Rules
from zero.games.rules import rules_of
from zero.players.board import Board
from zero.progress import Progress
from zero.record.lineages import ProjectRecord
from zero.storage.files import canonical_json, write_atomic
from zero.storage.manifests import Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPENINGS_DIR, OPENINGS_FILE, PLOT_FILE = "openings", "openings.json", "openings.png"
WIDTH, HEIGHT, DPI = 5.6, 6.4, 120
"""Size of a column of the picture in inches, and dots per inch."""
NUM_DRAWN = 8
"""Sequences of each kind in the picture."""

Move = tuple[int, int]
"""Colour (0 Black, 1 White) and action; the corners of a board are seen as the upper left one."""
Moves = tuple[Move, ...]


class Frequency(Manifest):
    """A sequence of moves and how often it was played."""

    kind: str
    """opening or corner."""
    moves: tuple[tuple[int, int], ...]
    """Colour (0 Black, 1 White) and action of each move."""
    names: str
    """The moves as text."""
    shares: tuple[float, ...]
    """Share of the games (openings) or of the corners that have enough moves, for each generation."""
    first: int
    """Generation in which it was played first."""
    peak: int
    """Generation in which it was played most often."""


class Openings(Manifest):
    """The most frequent sequences of a lineage."""

    lineage: str
    game: GameParams
    num_moves: int
    generations: tuple[int, ...]
    num_games: tuple[int, ...]
    """Self-play games of each generation."""
    frequencies: tuple[Frequency, ...]
    """The most frequent first, the openings before the corners."""

    def by_kind(self) -> dict[str, list[Frequency]]:
        """The sequences of each kind that has any."""
        return {kind: list(found) for kind, found in groupby(self.frequencies, key=lambda each: each.kind)}


def lineage_openings(
    home: Path, lineage: str, num_moves: int = 4, top: int = 12, progress: Progress | None = None
) -> Openings:
    """Counts the openings of all generations whose games are on this machine.

    Args:
      home: the project's folder.
      lineage: its name.
      num_moves: moves of a sequence.
      top: sequences of each kind to keep: those with the highest mean share over the generations.
      progress: receives (generations done, all generations).

    Raises:
      LineageError: the lineage does not exist, or has no games on this machine.
      ParamsError: a number is below 1, or no game has `num_moves` moves.
      StorageError: a shard is corrupt.
    """
    # Here, because the report of a generation imports this module and does without the evaluation of networks.
    from zero.evaluation.held_out import played_of, shards_of

    if num_moves < 1 or top < 1:
        raise ParamsError(f"{num_moves} moves and {top} sequences: both must be 1 or more")
    counts: dict[str, dict[int, Counter[Moves]]] = {"opening": {}, "corner": {}}
    num_games: dict[int, int] = {}
    longest = 0  # moves of the longest game
    with ProjectRecord(home) as record:
        found = [played for each in record.generations(lineage) if (played := played_of(each)) and played.games.shards]
        if not found:
            raise LineageError(f"{lineage} has no games on this machine; make a generation, or `dvc pull` its data")
        game = found[-1].params.game
        rules = rules_of(game)
        for done, played in enumerate(found):
            if progress:
                progress(done, len(found))
            number = played.generation.number
            if played.params.game != game:
                continue
            num_games[number] = played.games.num_games
            tables = {kind: counts[kind].setdefault(number, Counter()) for kind in counts}
            for games in shards_of(played):
                longest = max(longest, int(np.diff(games.move_offsets).max(initial=0)))
                tables["opening"].update(opening_moves(rules, games, num_moves))
                if rules.game == GO:
                    tables["corner"].update(corners_of(rules, games, num_moves))
        if progress:
            progress(len(found), len(found))
    if num_moves > longest:
        raise ParamsError(
            f"--moves must be at most {longest}, the length of the longest game of {lineage}, got {num_moves}; give a "
            "smaller number"
        )
    generations = tuple(sorted(num_games))
    frequencies = [
        each
        for kind, tables in counts.items()
        for each in most_frequent(rules, kind, [tables[number] for number in generations], generations, top)
    ]
    return Openings(
        lineage=lineage,
        game=game,
        num_moves=num_moves,
        generations=generations,
        num_games=tuple(num_games[number] for number in generations),
        frequencies=tuple(frequencies),
    )


def opening_moves(rules: Rules, games: GameColumns, num_moves: int) -> Iterator[Moves]:
    """The first `num_moves` moves of each game that is long enough, under the symmetry that makes them the smallest."""
    long = np.flatnonzero(np.diff(games.move_offsets) >= num_moves)
    images = rules.symmetries[:, games.actions[games.move_offsets[long][:, None] + np.arange(num_moves)]]
    smallest, rows = images[0], np.arange(len(long))
    for image in images[1:]:
        differing = (image != smallest).argmax(axis=1)  # the first differing move decides; 0 if none differs
        is_smaller = image[rows, differing] < smallest[rows, differing]
        smallest = np.where(is_smaller[:, None], image, smallest)
    for actions in smallest.tolist():
        yield tuple((move % 2, action) for move, action in enumerate(actions))


def corners_of(rules: Rules, games: GameColumns, num_moves: int) -> Iterator[Moves]:
    """The first `num_moves` moves in each corner that has them, as in the upper left one, mirrored to the smallest.

    A corner is the square of the points that are nearer to it than to any other corner.
    """
    side = rules.rows // 2
    rows, columns = np.divmod(np.arange(rules.num_points), rules.columns)
    down, right = rows >= rules.rows - side, columns >= rules.columns - side
    inside = (down | (rows < side)) & (right | (columns < side))
    corner = np.where(inside, 2 * down + right, -1)
    row = np.where(down, rules.rows - 1 - rows, rows)
    column = np.where(right, rules.columns - 1 - columns, columns)
    for first, end in zip(games.move_offsets[:-1], games.move_offsets[1:], strict=True):
        moves = np.arange(end - first)
        actions = games.actions[first:end].astype(np.int64)
        on_board = actions < rules.num_points
        moves, actions = moves[on_board], actions[on_board]
        for which in range(4):
            chosen = np.flatnonzero(corner[actions] == which)[:num_moves]
            if len(chosen) < num_moves:
                continue
            colours = (moves[chosen] + moves[chosen[0]]) % 2  # the first stone counts as Black's
            y, x = row[actions[chosen]], column[actions[chosen]]
            images = (y * rules.columns + x, x * rules.columns + y)
            smallest = min(tuple(int(action) for action in image) for image in images)
            yield tuple((int(colour), action) for colour, action in zip(colours, smallest, strict=True))


def stones_after(rules: Rules, moves: Moves) -> np.ndarray:
    """Colour of each point after the moves, [S*S] int8; captured stones of Go stay."""
    if rules.game == OTHELLO:
        return Board(rules, (action for _, action in moves)).stones
    stones = np.zeros(rules.num_points, np.int8)
    for colour, action in moves:
        if action < rules.num_points:
            stones[action] = -BLACK if colour else BLACK
    return stones


def most_frequent(
    rules: Rules, kind: str, tables: Sequence[Counter[Moves]], generations: Sequence[int], top: int
) -> list[Frequency]:
    """The sequences with the highest mean share over the generations."""
    totals = [max(1, table.total()) for table in tables]
    means: Counter[Moves] = Counter()
    for table, total in zip(tables, totals, strict=True):
        for moves, count in table.items():
            means[moves] += count / total  # type: ignore[assignment] # shares, not counts
    chosen = sorted(means, key=lambda moves: (-means[moves], moves))[:top]
    found = []
    for moves in chosen:
        shares = [table[moves] / total for table, total in zip(tables, totals, strict=True)]
        found.append(
            Frequency(
                kind=kind,
                moves=moves,
                names=" ".join(f"{'BW'[colour]}{action_to_name(rules, action)}" for colour, action in moves),
                shares=tuple(shares),
                first=next(number for number, share in zip(generations, shares, strict=True) if share),
                peak=generations[int(np.argmax(shares))],
            )
        )
    return found


def openings_tables(openings: Openings) -> Iterator[Table]:
    """A table for each kind."""
    newest = openings.generations[-1]
    for kind, rows in openings.by_kind().items():
        what = "games" if kind == "opening" else "corners"
        title = f"{kind}s of {openings.lineage}: share of the {what} with so many moves"
        table = Table(title=title, title_justify="left")
        table.add_column("moves")
        for column in ("first in", "most in", "share there", f"in generation {newest}"):
            table.add_column(column, justify="right")
        for each in rows:
            table.add_row(
                *(each.names, str(each.first), str(each.peak), f"{max(each.shares):.1%}", f"{each.shares[-1]:.1%}")
            )
        yield table


def write_openings(home: Path, openings: Openings) -> Path:
    """Writes data and picture below `.zero/openings`, and returns their folder.

    Raises:
      StorageError: a file cannot be written.
    """
    folder = home / STATE_FOLDER / OPENINGS_DIR / openings.lineage
    write_atomic(folder / OPENINGS_FILE, canonical_json(openings))
    write_atomic(folder / PLOT_FILE, openings_png(openings))
    return folder


def openings_png(openings: Openings) -> bytes:
    """The most frequent sequences as a PNG: shares over the generations and boards, with a column for each kind."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from zero.evaluation.plots import png_of

    rules = rules_of(openings.game)
    kinds = openings.by_kind()
    figure = Figure((WIDTH * len(kinds), HEIGHT), dpi=DPI, layout="constrained")
    for (kind, found), column in zip(kinds.items(), figure.subfigures(1, len(kinds), squeeze=False)[0], strict=True):
        upper, lower = column.subfigures(2, 1, height_ratios=(1, 1))
        axes = upper.subplots()
        boards = lower.subplots(2, NUM_DRAWN // 2).flat
        for number, (each, board) in enumerate(zip(found, boards, strict=False)):
            axes.plot(
                openings.generations, [100 * share for share in each.shares], marker="o", ms=2, color=f"C{number}"
            )
            draw_moves(board, rules, each.moves)
            board.set_title(each.names, fontsize=7, color=f"C{number}")
        for board in lower.axes:
            board.set_axis_off()
        axes.set(title=f"{kind}s of {openings.lineage}", xlabel="generation", ylabel="share (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    return png_of(figure)


def draw_moves(axes: "Axes", rules: Rules, moves: Moves) -> None:
    """Draws a board with the numbered stones of the moves; a pass is not drawn."""
    rows, columns = np.arange(rules.rows), np.arange(rules.columns)
    axes.hlines(rows, 0, rules.columns - 1, color="0.6", lw=0.5)
    axes.vlines(columns, 0, rules.rows - 1, color="0.6", lw=0.5)
    stones = stones_after(rules, moves)
    numbers = {action: str(number) for number, (_, action) in enumerate(moves, 1)}
    for point in np.flatnonzero(stones).tolist():
        row, column = divmod(point, rules.columns)
        face, text = ("black", "white") if stones[point] == BLACK else ("white", "black")
        axes.plot(column, row, "o", ms=8, mec="black", mew=0.5, mfc=face)
        axes.annotate(numbers.get(point, ""), (column, row), ha="center", va="center", fontsize=5, color=text)
    axes.set(aspect="equal", xlim=(-0.7, rules.columns - 0.3), ylim=(rules.rows - 0.3, -0.7))
