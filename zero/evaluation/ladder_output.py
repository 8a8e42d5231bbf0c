"""Shows a ladder: console tables, the plot of the curve, files, and a run in MLflow.

The files are `<home>/.zero/ladders/go9/ladder.json` and `ladder.png`. Equal ladders give equal bytes with equal
versions of Matplotlib.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.table import Table

from zero.config.settings import STATE_FOLDER
from zero.evaluation.ladder import Ladder, Row
from zero.evaluation.match import MATCHES_DIR, track_matches
from zero.evaluation.plots import png_of
from zero.storage.files import canonical_json, write_atomic
from zero.tracking.backfill import track_summary
from zero.tracking.pages import Point

UNCERTAIN = 400
"""Half-width of an interval above which a rating is called uncertain: a score of ten to one."""
LADDER_FILE, PLOT_FILE = "ladder.json", "ladder.png"
WIDTH, HEIGHT, DPI = 4.8, 4.2, 120
"""Size of a panel in inches, and dots per inch."""
MAX_LINES = 6
"""Fixed opponents that are shown as lines."""
SECONDS_PER_HOUR = 3600
STAGE = "elo"
"""Name of the run in MLflow."""
NOTE = "Ratings of `zero elo`: the step is the generation, the rating that of its champion."


def ladder_tables(ladder: Ladder) -> Iterator[Table]:
    """A table for each group, the strongest player first."""
    for group, scale in enumerate(ladder.scales):
        title = f"ladder of {ladder.lineage}" + (f", group {group + 1}" if len(ladder.scales) > 1 else "")
        table = Table(title=f"{title}: {scale.reference} = {scale.elo:.0f}", title_justify="left")
        table.add_column("player")
        for column in ("rating", "95 % interval", "games", "opponents"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in ladder.rows:
            if row.group == group:
                interval = "given" if row.low == row.high else f"{row.low:.0f} to {row.high:.0f}"
                table.add_row(row.entry.name, f"{row.elo:.0f}", interval, f"{row.games:g}", str(row.opponents))
        yield table


def ladder_lines(ladder: Ladder) -> Iterator[str]:
    """Number of games, and every reason not to trust the ratings."""
    more = f"`zero elo {ladder.lineage} --games 100`"
    if not ladder.rows:
        yield f"{ladder.lineage} has no results: no challenger was promoted and no match was played; add some: {more}"
        return
    gates = sum(result.games for result in ladder.results if result.kind == "gate")
    games = sum(result.games for result in ladder.results)
    unique = sum(result.score.games for result in ladder.results)
    yield f"{games} games, {gates} of them in gating; {unique:g} unique games count"
    if len(ladder.scales) > 1:
        yield (
            f"the players form {len(ladder.scales)} groups without games between them; ratings of different groups "
            f"cannot be compared; connect them: {more}"
        )
    if gates and gates == games:
        yield (
            "all results are of gating, which selects the challengers that did well in it: differences are "
            f"overestimated; add matches without selection: {more}"
        )
    if not any(scale.is_anchor for scale in ladder.scales):
        yield "no group has an anchor, so the ratings cannot be compared with those of another lineage"
    if uncertain := sum(row.high - row.low > 2 * UNCERTAIN for row in ladder.rows):
        yield f"{uncertain} of {len(ladder.rows)} ratings are uncertain by more than {UNCERTAIN} points"
    if not ladder.curve:
        yield "no curve: no champion has games with that number of simulations"


def write_ladder(home: Path, ladder: Ladder) -> Path:
    """Writes the files of a ladder and returns their folder.

    Raises:
      StorageError: a file cannot be written.
    """
    folder = home / STATE_FOLDER / "ladders" / ladder.lineage
    for name, data in ladder_files(ladder).items():
        write_atomic(folder / name, data)
    return folder


def track_ladder(home: Path, uri: str, ladder: Ladder) -> str:
    """Writes a ladder and its matches to MLflow in place of the older ladder; returns the address of its run.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
      StorageError: the folder of a match is missing or corrupt.
    """
    played = [result.source for result in ladder.results if result.kind == "match"]
    track_matches([home / STATE_FOLDER / MATCHES_DIR / name for name in played], uri)
    return track_summary(uri, ladder.lineage, STAGE, NOTE, ladder_points(ladder), ladder_files(ladder))


def ladder_files(ladder: Ladder) -> dict[str, bytes]:
    """The files of a ladder by name."""
    return {LADDER_FILE: canonical_json(ladder), PLOT_FILE: ladder_png(ladder)}


def ladder_png(ladder: Ladder) -> bytes:
    """The curve over generations, self-play games and hours as a PNG. Panels without a point are omitted."""
    hours = [None if point.seconds is None else point.seconds / SECONDS_PER_HOUR for point in ladder.curve]
    panels: dict[str, Sequence[float | None]] = {
        "generation": [point.generation for point in ladder.curve],
        "self-play games": [point.games for point in ladder.curve],
        "hours": hours,
    }
    shown = [title for title, xs in panels.items() if title == "generation" or any(x is not None for x in xs)]
    figure = Figure((WIDTH * len(shown), HEIGHT), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for title, panel in zip(shown, axes, strict=True):
        _draw(panel, ladder, panels[title])
        panel.set_xlabel(title)
        panel.grid(alpha=0.3)
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize=7)
    axes[0].set_ylabel("rating (95 % interval)")
    how = f", {ladder.simulations} simulations per move" if ladder.simulations is not None else ""
    figure.suptitle(f"{ladder.lineage}{how}", fontsize=11)
    return png_of(figure)


def ladder_points(ladder: Ladder) -> list[Point]:
    """The curve as metrics; step = generation."""
    points = []
    for point in ladder.curve:
        numbers: dict[str, float] = {"elo": point.elo, "elo_low": point.low, "elo_high": point.high}
        if point.games is not None:
            numbers["total_games"] = point.games
        if point.seconds is not None:
            numbers["total_seconds"] = point.seconds
        points += [Point(f"ladder/{name}", float(value), point.generation) for name, value in numbers.items()]
    return points


def _draw(axes: Axes, ladder: Ladder, horizontal: Sequence[float | None]) -> None:
    """Draws the curve and its opponents. `horizontal`: position of each point; None if it is not known."""
    placed = [(x, point) for x, point in zip(horizontal, ladder.curve, strict=True) if x is not None]
    if placed:
        below = [point.elo - point.low for _, point in placed]
        above = [point.high - point.elo for _, point in placed]
        elo = [point.elo for _, point in placed]
        axes.errorbar([x for x, _ in placed], elo, (below, above), marker="o", markersize=3, capsize=2, lw=1)
    for number, row in enumerate(_fixed_opponents(ladder), 1):
        axes.axhline(row.elo, color=f"C{number}", lw=1, ls="--", label=row.entry.name)
        axes.axhspan(row.low, row.high, color=f"C{number}", alpha=0.12, lw=0)


def _fixed_opponents(ladder: Ladder) -> list[Row]:
    """Opponents without a network that are in the group of the curve, the strongest first."""
    keys = {point.key for point in ladder.curve}
    groups = {row.group for row in ladder.rows if row.entry.key in keys}
    return [row for row in ladder.rows if row.group in groups and row.entry.kind != "network"][:MAX_LINES]
