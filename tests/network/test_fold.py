"""The folded network is the same function."""

import pytest
import torch
from torch import nn

from tests.network.networks import TINY, as_images, lived_in_network, random_planes
from zero.network.fold import fold
from zero.network.weights import weights_bytes


@pytest.mark.parametrize("heads", ["joint", "separate"])
@pytest.mark.parametrize("tower", ["residual", "plain", "shallow"])
def test_the_folded_network_gives_the_same_answers(tower, heads):
    model = lived_in_network(TINY.model_copy(update={"tower": tower, "heads": heads}))
    before = weights_bytes(model)
    x = as_images(random_planes(16))
    folded = fold(model)
    with torch.no_grad():
        logits, values = model(x)
        folded_logits, folded_values = folded(x)
    torch.testing.assert_close(folded_logits, logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(folded_values, values, rtol=1e-4, atol=1e-6)
    assert weights_bytes(model) == before


def test_no_normalisation_is_left():
    assert not [module for module in fold(lived_in_network()).modules() if isinstance(module, nn.BatchNorm2d)]
    assert [module for module in lived_in_network().modules() if isinstance(module, nn.BatchNorm2d)]
