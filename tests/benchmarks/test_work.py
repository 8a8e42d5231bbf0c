"""The work of each row."""

import itertools
import os
import sys

import numpy as np
import pytest

from benchmarks.harness import Child
from benchmarks.memory import MEBIBYTE, game_bytes, num_bytes, play_moves
from benchmarks.memory import prepare as prepare_memory
from benchmarks.search import NUM_SIMULATIONS, search_first_moves, search_params
from benchmarks.selfplay import prepare as prepare_selfplay
from benchmarks.setting import GO9, params_of, residual_tower, selfplay_settings
from benchmarks.startup import process_seconds
from benchmarks.training import bare_loop, made_games
from benchmarks.training import prepare as prepare_training
from tests.benchmarks.runs import short_context
from tests.parameters import network_params, preset, profile_params
from zero.config.params import Params
from zero.data.samples import Sampler
from zero.errors import WorkerError
from zero.games.rules import rules_of
from zero.network.learner import Learner
from zero.network.profile import flush_denormals
from zero.network.weights import new_network
from zero.play.slots import new_batch, new_slots
from zero.search.tree import Trees

CORE = max(os.sched_getaffinity(0))


@pytest.fixture
def small() -> Params:
    """A 5x5 board, a tiny network."""
    return preset("smoke").model_copy(update={"network": network_params(), "profile": profile_params()})


def figures(sides) -> dict[str, float]:
    for side in sides.values():
        side(0.0)  # the first step imports and compiles
    return {name: side(0.02).figure for name, side in sides.items()}


@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_search_counts_the_simulations_of_the_first_moves(noise):
    params = search_params(short_context(), noise)
    settings = selfplay_settings(params)
    assert settings.num_simulations == NUM_SIMULATIONS and not settings.fpu_from_parent
    assert search_first_moves(rules_of(params.game), settings, 3, params.search.max_nodes)[0] == 3 * 800


def test_unchanged_fields_are_those_of_the_preset():
    params = params_of(GO9, preset(GO9).profile, network=residual_tower(6, 64))
    assert (params.network.num_blocks, params.network.num_channels, params.network.value_hidden) == (6, 64, 64)
    same = params.model_copy(update={"network": preset(GO9).network})
    assert same == preset(GO9)


def test_self_play_and_the_network_alone_are_measured_in_one_process(small):
    measured = figures(prepare_selfplay(small))
    assert set(measured) == {"raw", "selfplay", "simulations"}
    assert min(measured.values()) > 0


def test_the_learner_and_the_bare_loop_are_measured_in_samples(small):
    with flush_denormals():  # restores the setting that the benchmark changes
        measured = figures(prepare_training(small, 8))
    assert set(measured) == {"learner", "bare"}
    assert min(measured.values()) > small.training.batch_size  # more than one step per second


def test_the_plain_loop_learns_its_batches(small):
    games = made_games(small, 8)
    with Sampler(rules_of(small.game), games, 1, 0, 32, True) as sampler:
        batches = list(sampler.batches(0, 1))
    losses = [float(loss) for loss in itertools.islice(bare_loop(small, batches), 200)]
    assert losses[-1] < losses[0] - 0.1
    learner = Learner(new_network(small.network, small.game, small.seed), small.training, "cpu")
    next(learner.train(batches))
    (first,) = learner.results()
    assert losses[0] == pytest.approx(first.policy_loss + first.value_loss, rel=1e-4)  # both sides do the same work


def test_generated_games_are_complete(small):
    games = made_games(small, 6)
    assert len(games.outcome) == 6
    assert games.move_offsets[-1] == len(games.actions) == len(games.visit_offsets) - 1
    searched = np.add.reduceat(games.visit_counts.astype(np.int64), games.visit_offsets[:-1])
    assert (searched >= selfplay_settings(small).num_simulations).all()


def test_every_array_of_a_game_is_counted(small):
    rules, settings = rules_of(small.game), selfplay_settings(small)
    slots, batch = new_slots(rules, settings, 1, 32), new_batch(rules, 1, 1)
    assert num_bytes((batch, (np.zeros(3, np.int16), 7))) == 17 * 8 + 26 * 4 + 4 + 4 + 6
    assert game_bytes(rules, settings, 32) > num_bytes(slots) + 2 * num_bytes(batch)
    grown = game_bytes(rules, settings, 64) - game_bytes(rules, settings, 32)
    assert grown >= 32 * 26 * 18  # action, prior, visits, value, child of each edge
    assert isinstance(slots.trees, Trees)


def test_memory_grows_at_most_by_the_arrays():
    params = params_of("go9-simple", profile_params(), search={"max_nodes": 200})
    with Child(prepare_memory, params, 64, 12, cores=[CORE]) as child:
        sample = child.side("memory")(0.0)
    arrays, growth, nodes = (detail.value for detail in sample.details)
    rules, settings = rules_of(params.game), selfplay_settings(params)
    assert arrays == game_bytes(rules, settings, 200) / MEBIBYTE
    assert nodes == 200
    assert 0.1 * arrays < growth < 1.2 * arrays
    assert sample.figure == max(arrays, growth)


def test_moves_are_played_in_every_game(small):
    rules, settings = rules_of(small.game), selfplay_settings(small)
    part = play_moves(rules, settings, 3, small.search.max_nodes, 4)
    assert (part.slots.positions.state[:, 1] >= 4).all()


def test_a_process_without_a_simulation_is_an_error():
    assert process_seconds([sys.executable, "-c", "print('simulations: 1')"]) > 0
    with pytest.raises(WorkerError, match="ended with status 0: simulations: 0"):
        process_seconds([sys.executable, "-c", "print('simulations: 0')"])
    with pytest.raises(WorkerError, match="ended with status 1: ZeroDivisionError"):
        process_seconds([sys.executable, "-c", "1 / 0"])
