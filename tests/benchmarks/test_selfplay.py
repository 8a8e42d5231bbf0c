"""The counts of self-play."""

import numpy as np
import pytest

from benchmarks import harness, selfplay
from benchmarks.selfplay import Games, network_rate
from benchmarks.setting import selfplay_settings
from tests.clock import Clock
from tests.parameters import preset
from tests.play.shards import SELFPLAY
from zero.games.position import NUM_MOVES
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator

NUM_SIMULATIONS = 4
MOVES_OF_A_GAME = 12
LINE = gomoku_rules(1, MOVES_OF_A_GAME, MOVES_OF_A_GAME)
"""On a board with one row and without lines all games have the same length."""
SETTINGS = SELFPLAY._replace(num_simulations=NUM_SIMULATIONS, tree_reuse=False)


class CountingEvaluator(UniformEvaluator):
    """Counts the rows that it evaluates."""

    def __init__(self) -> None:
        self.rows = 0

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        self.rows += len(planes)
        super().evaluate(planes, prior, value)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(selfplay, "time", clock)
    monkeypatch.setattr(harness, "time", clock)
    return clock


def made_moves(games: Games) -> int:
    ended = sum(int(part.records.num_done[0]) for part in games._parts) * MOVES_OF_A_GAME
    return ended + sum(int(part.slots.positions.state[:, NUM_MOVES].sum()) for part in games._parts)


def visits_of_searches(games: Games) -> int:
    trees = [part.slots.trees for part in games._parts]
    return sum(int(tree.node_visits[i, 0]) for tree in trees for i in np.flatnonzero(tree.num_nodes))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("seconds", [10, 37, 500])
def test_every_simulation_is_counted_once(seconds):
    games = Games(LINE, SETTINGS, 2, 20, UniformEvaluator())
    before = made_moves(games) * NUM_SIMULATIONS + visits_of_searches(games)
    counted = 0.0
    while made_moves(games) < 40 * MOVES_OF_A_GAME:  # there are records for 16 games: they are used again
        counted += games.run(seconds).simulations * seconds
        done = made_moves(games) * NUM_SIMULATIONS + visits_of_searches(games)
        assert counted == pytest.approx(done - before)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("search_threads", "half_batches"), [(1, False), (2, False), (1, True)])
def test_every_evaluated_row_is_counted(search_threads, half_batches):
    evaluator = CountingEvaluator()
    games = Games(LINE, SETTINGS, 16, 20, evaluator, search_threads, half_batches)
    evaluated = evaluator.rows
    counted = games.run(200).evaluations * 200
    assert counted > 500
    assert counted == pytest.approx(evaluator.rows - evaluated, abs=16)  # 16 requests may not be evaluated yet


def test_mixed_ages_do_not_change_the_settings():
    evaluator = CountingEvaluator()
    rules = go_rules(5, 5, 0.5, False)
    games = Games(rules, SELFPLAY, 8, 40, evaluator)
    assert evaluator.rows == 0
    assert len(set(games._parts[0].slots.positions.state[:, NUM_MOVES].tolist())) > 2
    assert games._parts[0].settings == SELFPLAY
    assert games.run(0.05).evaluations > 0
    assert evaluator.rows > 0


@pytest.mark.usefixtures("clock")
def test_the_network_alone_evaluates_one_batch_repeatedly():
    games = Games(LINE, SETTINGS, 8, 20, UniformEvaluator())
    evaluator = CountingEvaluator()
    assert games.planes.shape == (8, 17, 1)
    assert network_rate(LINE, evaluator, games.planes, 10) * 10 == evaluator.rows == 10 * 8


def test_settings_are_those_of_a_shard_of_self_play():
    params = preset("go9-simple")
    settings = selfplay_settings(params)
    assert settings.num_players == 1
    assert settings.num_simulations == params.selfplay.num_simulations
    assert settings.dirichlet_fraction == params.selfplay.dirichlet_fraction
    assert settings.fpu_from_parent == (params.search.first_play == "parent")
