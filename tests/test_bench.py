"""What `zero bench` counts."""

import pytest

from tests.play.shards import SELFPLAY
from zero import bench
from zero.bench import Games
from zero.games.rules import gomoku_rules
from zero.search.evaluator import UniformEvaluator

NUM_SIMULATIONS = 4
MOVES_OF_A_SERIES = 16 * 12
"""Two slots play a series of sixteen games; on a board of one row without a line each has twelve moves."""


class Clock:
    """Goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("seconds", [10, 37, 2_000])
def test_every_simulation_is_counted_once(monkeypatch, seconds):
    monkeypatch.setattr(bench, "time", Clock())
    settings = SELFPLAY._replace(num_simulations=NUM_SIMULATIONS, tree_reuse=False)
    games = Games(gomoku_rules(1, 12, 12), settings, 2, 20, UniformEvaluator())
    counted = 0.0
    while games._series < 2:
        counted += games.run(seconds)[1] * seconds
        moves = games._series * MOVES_OF_A_SERIES + int(games._slots.positions.state[games._slots.game >= 0, 1].sum())
        moves += int(games._records.num_moves.sum())
        assert counted == pytest.approx(moves * NUM_SIMULATIONS)
