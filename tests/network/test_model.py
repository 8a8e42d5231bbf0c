"""The network compared with its slow oracle, and the shapes of its tensors."""

import numpy as np
import pytest
import torch

from tests.network.networks import (
    ARCHITECTURES,
    GO5,
    GOMOKU5,
    NUM_ACTIONS,
    TINY,
    as_images,
    random_planes,
    randomized_network,
)
from tests.oracle.network import NetworkTwin
from tests.parameters import network_params
from zero.config.params import GoParams
from zero.errors import ParamsError
from zero.network.model import Block, ConvNorm
from zero.network.spec import network_spec
from zero.network.weights import new_network

POOLED_HEADS = ARCHITECTURES["pooled heads"]


@pytest.mark.parametrize(
    ("network", "game", "num_actions"),
    [*((network, GO5, NUM_ACTIONS) for network in ARCHITECTURES.values()), (POOLED_HEADS, GOMOKU5, NUM_ACTIONS - 1)],
    ids=[*ARCHITECTURES, "pooled heads without a pass"],
)
def test_every_architecture_agrees_with_the_oracle(network, game, num_actions):
    model = randomized_network(network, game=game)
    planes = random_planes(3)
    with torch.no_grad():
        predictions = model.predict(as_images(planes))
        logits, values = model(as_images(planes))
    assert torch.equal(predictions.logits, logits) and torch.equal(predictions.value, values)
    assert (logits.shape, values.shape) == ((3, num_actions), (3,))
    torch.testing.assert_close(torch.tanh(predictions.value_logit), values)
    twin = NetworkTwin(network, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    boards = planes.reshape(3, -1, 5, 5)
    twin_logits, twin_values = twin.evaluate(boards)
    np.testing.assert_allclose(logits.numpy(), twin_logits, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(values.numpy(), twin_values, atol=1e-5)
    assert np.std(twin_values) > 0.01
    assert (predictions.ownership is not None, predictions.score is not None) == (
        network.ownership_head,
        network.score_head,
    )
    if predictions.ownership is not None:
        assert predictions.ownership.shape == (3, 25)
        np.testing.assert_allclose(predictions.ownership.numpy(), twin.ownership(boards), atol=1e-5)
    if predictions.score is not None:
        assert predictions.score.shape == (3,)
        np.testing.assert_allclose(predictions.score.numpy(), twin.score(boards), atol=1e-5)


def test_inference_does_not_compute_the_auxiliary_heads():
    model = randomized_network(ARCHITECTURES["residual joint with everything"])
    used = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: used.append(name))
    model(as_images(random_planes(2)))
    assert not [name for name in used if name.startswith(("ownership", "score"))]
    model.predict(as_images(random_planes(2)))
    assert {"ownership_head.output", "score_head.output"} <= set(used)


@pytest.mark.parametrize(("num_blocks", "pooled"), [(1, {1}), (2, {2}), (3, {2, 3}), (4, {3, 4})])
def test_the_second_half_of_the_blocks_is_pooled(num_blocks, pooled):
    model = randomized_network(network_params(num_blocks=num_blocks, global_pooling=True))
    layers = [*model.tower.children()]
    found = {index for index, layer in enumerate(layers) if isinstance(layer, Block) and layer.pool is not None}
    assert found == pooled


def test_with_pooling_every_point_depends_on_the_complete_board():
    """Without pooling the receptive field has a radius of three points: the stem and the two layers of a block."""
    far = [0, 7 * 9 + 8]
    board = GoParams(name="go", size=9, komi=0.5, allow_suicide=False)
    for pooling in (False, True):
        model = new_network(network_params(num_channels=8, global_pooling=pooling), board, 1)
        x = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (1, 17, 81)).astype(np.float32))
        changed = x.clone()
        changed[0, :, far[1]] = 1 - changed[0, :, far[1]]
        with torch.no_grad():
            one, other = (model.tower(planes.view(1, 17, 9, 9)).flatten(2)[0, :, far[0]] for planes in (x, changed))
        assert torch.equal(one, other) != pooling


@pytest.mark.parametrize("name", ["global_pooling", "pooled_heads"])
def test_pooling_of_a_single_channel_is_rejected(name):
    with pytest.raises(ParamsError, match=rf"{name} = True needs network.num_channels of 2 or more, got 1"):
        network_spec(network_params(num_channels=1, **{name: True}), GO5)


def test_the_paper_network_has_its_known_size():
    """20 blocks of 256 at 19x19: 39 convolutions in the trunk, with 22.8 million weights."""
    network = network_params(num_blocks=19, num_channels=256, value_hidden=256)
    model = new_network(network, GoParams(name="go", size=19, komi=7.5, allow_suicide=False), 1)
    convolutions = [layer for layer in model.tower.modules() if isinstance(layer, ConvNorm)]
    assert len(convolutions) == 1 + 2 * 19
    trunk = 17 * 256 * 9 + 38 * 256 * 256 * 9 + 39 * 2 * 256
    policy = 256 * 2 + 2 * 2 + 2 * 361 * 362 + 362
    value = 256 * 1 + 2 * 1 + 361 * 256 + 256 + 256 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == trunk + policy + value


def test_a_gomoku_network_has_no_pass():
    assert network_spec(TINY, GO5).num_actions == NUM_ACTIONS
    assert network_spec(TINY, GOMOKU5).num_actions == NUM_ACTIONS - 1
