"""Networks as if trained: no weight has its initial value, and outputs depend on the complete position."""

import numpy as np
import torch
from torch import nn

from zero.config.params import GameParams, GomokuParams, GoParams, NetworkParams
from zero.network.model import AlphaZeroNetwork
from zero.network.weights import new_network

GO9 = GoParams(name="go", size=9, komi=7.0, allow_suicide=False)
GO19 = GoParams(name="go", size=19, komi=7.5, allow_suicide=False)
GOMOKU8 = GomokuParams(name="gomoku", size=8, in_a_row=5)
GOMOKU19 = GomokuParams(name="gomoku", size=19, in_a_row=5)
POLICY_GAIN, VALUE_GAIN = 15.0, 5.0
"""Factors for the small initial weights of the last layers, so that some points get a tenth of the policy."""
BATCH_SIZE, STONE_CHANCE = 16, 0.2


def trained(network: NetworkParams, game: GameParams, seed: int = 3) -> AlphaZeroNetwork:
    model = new_network(network, game, seed)
    draws = np.random.default_rng(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.copy_(torch.from_numpy(draws.normal(1.0, 0.3, module.num_features)))
                module.bias.copy_(torch.from_numpy(draws.normal(0.0, 0.3, module.num_features)))
                module.momentum = 1.0
            elif isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.copy_(torch.from_numpy(draws.normal(0.0, 0.3, module.out_features)))
        model.policy_head.output.weight.mul_(POLICY_GAIN)
        model.value_head.output.weight.mul_(VALUE_GAIN)
        model.train()(random_images(model, BATCH_SIZE, seed))  # the running statistics become those of this batch
    return model.eval()


def random_images(model: AlphaZeroNetwork, batch_size: int, seed: int = 0) -> torch.Tensor:
    """[B, P, S, S] float32, zeros and a few ones."""
    shape = (batch_size, model.spec.num_planes, model.spec.rows, model.spec.columns)
    return torch.from_numpy((np.random.default_rng(seed).random(shape) < STONE_CHANCE).astype(np.float32))
