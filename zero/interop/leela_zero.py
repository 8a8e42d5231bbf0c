"""A network as text weights of Leela Zero 0.17 (format version 1), for `leelaz` and the tools that run it.

The file is lines of numbers: the version; weights, bias, mean and variance of each convolution of the tower; the same
of the policy head with its linear layer; the same of the value head with its two (leela-zero/src/Network.cpp,
`load_v1_network`). What differs from a network of ours, and what becomes of it:

| here | Leela Zero | in the file |
|---|---|---|
| planes own, opponent, own a move ago, ... | 8 of the own stones, 8 of the opponent's | input filters in their order |
| plane 16: Black is to move | 16: Black, 17: White is to move | filters of 17 are zero |
| row 0 is the topmost | row 0 is row 1 of the board, the lowest | filters upside down, linear layers in their order |
| normalisation with scale and shift | mean and variance, epsilon 1e-5 | folded into weights and bias, a norm of 1 |

Komi is not in the file: it is what the network was trained with, and `leelaz` has to be told (GTP `komi`).
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from zero.errors import ParamsError
from zero.games.position import NUM_HISTORY
from zero.network.fold import fold
from zero.network.model import POLICY_FILTERS, VALUE_FILTERS, AlphaZeroNetwork, NetworkSpec, PolicyHead, ValueHead

VERSION = "1"
SIZE = 19
VALUE_HIDDEN = 256
EPSILON = 1e-5
"""What `leelaz` adds to a variance."""
NUM_PLANES = 2 * NUM_HISTORY + 2
NUM_DIGITS = 9  # enough to tell any two float32 apart


def leela_zero_weights(network: AlphaZeroNetwork) -> bytes:
    """The weight file; equal bytes for equal networks.

    Raises:
      ParamsError: Leela Zero has no such network.
    """
    check_fits(network.spec)
    return b"".join(f"{line}\n".encode() for line in (VERSION, *map(_line, _tensors(fold(network)))))


def check_fits(spec: NetworkSpec) -> None:
    """Checks that a network is one Leela Zero can hold, whatever its blocks and channels.

    Raises:
      ParamsError: it is not; with the parameter that does not fit.
    """
    if (spec.rows, spec.columns, spec.num_actions) != (SIZE, SIZE, SIZE * SIZE + 1):
        raise ParamsError(
            f"the network is for a board of {spec.rows}x{spec.columns} with {spec.num_actions} actions, "
            f"Leela Zero's for Go on {SIZE}x{SIZE} alone; export it with `--format onnx`"
        )
    found = spec.network
    for name, value, wanted in (
        ("tower", found.tower, "residual"),
        ("heads", found.heads, "joint"),
        ("value_hidden", found.value_hidden, VALUE_HIDDEN),
        ("global_pooling", found.global_pooling, False),
        ("pooled_heads", found.pooled_heads, False),
    ):
        if value != wanted:
            raise ParamsError(
                f"network.{name} is {value!r}, Leela Zero's networks have {wanted!r}; "
                f"train one with {name} {wanted!r}, or export this one with `--format onnx`"
            )


def _tensors(network: AlphaZeroNetwork) -> Iterator[Tensor]:
    """All of the file after its first line, in order, of a folded network."""
    first, *others = (module for module in network.tower.modules() if isinstance(module, nn.Conv2d))
    yield from _convolution(_their_planes(first.weight), first.bias)
    for layer in others:
        yield from _convolution(layer.weight, layer.bias)
    points = torch.arange(SIZE * SIZE).view(SIZE, SIZE).flip(0).flatten()  # ours, in their order
    policy, value = network.policy_head, network.value_head
    assert isinstance(policy, PolicyHead) and isinstance(value, ValueHead)  # see `check_fits`
    yield from _head(policy.reduce)
    actions = torch.cat([points, torch.tensor([SIZE * SIZE])])
    yield policy.output.weight[actions][:, _of_planes(points, POLICY_FILTERS)]
    yield policy.output.bias[actions]
    yield from _head(value.reduce)
    yield value.hidden.weight[:, _of_planes(points, VALUE_FILTERS)]
    yield from (value.hidden.bias, value.output.weight, value.output.bias)


def _head(layer: nn.Module) -> Iterator[Tensor]:
    assert isinstance(layer, nn.Conv2d)  # a `ConvNorm` before it was folded
    return _convolution(layer.weight, layer.bias)


def _convolution(weight: Tensor, bias: Tensor | None) -> Iterator[Tensor]:
    """The four lines of a convolution, whose normalisation divides by sqrt(1 - epsilon + epsilon)."""
    assert bias is not None
    yield from (weight.flip(2), bias, torch.zeros_like(bias), torch.full_like(bias, 1 - EPSILON))


def _their_planes(weight: Tensor) -> Tensor:
    """Filters of the first layer, [C, 17, 3, 3] -> [C, 18, 3, 3]."""
    own, opponent = weight[:, 0 : 2 * NUM_HISTORY : 2], weight[:, 1 : 2 * NUM_HISTORY : 2]
    black_to_move = weight[:, 2 * NUM_HISTORY :]
    return torch.cat([own, opponent, black_to_move, torch.zeros_like(black_to_move)], 1)


def _of_planes(points: Tensor, num_planes: int) -> Tensor:
    """Order of the inputs of a linear layer that reads planes, one after the other."""
    return torch.cat([points + plane * SIZE * SIZE for plane in range(num_planes)])


def _line(tensor: Tensor) -> str:
    return " ".join([f"{value:.{NUM_DIGITS}g}" for value in tensor.flatten().tolist()])
