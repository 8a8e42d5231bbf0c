"""Folding of batch normalisation into the preceding convolutions: the same function in fewer steps, for inference.

In evaluation mode a normalisation is y = (x - mean) / sqrt(variance + eps) * gamma + beta, an affine map per channel.
The convolution before it can absorb the scale into its weights and the offset into a bias.
"""

import copy

import torch
from torch import nn

from zero.network.model import AlphaZeroNetwork, ConvNorm


def fold(network: AlphaZeroNetwork) -> AlphaZeroNetwork:
    """A copy of the network without normalisations, for inference; the given network is not modified."""
    folded = copy.deepcopy(network).eval().requires_grad_(False)
    # Lists, because the loop replaces modules.
    for parent in list(folded.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ConvNorm):
                setattr(parent, name, fold_layer(child))
    return folded


def fold_layer(layer: ConvNorm) -> nn.Conv2d:
    """The convolution with bias that equals `layer` in evaluation mode; computed in float64 and rounded once."""
    conv, norm = layer.conv, layer.norm
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
    weight = conv.weight.double() * scale.reshape(-1, 1, 1, 1)
    bias = norm.bias.double() - norm.running_mean.double() * scale
    with torch.device("meta"):  # no initialisation: the tensors are assigned below
        size = conv.kernel_size[0]
        folded = nn.Conv2d(conv.in_channels, conv.out_channels, size, padding=size // 2)
    folded.load_state_dict({"weight": weight.float().contiguous(), "bias": bias.float()}, assign=True)
    return folded.eval().requires_grad_(False)
