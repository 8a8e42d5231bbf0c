"""The metrics of self-play as they are recorded in `metrics/selfplay.json`."""

from zero.storage.manifests import NO_RESIGNATION, Manifest


class Calibration(Manifest):
    """What a threshold does to games in which nobody resigned."""

    threshold: float
    num_games: int
    """Calibration games."""
    would_resign: int
    """Of them, those that the threshold would have ended."""
    would_have_won: int
    """Of those, the ones that the player who gave up would have won or drawn."""
    false_positive_rate: float
    """`would_have_won` / `would_resign`, 0 where no game would have ended."""
    interval: tuple[float, float]
    """95 % interval of the rate (Wilson); 0 to 1 where no game would have ended."""


class Resignation(Manifest):
    """Section `resignation` of `metrics/selfplay.json`."""

    resigned_games: int
    """Games of this generation that a player gave up."""
    target: float
    """The false-positive rate to stay at or below."""
    used: Calibration
    """This generation's threshold, measured on its calibration games: games that did not choose it."""
    following: Calibration
    """The next generation's threshold, on the games that chose it."""


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
    """Games by how they ended."""
    mean_abs_margin: float
    """Points a game was won by that was played out."""
    root_value_error: float
    """Mean squared error of the root values against the outcomes."""
    target_positions: int
    """Positions that are policy targets: all but the fast moves."""
    resignation: Resignation | None
    """None where the parameters have no resignation."""


def following_threshold(metrics: SelfplayMetrics) -> float:
    """The threshold of resignation of the generation after the one whose games those are."""
    return metrics.resignation.following.threshold if metrics.resignation else NO_RESIGNATION
