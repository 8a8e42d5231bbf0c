"""leelaz as a rival."""

import pytest

from benchmarks.leela_zero import leela_work, prepare
from benchmarks.leelaz import Leelaz
from tests.benchmarks.runs import short_context
from tests.oracle.leelaz import needs_leelaz
from tests.parameters import network_params
from zero.errors import ZeroError
from zero.interop.leela_zero import leela_zero_weights
from zero.network.weights import new_network

WORK = leela_work(short_context())
TINY = network_params(value_hidden=256)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.txt"
    path.write_bytes(leela_zero_weights(new_network(TINY, WORK.params.game, 1)))
    return path


@needs_leelaz
def test_it_says_what_it_simulated_and_plays_on(weights):
    with Leelaz(weights, 20) as program:
        searches = [program.search() for _ in range(4)]
    assert [search.playouts for search in searches] == [20, 20, 20, 20]
    assert len({search.move for search in searches}) == 4
    assert all(search.seconds > 0 for search in searches)


@needs_leelaz
def test_weights_that_it_cannot_read_are_an_error_in_its_words(tmp_path):
    with pytest.raises(ZeroError, match=r"leelaz failed at `boardsize 19`: .*none"):
        Leelaz(tmp_path / "none.txt", 20)


@needs_leelaz
def test_both_sides_are_measured_in_simulations():
    selfplay = WORK.params.selfplay.model_copy(update={"num_simulations": 20, "num_slots": 2})
    params = WORK.params.model_copy(update={"network": TINY, "selfplay": selfplay})
    work = WORK.model_copy(update={"params": params})
    measured = {measure.name: measure.run(0.01).figure for measure in prepare(work.model_dump_json())}
    assert set(measured) == {"leelaz", "player"}
    assert min(measured.values()) > 0


def test_the_work_is_that_of_the_target():
    network, selfplay = WORK.params.network, WORK.params.selfplay
    assert (network.num_blocks, network.num_channels, network.value_hidden) == (6, 64, 256)
    assert WORK.params.game.size == 19
    assert (selfplay.num_simulations, selfplay.num_slots) == (200, 32)
