"""The project's network as plain JAX, with the weights of a weight file: what a rival in JAX plays with."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn

from zero.network.fold import fold
from zero.network.model import AlphaZeroNetwork

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
"""Layout of the planes, the filters and the result; channels last is the fastest on CPUs."""


class Convolution(NamedTuple):
    """A convolution that keeps the board's size."""

    filters: Any  # [S, S, C_in, C_out] float32
    bias: Any  # [C_out]


class Linear(NamedTuple):
    """A fully connected layer."""

    weights: Any  # [in, out] float32
    bias: Any  # [out]


class JaxNetwork(NamedTuple):
    """A residual tower with both heads; normalisations are folded into the convolutions."""

    stem: Convolution
    blocks: list[tuple[Convolution, Convolution]]
    policy_reduce: Convolution
    policy_output: Linear
    value_reduce: Convolution
    value_hidden: Linear
    value_output: Linear


def jax_network(network: AlphaZeroNetwork) -> JaxNetwork:
    """The same function; of a network with a joint residual tower and the paper's heads alone."""
    spec = network.spec.network
    assert spec.tower == "residual" and spec.heads == "joint" and not (spec.global_pooling or spec.pooled_heads)
    folded: Any = fold(network)
    points = network.spec.rows * network.spec.columns
    stem, *blocks = folded.tower
    return JaxNetwork(
        stem=_convolution(stem.first),
        blocks=[(_convolution(block.first), _convolution(block.second)) for block in blocks],
        policy_reduce=_convolution(folded.policy_head.reduce),
        policy_output=_linear(folded.policy_head.output, points),
        value_reduce=_convolution(folded.value_head.reduce),
        value_hidden=_linear(folded.value_head.hidden, points),
        value_output=_linear(folded.value_head.output, 1),
    )


def judge(network: JaxNetwork, planes: Any) -> tuple[Any, Any]:
    """Planes [B, S, S, P] float32 -> policy logits [B, A], values [B] for the player to move."""
    x = jax.nn.relu(_convolve(network.stem, planes))
    for first, second in network.blocks:
        x = jax.nn.relu(x + _convolve(second, jax.nn.relu(_convolve(first, x))))
    policy = jax.nn.relu(_convolve(network.policy_reduce, x)).reshape(len(x), -1)
    value = jax.nn.relu(_convolve(network.value_reduce, x)).reshape(len(x), -1)
    hidden = jax.nn.relu(_apply(network.value_hidden, value))
    return _apply(network.policy_output, policy), jnp.tanh(_apply(network.value_output, hidden))[:, 0]


def _convolve(layer: Convolution, x: Any) -> Any:
    return jax.lax.conv_general_dilated(x, layer.filters, (1, 1), "SAME", dimension_numbers=DIMENSIONS) + layer.bias


def _apply(layer: Linear, x: Any) -> Any:
    return x @ layer.weights + layer.bias


def _convolution(module: nn.Conv2d) -> Convolution:
    assert module.bias is not None
    return Convolution(jnp.asarray(module.weight.numpy().transpose(2, 3, 1, 0)), jnp.asarray(module.bias.numpy()))


def _linear(module: nn.Linear, points: int) -> Linear:
    """The layer with its inputs in the order of channels last: `points` points of some channels each."""
    weights = module.weight.numpy()  # [out, channels * points]
    reordered = weights.reshape(len(weights), -1, points).transpose(2, 1, 0).reshape(-1, len(weights))
    return Linear(jnp.asarray(np.ascontiguousarray(reordered)), jnp.asarray(module.bias.numpy()))
