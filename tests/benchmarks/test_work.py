"""The work of each row."""

import contextlib
import itertools

import numpy as np
import pytest

from benchmarks.leela_zero import searches
from benchmarks.results import rows_named
from benchmarks.search import MEBIBYTE, arrays_of, first_simulation, memory, new_part, play_first_moves, search
from benchmarks.selfplay import GAMES_PER_SLOT, mixed_parts, network_alone, selfplay, selfplay_with
from benchmarks.setting import ON_CPU, changed, params_of, selfplay_settings
from benchmarks.training import batches, learner, made_games, plain, plain_losses
from tests.clock import Clock
from tests.oracle.leelaz import needs_leelaz
from tests.parameters import network_params, preset, profile_params, with_sections
from zero.config.params import GomokuParams, Params
from zero.errors import ZeroError
from zero.games.position import NUM_MOVES
from zero.interop.leela_zero import leela_zero_weights
from zero.network.learner import Learner
from zero.network.profile import flush_denormals
from zero.network.weights import new_network
from zero.search.evaluator import UniformEvaluator


@pytest.fixture
def small() -> Params:
    """A 5x5 board, a tiny network."""
    params = preset("smoke").model_copy(update={"network": network_params(), "profile": profile_params()})
    return changed(params, "selfplay.num_games=8,selfplay.num_slots=4")


class CountingEvaluator(UniformEvaluator):
    """Counts the rows that it evaluates."""

    def __init__(self) -> None:
        self.rows = 0

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        self.rows += len(planes)
        super().evaluate(planes, prior, value)


@pytest.mark.parametrize("name", ["search", "search-noise"])
def test_search_counts_the_simulations_of_the_first_moves(name):
    side = rows_named(name)[0].ours
    assert side is not None
    params = params_of(side, ON_CPU)
    assert params.search.first_play == "zero" and params.selfplay.num_slots == 64
    assert play_first_moves(params, new_part(params, 2), UniformEvaluator()) == 2 * 800


def test_each_work_has_a_figure(small):
    with flush_denormals():  # restores the setting that two of them change
        works = [prepare(small) for prepare in (search, selfplay, network_alone, learner, plain)]
        assert min(work(0.02) for work in works) > 0
    one = changed(small, "selfplay.num_simulations=1,selfplay.fast_simulations=1,search.max_nodes=60")
    assert first_simulation(one) == 1


@pytest.mark.parametrize("options", ["", "profile.search_threads=2", "profile.half_batches=true"])
def test_every_evaluated_row_is_counted(small, options, monkeypatch):
    # All games of a board with one row and without lines have the same length, so that the batch stays full.
    line = small.model_copy(update={"game": GomokuParams(name="gomoku", size=5, in_a_row=5)})
    params = changed(line, ",".join(filter(None, ["selfplay.num_slots=16", options])))
    evaluator, clock = CountingEvaluator(), Clock()
    monkeypatch.setattr("benchmarks.selfplay.time", clock)
    work = selfplay_with(evaluator, params)
    assert evaluator.rows == 0, "the ages of the games are mixed without the network"
    for _ in range(2):
        rows, begun = evaluator.rows, clock.now + 1
        figure = work(20.0)
        assert evaluator.rows > rows + 100
        assert figure * (clock.now - begun) == pytest.approx(evaluator.rows - rows)


def test_self_play_goes_on_with_new_games_when_all_have_ended(small):
    evaluator = CountingEvaluator()
    params = changed(small, "selfplay.num_slots=1,selfplay.num_simulations=2,selfplay.fast_simulations=1")
    work = selfplay_with(evaluator, params)
    most = GAMES_PER_SLOT * 2 * 2 * params.game.size**2 * 2
    while evaluator.rows < 2 * most:
        assert work(0.05) > 0


def test_mixed_ages_do_not_change_the_settings(small):
    parts = mixed_parts(changed(small, "selfplay.num_slots=8,profile.half_batches=true"))
    assert len(parts) == 2
    ages = np.concatenate([part.slots.positions.state[:, NUM_MOVES] for part in parts])
    assert len(set(ages.tolist())) > 2
    for part in parts:
        assert part.settings._replace(first_game=0) == selfplay_settings(small)._replace(first_game=0)


def test_settings_are_those_of_a_shard_of_self_play():
    params = preset("go9-simple")
    settings = selfplay_settings(params)
    assert settings.num_players == 1 and settings.full_search_fraction == 1.0
    assert settings.num_simulations == params.selfplay.num_simulations
    assert settings.dirichlet_fraction == params.selfplay.dirichlet_fraction


def test_the_plain_loop_does_the_work_of_the_learner_and_learns(small):
    params = changed(small, "training.rate=0.01")
    first = next(batches(params))
    losses = plain_losses(params, iter([first]))
    plain_loss = float(next(losses))
    made = Learner(new_network(params.network, params.game, params.seed), params.training, "cpu")
    next(made.train(batches(params)))
    (result,) = made.results()
    assert plain_loss == pytest.approx(result.policy_loss + result.value_loss, rel=1e-4)
    assert float(list(itertools.islice(losses, 200))[-1]) < plain_loss - 0.1


def test_generated_games_are_complete(small):
    games = made_games(small)
    assert len(games.outcome) == 8
    assert games.move_offsets[-1] == len(games.actions) == len(games.visit_offsets) - 1
    searched = np.add.reduceat(games.visit_counts.astype(np.int64), games.visit_offsets[:-1])
    assert (searched >= selfplay_settings(small).num_simulations).all()


def test_every_array_of_a_game_is_counted(small):
    assert sum(array.nbytes for array in arrays_of(((np.zeros(3, np.int16), 7), np.zeros(2, np.float32)))) == 14
    more = with_sections(small, search={"max_nodes": small.search.max_nodes + 32})
    grown = (memory(more)(0.0) - memory(small)(0.0)) * MEBIBYTE
    assert grown >= 32 * 26 * 18  # action, prior, visits, value, child of each edge


@pytest.fixture
def leela_weights():
    side = rows_named("leela-zero")[0].ours
    assert side is not None
    return leela_zero_weights(new_network(network_params(value_hidden=256), params_of(side, ON_CPU).game, 1))


@needs_leelaz
def test_simulations_of_leela_zero_are_counted(leela_weights):
    with contextlib.closing(searches(leela_weights, 20)) as done:
        assert [next(done) for _ in range(4)] == [20, 20, 20, 20]


@needs_leelaz
def test_weights_that_leela_zero_cannot_read_are_an_error():
    with pytest.raises(ZeroError, match=r"leelaz .* at `boardsize 19`"):
        next(searches(b"1\n", 20))
