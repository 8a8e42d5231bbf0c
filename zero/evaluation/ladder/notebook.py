"""A ladder in the lineage's experiment on MLflow: the curve as metrics, the table and the picture as files.

The matches that it counts go to the experiment of matches, as those of `zero match` do.
"""

from pathlib import Path

from zero.config.settings import STATE_FOLDER
from zero.evaluation.ladder.files import ladder_files
from zero.evaluation.ladder.table import Ladder
from zero.evaluation.match.setup import MATCHES_DIR
from zero.evaluation.match.tracking import track_matches
from zero.tracking.ladder import track_summary
from zero.tracking.metrics import Point

STAGE = "elo"
NOTE = "Ratings of `zero elo`: the step is the generation, the rating that of its champion."


def track_ladder(home: Path, uri: str, ladder: Ladder) -> str:
    """Writes a ladder to the MLflow server in place of the one there, and what of its matches is not there.

    Returns:
      The address of the ladder's page.

    Raises:
      ServerError: the server does not answer; nothing is lost, and the call can be repeated.
      StorageError: the folder of a match is gone or damaged.
    """
    played = [result.source for result in ladder.results if result.kind == "match"]
    track_matches([home / STATE_FOLDER / MATCHES_DIR / name for name in played], uri)
    return track_summary(uri, ladder.lineage, STAGE, NOTE, ladder_points(ladder), ladder_files(ladder))


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
