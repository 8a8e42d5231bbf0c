"""pgx and mctx as a rival, with our network, positions and count."""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.setting import changed
from tests.parameters import network_params, preset
from zero.config.params import GoParams
from zero.games.planes import expand_planes, write_planes
from zero.games.position import NUM_PLANES, new_history, new_position
from zero.games.rules import go_rules, play
from zero.network.weights import new_network

GO9 = GoParams(name="go", size=9, komi=7.5, allow_suicide=False)
ACTIONS = (40, 41, 50, 49, 31, 81, 60, 0, 12, 80, 7)
"""Moves on 9x9, a pass among them."""


@pytest.fixture(scope="module")
def rival() -> Iterator[Any]:
    """The module. It imports JAX, which takes a second that most test processes do without."""
    for name in ("jax", "pgx", "mctx"):
        pytest.importorskip(name, reason=f"{name} is not installed (extra `test`)")
    module: Any = importlib.import_module("benchmarks.pgx")
    # Compiles in two thirds of the time; the code is slower.
    module.jax.config.update("jax_disable_most_optimizations", True)
    yield module
    module.jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def network():
    network = new_network(network_params(num_blocks=2, num_channels=8, value_hidden=6), GO9, 1)
    with torch.no_grad():
        for parameter in network.parameters():  # outputs of a new network are nearly even
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return network


def test_the_network_is_the_same_function(rival, network):
    planes = np.random.default_rng(1).integers(0, 2, (5, 9, 9, NUM_PLANES)).astype(np.float32)
    logits, value = rival.apply_network(rival.jax_weights(network), planes)
    with torch.inference_mode():
        expected_logits, expected_value = network(torch.from_numpy(planes).permute(0, 3, 1, 2))
    np.testing.assert_allclose(logits, expected_logits.numpy(), atol=2e-5)
    np.testing.assert_allclose(value, expected_value.numpy(), atol=2e-5)
    assert np.ptp(value) > 0.01


def test_the_planes_are_those_of_the_project(rival):
    jax = rival.jax
    rules, environment = go_rules(9, 9, 7.5, False), rival.pgx.make("go_9x9")
    state, step = jax.jit(environment.init)(jax.random.PRNGKey(0)), jax.jit(environment.step)
    position, history = new_position(rules), new_history(rules)
    for action in ACTIONS:
        bits = np.zeros((NUM_PLANES, rules.num_words), np.uint64)
        expected = np.zeros((1, 81, NUM_PLANES), np.float32)
        write_planes(rules, position, history, 0, bits)
        expand_planes(bits[None], expected)
        found = rival.planes_of(state.observation[None])
        np.testing.assert_array_equal(found.reshape(1, 81, NUM_PLANES), expected)
        state = step(state, action)
        play(rules, position, history, action)


def test_a_move_evaluates_the_root_and_each_simulation(rival, network, monkeypatch):
    jax, apply_network = rival.jax, rival.apply_network
    requests: list[int] = []

    def counting(weights: Any, planes: Any) -> Any:
        jax.debug.callback(requests.append, len(planes))
        return apply_network(weights, planes)

    monkeypatch.setattr(rival, "apply_network", counting)
    monkeypatch.setattr(rival, "new_network", lambda *_: network)
    monkeypatch.setattr(rival, "rate", lambda step, _: step())
    params = changed(preset(), "selfplay.num_slots=3,selfplay.num_simulations=4,selfplay.fast_simulations=1")
    work = rival.selfplay(params)
    jax.effects_barrier()
    assert sum(requests) == 15 and work(0.0) == 15
    jax.effects_barrier()
    assert sum(requests) == 30
