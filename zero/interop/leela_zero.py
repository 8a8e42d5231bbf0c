"""Exports a network as text weights of Leela Zero 0.17 (format version 1), for `leelaz` and the tools that run it.

The file consists of lines of numbers: the version; weights, bias, mean and variance of each convolution of the trunk;
the same for the policy head and its linear layer; the same for the value head and its two linear layers
(leela-zero/src/Network.cpp, `load_v1_network`). The formats differ as follows:

| here | Leela Zero | in the file |
|---|---|---|
| planes own, opponent, own a move ago, ... | 8 own planes, then 8 of the opponent | input filters reordered |
| plane 16: Black to move | 16: Black, 17: White to move | filters of plane 17 are zero |
| row 0 is the top row | row 0 is row 1 of the board, at the bottom | filters flipped, linear layers reordered |
| normalisation with scale and shift | mean and variance, epsilon 1e-5 | folded into weights and bias, variance 1 |

The file does not contain the komi that the network was trained with: set it in `leelaz` (GTP `komi`).
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from zero.errors import ParamsError
from zero.games.position import NUM_HISTORY
from zero.network.model import AlphaZeroNetwork, PolicyHead, fold
from zero.network.spec import POLICY_FILTERS, VALUE_FILTERS, NetworkSpec

VERSION = "1"
SIZE = 19
VALUE_HIDDEN = 256
EPSILON = 1e-5
"""Added to each variance by `leelaz`."""
NUM_PLANES = 2 * NUM_HISTORY + 2
NUM_DIGITS = 9  # distinguishes any two float32 numbers


def leela_zero_weights(network: AlphaZeroNetwork) -> bytes:
    """Content of the weight file. Equal networks give equal bytes.

    Raises:
      ParamsError: Leela Zero does not support such a network.
    """
    check_fits(network.spec)
    return b"".join(f"{line}\n".encode() for line in (VERSION, *map(_line, _tensors(fold(network)))))


def check_fits(spec: NetworkSpec) -> None:
    """Checks that Leela Zero supports a network. It accepts any number of blocks and channels.

    Raises:
      ParamsError: a parameter is not supported.
    """
    if (spec.rows, spec.columns, spec.num_actions) != (SIZE, SIZE, SIZE * SIZE + 1):
        raise ParamsError(
            f"the network is for a {spec.rows}x{spec.columns} board with {spec.num_actions} actions, but Leela Zero "
            f"plays {SIZE}x{SIZE} Go only; export it with `--format onnx`"
        )
    params = spec.network
    for name, value, wanted in (
        ("tower", params.tower, "residual"),
        ("heads", params.heads, "joint"),
        ("value_hidden", params.value_hidden, VALUE_HIDDEN),
        ("global_pooling", params.global_pooling, False),
        ("pooled_heads", params.pooled_heads, False),
    ):
        if value != wanted:
            raise ParamsError(
                f"network.{name} is {value!r}, but Leela Zero requires {wanted!r}; "
                f"train a network with {name}: {wanted!r}, or export this one with `--format onnx`"
            )


def _tensors(network: AlphaZeroNetwork) -> Iterator[Tensor]:
    """Tensors of a folded network in the order of the file."""
    first, *others = (module for module in network.tower.modules() if isinstance(module, nn.Conv2d))
    yield from _convolution(_their_planes(first.weight), first.bias)
    for layer in others:
        yield from _convolution(layer.weight, layer.bias)
    points = torch.arange(SIZE * SIZE).view(SIZE, SIZE).flip(0).flatten()  # our numbers of their points
    policy, value = network.policy_head, network.value_head
    assert isinstance(policy, PolicyHead)  # see `check_fits`
    yield from _head(policy.reduce)
    actions = torch.cat([points, torch.tensor([SIZE * SIZE])])
    yield policy.output.weight[actions][:, _of_planes(points, POLICY_FILTERS)]
    yield policy.output.bias[actions]
    yield from _head(value.reduce)
    yield value.hidden.weight[:, _of_planes(points, VALUE_FILTERS)]
    yield from (value.hidden.bias, value.output.weight, value.output.bias)


def _head(layer: nn.Module) -> Iterator[Tensor]:
    assert isinstance(layer, nn.Conv2d)  # folding has replaced the `ConvNorm`
    return _convolution(layer.weight, layer.bias)


def _convolution(weight: Tensor, bias: Tensor | None) -> Iterator[Tensor]:
    """The four lines of a convolution: weights, bias, mean and variance."""
    assert bias is not None
    # leelaz divides by sqrt(variance + epsilon), which must be exactly 1
    yield from (weight.flip(2), bias, torch.zeros_like(bias), torch.full_like(bias, 1 - EPSILON))


def _their_planes(weight: Tensor) -> Tensor:
    """Filters of the first layer with Leela Zero's input planes, [C, 17, 3, 3] -> [C, 18, 3, 3]."""
    own, opponent = weight[:, 0 : 2 * NUM_HISTORY : 2], weight[:, 1 : 2 * NUM_HISTORY : 2]
    black_to_move = weight[:, 2 * NUM_HISTORY :]
    return torch.cat([own, opponent, black_to_move, torch.zeros_like(black_to_move)], 1)


def _of_planes(points: Tensor, num_planes: int) -> Tensor:
    """Order of the inputs of a linear layer that reads flattened planes."""
    return torch.cat([points + plane * SIZE * SIZE for plane in range(num_planes)])


def _line(tensor: Tensor) -> str:
    return " ".join([f"{value:.{NUM_DIGITS}g}" for value in tensor.flatten().tolist()])
