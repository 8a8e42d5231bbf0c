"""The metrics of self-play, counted by hand."""

import numpy as np
import pytest

from zero.artifacts import GameRecord
from zero.selfplay import SelfplayMetrics, metrics_of
from zero.shards.records import read_records, write_records


def record(
    game: int, actions: list[int], root_values: list[float], outcome: int, margin: float, end: str
) -> GameRecord:
    return GameRecord(
        actions=np.array(actions, np.int16),
        visit_counts=np.ones((len(actions), 10), np.uint16),
        root_values=np.array(root_values, np.float32),
        outcome=outcome,
        margin=margin,
        end=end,
        game=game,
        black="champion",
        white="champion",
    )


def test_metrics_of_four_games():
    games = [
        record(0, [0, 9, 9], [0.5, -0.5, 1.0], +1, 2.5, "passes"),  # errors 0.25, 0.25, 0
        record(1, [0, 1], [0.0, 0.0], -1, -0.5, "length"),  # errors 1, 1
        record(2, [0, 9, 9], [0.25, 0.5, 0.0], 0, 0.0, "passes"),  # errors 0.0625, 0.25, 0
        record(3, [9, 9], [-1.0, 1.0], -1, -4.0, "passes"),  # errors 0, 0
    ]
    assert metrics_of(read_records(write_records(games), "games")) == SelfplayMetrics(
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
    )


@pytest.mark.parametrize("outcome", [+1, -1])
def test_a_player_that_knows_the_outcome_has_no_error(outcome):
    values = [outcome * sign for sign in (+1.0, -1.0, +1.0, -1.0, +1.0)]
    metrics = metrics_of(read_records(write_records([record(0, [0] * 5, values, outcome, 0.0, "line")]), "games"))
    assert metrics.root_value_error == 0.0
