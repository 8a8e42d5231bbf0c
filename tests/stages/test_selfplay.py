"""The metrics of self-play, compared with numbers computed by hand."""

import numpy as np
import pytest

from tests.made_games import plain_record
from tests.parameters import selfplay_params
from zero.data.records import read_records, write_records
from zero.record.metrics import SelfplayMetrics
from zero.stages.selfplay import selfplay_metrics
from zero.storage.manifests import GameRecord

NO_CALIBRATION = selfplay_params(calibration_fraction=0)


def record(
    game: int, actions: list[int], root_values: list[float], outcome: int, margin: float, end: str
) -> GameRecord:
    values = np.array(root_values, np.float32)
    return plain_record(
        actions, root_values=values, best_values=values, outcome=outcome, margin=margin, end=end, game=game
    )


def test_metrics_of_four_games():
    games = [
        record(0, [0, 9, 9], [0.5, -0.5, 1.0], +1, 2.5, "passes"),  # errors 0.25, 0.25, 0
        record(1, [0, 1], [0.0, 0.0], -1, -0.5, "length"),  # errors 1, 1
        record(2, [0, 9, 9], [0.25, 0.5, 0.0], 0, 0.0, "passes"),  # errors 0.0625, 0.25, 0
        record(3, [9, 9], [-1.0, 1.0], -1, -4.0, "passes"),  # errors 0, 0
    ]
    assert selfplay_metrics(read_records(write_records(games), "games"), NO_CALIBRATION, -1.0) == SelfplayMetrics(
        num_games=4,
        num_positions=10,
        unique_games=3,
        mean_length=2.5,
        black_wins=1,
        white_wins=2,
        draws=1,
        ended={"length": 1, "passes": 3},
        mean_abs_margin=7.0 / 4,
        root_value_error=2.8125 / 10,
        target_positions=10,
        resignation=None,
    )


@pytest.mark.parametrize("outcome", [+1, -1])
def test_a_player_that_knows_the_outcome_has_a_value_error_of_0(outcome):
    values = [outcome * sign for sign in (+1.0, -1.0, +1.0, -1.0, +1.0)]
    games = read_records(write_records([record(0, [0] * 5, values, outcome, 0.0, "line")]), "games")
    metrics = selfplay_metrics(games, NO_CALIBRATION, -1.0)
    assert metrics.root_value_error == 0.0


def test_a_resigned_game_has_no_margin():
    games = [
        record(0, [0, 1, 2], [0.0, 0.0, -0.9], -1, 0.0, "resignation"),
        record(1, [9, 9], [0.0, 0.0], 1, 6.5, "passes"),
    ]
    metrics = selfplay_metrics(
        read_records(write_records(games), "games"), selfplay_params(calibration_fraction=0.1), -0.8
    )
    assert (metrics.mean_abs_margin, metrics.ended) == (6.5, {"passes": 1, "resignation": 1})
    assert metrics.resignation
    assert (metrics.resignation.resigned_games, metrics.resignation.used.threshold) == (1, -0.8)
