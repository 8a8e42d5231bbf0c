"""The network against its slow twin, and its sizes."""

import numpy as np
import pytest
import torch

from tests.network.networks import GO5, NUM_ACTIONS, TINY, as_images, lived_in_network, random_planes
from tests.oracle.network import NetworkTwin
from zero.network.tower import ConvNorm, network_spec
from zero.network.weights import new_network
from zero.params import GomokuParams, GoParams, NetworkParams


@pytest.mark.parametrize("heads", ["joint", "separate"])
@pytest.mark.parametrize("tower", ["residual", "plain", "shallow"])
def test_every_architecture_is_its_slow_twin(tower, heads):
    network = TINY.model_copy(update={"tower": tower, "heads": heads})
    model = lived_in_network(network)
    planes = random_planes(3)
    with torch.no_grad():
        logits, values = model(as_images(planes))
    twin = NetworkTwin(network, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    twin_logits, twin_values = twin.evaluate(planes.reshape(3, -1, 5, 5))
    np.testing.assert_allclose(logits.numpy(), twin_logits, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(values.numpy(), twin_values, atol=1e-5)
    assert np.std(twin_values) > 0.01


def test_the_paper_network_has_its_known_size():
    """20 blocks of 256 at 19x19: 39 convolutions in the tower, 22.8 million weights of them."""
    network = NetworkParams(tower="residual", heads="joint", num_blocks=19, num_channels=256, value_hidden=256)
    model = new_network(network, GoParams(name="go", size=19, komi=7.5, allow_suicide=False), 1)
    convolutions = [layer for layer in model.tower.modules() if isinstance(layer, ConvNorm)]
    assert len(convolutions) == 1 + 2 * 19
    tower = 17 * 256 * 9 + 38 * 256 * 256 * 9 + 39 * 2 * 256
    policy = 256 * 2 + 2 * 2 + 2 * 361 * 362 + 362
    value = 256 * 1 + 2 * 1 + 361 * 256 + 256 + 256 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == tower + policy + value


def test_a_shallow_tower_has_as_many_convolutions_as_blocks():
    model = lived_in_network(TINY.model_copy(update={"tower": "shallow"}))
    assert sum(isinstance(layer, ConvNorm) for layer in model.tower.modules()) == TINY.num_blocks


def test_separate_heads_share_nothing():
    model = lived_in_network(TINY.model_copy(update={"heads": "separate"}))
    _, values = model(as_images(random_planes(2)))
    values.sum().backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert reached == {name for name, _ in model.named_parameters() if name.startswith("value_")}


def test_a_gomoku_network_has_no_pass():
    assert network_spec(TINY, GO5).num_actions == NUM_ACTIONS
    assert network_spec(TINY, GomokuParams(name="gomoku", size=5, in_a_row=4)).num_actions == NUM_ACTIONS - 1
