"""Shows a ladder: console tables, the file `<home>/.zero/ladders/go9/ladder.json`, and a run in MLflow.

`zero curves` and the page of `zero web` draw it.
"""

from collections.abc import Iterator
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from zero.config.settings import STATE_FOLDER
from zero.evaluation.ladder import Ladder, fit_lines
from zero.evaluation.match import MATCHES_DIR, track_matches
from zero.storage.files import canonical_json, write_atomic
from zero.tracking.backfill import track_summary
from zero.tracking.pages import MetricPoint

UNCERTAIN = 400
"""Half-width of an interval above which a rating is called uncertain: a score of ten to one."""
LADDER_FILE = "ladder.json"
STAGE = "elo"
"""Name of the run in MLflow."""
NOTE = "Ratings of `zero elo`: the step is the generation, the rating that of its champion."


def ladder_tables(ladder: Ladder) -> Iterator[Table]:
    """A table for each group, the strongest player first."""
    for group, scale in enumerate(ladder.scales):
        title = f"ladder of {ladder.lineage}" + (f", group {group + 1}" if len(ladder.scales) > 1 else "")
        table = Table(title=f"{title}: {scale.reference} = {scale.elo:z.0f}", title_justify="left")
        table.add_column("player")
        for column in ("rating", "95 % interval", "games", "opponents"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in ladder.rows:
            if row.group == group:
                table.add_row(
                    escape(row.entry.name), f"{row.elo:z.0f}", row.interval, f"{row.games:g}", str(row.opponents)
                )
        yield table


def ladder_lines(ladder: Ladder) -> Iterator[str]:
    """Number of games, how well the model fits, and every reason not to trust the ratings."""
    more = f"`zero elo {ladder.lineage} --games 100`"
    if not ladder.rows:
        yield f"{ladder.lineage} has no results: no challenger was promoted and no match was played; add some: {more}"
        return
    gates = sum(result.num_games for result in ladder.results if result.kind == "gate")
    games = sum(result.num_games for result in ladder.results)
    unique = sum(result.score.games for result in ladder.results)
    yield f"{games} games, {gates} of them in gating; {unique:g} unique games count"
    yield from fit_lines([scale.fit for scale in ladder.scales])
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
    """Writes a ladder and returns the path of its file.

    Raises:
      StorageError: the file cannot be written.
    """
    path = home / STATE_FOLDER / "ladders" / ladder.lineage / LADDER_FILE
    write_atomic(path, canonical_json(ladder))
    return path


def track_ladder(home: Path, uri: str, ladder: Ladder) -> str:
    """Writes a ladder and its matches to MLflow in place of the older ladder; returns the address of its run.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
      StorageError: the folder of a match is missing or corrupt.
    """
    played = [result.source for result in ladder.results if result.kind == "match"]
    track_matches([home / STATE_FOLDER / MATCHES_DIR / name for name in played], uri)
    return track_summary(uri, ladder.lineage, STAGE, NOTE, ladder_points(ladder), {LADDER_FILE: canonical_json(ladder)})


def ladder_points(ladder: Ladder) -> list[MetricPoint]:
    """The curve as metrics; step = generation."""
    points = []
    for point in ladder.curve:
        numbers: dict[str, float] = {"elo": point.elo, "elo_low": point.low, "elo_high": point.high}
        if point.games is not None:
            numbers["total_games"] = point.games
        if point.seconds is not None:
            numbers["total_seconds"] = point.seconds
        points += [MetricPoint(f"ladder/{name}", float(value), point.generation) for name, value in numbers.items()]
    return points
