"""The metrics of self-play, as `metrics/selfplay.json` records them, and the curve of training."""

from zero.storage.manifests import NO_RESIGNATION, Manifest


class Calibration(Manifest):
    """Effect of a resignation threshold, measured on games that were played to their end."""

    threshold: float
    num_games: int
    """Number of calibration games."""
    would_resign: int
    """Calibration games that the threshold would have ended."""
    would_have_won: int
    """Games among those that the resigning player would have won or drawn."""
    false_positive_rate: float
    """`would_have_won` / `would_resign`; 0 if no game would have ended."""
    interval: tuple[float, float]
    """95 % interval of the rate (Wilson); 0 to 1 if no game would have ended."""


class Resignation(Manifest):
    """Section `resignation` of `metrics/selfplay.json`."""

    resigned_games: int
    """Games of this generation that ended by resignation."""
    target: float
    """Highest accepted false-positive rate."""
    used: Calibration
    """This generation's threshold, measured on its own calibration games, which did not choose it."""
    following: Calibration
    """The next generation's threshold, measured on the games that chose it."""


class SelfplayMetrics(Manifest):
    """`metrics/selfplay.json`."""

    num_games: int
    num_positions: int
    unique_games: int
    mean_length: float
    black_wins: int
    white_wins: int
    draws: int
    ended: dict[str, int]
    """Number of games by the way they ended."""
    mean_abs_margin: float
    """Mean winning margin in points, over games that were played to their end."""
    root_value_error: float
    """Mean squared error of the root values against the outcomes."""
    target_positions: int
    """Positions that are policy targets: all but those of cheap searches."""
    resignation: Resignation | None
    """None if the parameters have no resignation."""


def following_threshold(metrics: SelfplayMetrics) -> float:
    """Resignation threshold of the next generation."""
    return metrics.resignation.following.threshold if metrics.resignation else NO_RESIGNATION


def read_curve(text: str) -> list[dict[str, float]]:
    """The lines of `plots/training.csv`, the values by name.

    Raises:
      ValueError: the text is damaged.
    """
    rows = [line.split(",") for line in text.splitlines()]
    return [dict(zip(rows[0], map(float, row), strict=True)) for row in rows[1:]]
