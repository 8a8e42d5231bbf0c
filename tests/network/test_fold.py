"""The folded network computes the same function."""

import pytest
import torch
from torch import nn

from tests.network.networks import ARCHITECTURES, as_images, random_planes, randomized_network
from zero.network.model import fold
from zero.network.weights import weights_bytes


@pytest.mark.parametrize("network", ARCHITECTURES.values(), ids=list(ARCHITECTURES))
def test_the_folded_network_gives_the_same_outputs(network):
    model = randomized_network(network)
    before = weights_bytes(model)
    x = as_images(random_planes(16))
    folded = fold(model)
    with torch.no_grad():
        outputs = zip(folded.predict(x), model.predict(x), strict=True)
        plain_outputs = zip(folded(x), model(x), strict=True)
    for found, expected in (*outputs, *plain_outputs):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not [module for module in folded.modules() if isinstance(module, nn.BatchNorm2d)]
    assert weights_bytes(model) == before, "the network itself is not modified"
