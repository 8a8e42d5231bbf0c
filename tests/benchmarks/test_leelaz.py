"""Leela Zero as a rival."""

import pytest

from benchmarks.leela_zero import Leelaz, leela_params, prepare
from tests.benchmarks.runs import short_context
from tests.oracle.leelaz import needs_leelaz
from tests.parameters import network_params
from zero.errors import ZeroError
from zero.interop.leela_zero import leela_zero_weights
from zero.network.weights import new_network

PARAMS = leela_params(short_context())
TINY = network_params(value_hidden=256)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.txt"
    path.write_bytes(leela_zero_weights(new_network(TINY, PARAMS.game, 1)))
    return path


@needs_leelaz
def test_simulations_are_counted(weights):
    program = Leelaz(weights, 20)
    try:
        assert [program.search() for _ in range(4)] == [20, 20, 20, 20]
    finally:
        program.close()


@needs_leelaz
def test_unreadable_weights_are_an_error(tmp_path):
    with pytest.raises(ZeroError, match=r"leelaz .* at `boardsize 19`.*none"):
        Leelaz(tmp_path / "none.txt", 20)


@needs_leelaz
def test_the_rival_is_measured_in_simulations():
    selfplay = PARAMS.selfplay.model_copy(update={"num_simulations": 20, "num_slots": 2})
    params = PARAMS.model_copy(update={"network": TINY, "selfplay": selfplay})
    assert prepare(params)["leelaz"](0.01).figure > 0


def test_the_work_is_that_of_the_target():
    network, selfplay = PARAMS.network, PARAMS.selfplay
    assert (network.num_blocks, network.num_channels, network.value_hidden) == (6, 64, 256)
    assert PARAMS.game.size == 19
    assert (selfplay.num_simulations, selfplay.num_slots) == (200, 32)
