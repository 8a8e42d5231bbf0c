"""The network of the paper (Methods, 'Neural network architecture') at any size: trunk, policy head, value head.

Convolutions are followed by batch normalisation and have no bias. Initial weights are in `weights`, inference is in
`inference`, training is in `learner`. The trunk is called `tower` in the parameters and in the tensor names of weight
files. `openvino_backend` has the same network without PyTorch: both must change together.

Beyond the paper, and off in its preset: global pooling in blocks and heads, and two auxiliary heads for training. Their
targets (the owner of each point at the end, the margin) give the trunk more information about a game than its result
does. All are from KataGo (Wu 2019, 'Accelerating Self-Play Learning in Go', sections 3.3, 4.1 and A).
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from zero.network.fold import NORM_EPSILON, fold_norm
from zero.network.spec import (
    HEAD_SHARE,
    POLICY_FILTERS,
    POOLED_SHARE,
    POOLING_MEAN_SIZE,
    POOLING_SIZE_UNIT,
    VALUE_FILTERS,
    NetworkSpec,
)


class ConvNorm(nn.Module):
    """A convolution that keeps the board size, followed by batch normalisation."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        # No bias: the normalisation subtracts the mean, so a bias would have no effect.
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, eps=NORM_EPSILON)
        self.norm.num_batches_tracked = None  # read only if momentum is None, so not a weight here

    def forward(self, x: Tensor) -> Tensor:
        """[B, C_in, S, S] -> [B, C_out, S, S]."""
        result: Tensor = self.norm(self.conv(x))
        return result


class Layer(nn.Module):
    """A 3x3 convolution and a rectifier."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = ConvNorm(in_channels, out_channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C_in, S, S] -> [B, C_out, S, S]."""
        # In place saves a buffer: the gradient of a rectifier needs only its output.
        return torch.relu_(self.first(x))


class Block(nn.Module):
    """Two 3x3 convolutions; with the skip connection it is the residual block of the paper.

    A pooled block has KataGo's global pooling bias, by which every point depends on the complete board. Of the first
    convolution's C channels, the first P = C / 4 are rectified and pooled over the board: mean, mean times
    (S - 14) / 10, maximum, each [B, P]. A linear layer without bias maps these [B, 3 P] to one number for each of the
    other C - P channels, which is added to all points of the channel. The second convolution reads only these C - P
    channels. Normalisation comes before the sum here, and after it in KataGo. On a single board size the second mean is
    a multiple of the first; it is kept so that the form is KataGo's.
    """

    def __init__(self, channels: int, skip: bool, pooled: bool) -> None:
        super().__init__()
        self.skip = skip
        self.num_pooled = max(1, channels // POOLED_SHARE) if pooled else 0
        num_rest = channels - self.num_pooled
        self.first = ConvNorm(channels, channels, 3)
        self.pool = nn.Linear(3 * self.num_pooled, num_rest, bias=False) if pooled else None
        self.second = ConvNorm(num_rest, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, C, S, S]."""
        y: Tensor = self.second(self.middle(x))
        return torch.relu_(y.add_(x) if self.skip else y)

    def middle(self, x: Tensor) -> Tensor:
        """Input of the second convolution: [B, C, S, S] -> [B, C - P, S, S], with P = 0 in a block without pooling."""
        y = self.first(x)
        return torch.relu_(y) if self.pool is None else with_pooled_bias(y, self.num_pooled, self.pool)[0]


def with_pooled_bias(y: Tensor, num_pooled: int, pool: nn.Linear) -> tuple[Tensor, Tensor]:
    """Adds a bias from the first P channels to the others and rectifies: [B, C, S, S] -> [B, C - P, S, S], [B, 3 P].

    The second result are the pooled features of the first P channels.
    """
    pooled = pool_board(torch.relu(y[:, :num_pooled]))
    bias: Tensor = pool(pooled)
    return torch.relu_(y[:, num_pooled:] + bias[:, :, None, None]), pooled


def pool_board(x: Tensor) -> Tensor:
    """Mean, mean scaled by the board size, and maximum of each channel: [B, C, S, S] -> [B, 3 C]."""
    size: float = (x.shape[2] * x.shape[3]) ** 0.5
    mean = x.mean(dim=(2, 3))
    return torch.cat([mean, mean * ((size - POOLING_MEAN_SIZE) / POOLING_SIZE_UNIT), x.amax(dim=(2, 3))], dim=1)


class PolicyHead(nn.Module):
    """Policy head of the paper: logits of all actions."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.reduce = ConvNorm(spec.network.num_channels, POLICY_FILTERS, 1)
        self.output = nn.Linear(POLICY_FILTERS * spec.rows * spec.columns, spec.num_actions)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, A]."""
        logits: Tensor = self.output(torch.relu_(self.reduce(x)).flatten(1))
        return logits


class PooledPolicyHead(nn.Module):
    """Policy head after KataGo's: logits of all actions, with the same weights for every point.

    Of 2 F filters, F = C / 2, the first F are rectified and pooled over the board to [B, 3 F]. A linear layer maps
    these to a number for each of the other F filters, which is added to all of its points. A 1x1 convolution of the
    result gives the logit of each point. If the game has a pass, a linear layer on the pooled features gives its logit.
    Normalisation comes before the sum, as in `Block`.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        channels = spec.network.num_channels
        self.num_filters = channels // HEAD_SHARE
        self.reduce = ConvNorm(channels, 2 * self.num_filters, 1)
        self.pool = nn.Linear(3 * self.num_filters, self.num_filters, bias=False)
        self.output = nn.Conv2d(self.num_filters, 1, 1)
        has_pass = spec.num_actions > spec.rows * spec.columns
        self.passing = nn.Linear(3 * self.num_filters, 1) if has_pass else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, A]."""
        points, pooled = with_pooled_bias(self.reduce(x), self.num_filters, self.pool)
        logits: Tensor = self.output(points).flatten(1)
        return logits if self.passing is None else torch.cat([logits, self.passing(pooled)], dim=1)


class ValueHead(nn.Module):
    """Value head: value in [-1, 1] for the player to move.

    That of the paper reads all points of its filters. That after KataGo's pools F = C / 2 filters over the board;
    KataGo's has a mean scaled by the square of the board size in the place of the maximum.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        network = spec.network
        self.is_pooled = network.pooled_heads
        num_filters = network.num_channels // HEAD_SHARE if self.is_pooled else VALUE_FILTERS
        self.reduce = ConvNorm(network.num_channels, num_filters, 1)
        self.hidden = nn.Linear(num_filters * (3 if self.is_pooled else spec.rows * spec.columns), network.value_hidden)
        self.output = nn.Linear(network.value_hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B], float32."""
        # In bf16 it would be 1 from a logit of 3.5 on, and a search could not tell good positions from better ones.
        return torch.tanh(self.logit(x).float()).squeeze(1)

    def logit(self, x: Tensor) -> Tensor:
        """The value before tanh: [B, C, S, S] -> [B, 1]."""
        y = torch.relu_(self.reduce(x))
        features = torch.relu_(self.hidden(pool_board(y) if self.is_pooled else y.flatten(1)))
        logit: Tensor = self.output(features)
        return logit


class OwnershipHead(nn.Module):
    """Auxiliary head: the owner of each point at the end of the game, 1 player to move, -1 opponent."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.output = nn.Conv2d(spec.network.num_channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, S*S] in [-1, 1]."""
        return torch.tanh(self.output(x).float()).flatten(1)  # see `predict`


class ScoreHead(nn.Module):
    """Auxiliary head: margin at the end of the game for the player to move, divided by the number of points.

    It reads the mean of each channel over the board, because a score is a sum over points.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.hidden = nn.Linear(spec.network.num_channels, spec.network.value_hidden)
        self.output = nn.Linear(spec.network.value_hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B]."""
        score: Tensor = self.output(torch.relu_(self.hidden(x.mean(dim=(2, 3)))))
        return score.squeeze(1)


class Predictions(NamedTuple):
    """Outputs of all heads, for the player to move; None for an auxiliary head that the network does not have."""

    logits: Tensor  # [B, A]
    value: Tensor  # [B], in [-1, 1]
    value_logit: Tensor  # [B], the value before tanh
    ownership: Tensor | None  # [B, S*S], in [-1, 1]
    score: Tensor | None  # [B], margin over the number of points


class AlphaZeroNetwork(nn.Module):
    """Maps input planes to policy logits and values."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.tower = _trunk(spec)
        # The paper compares both forms (Figure 4: `dual` and `sep`).
        self.value_tower = _trunk(spec) if spec.network.heads == "separate" else None
        self.policy_head = PooledPolicyHead(spec) if spec.network.pooled_heads else PolicyHead(spec)
        self.value_head = ValueHead(spec)
        self.ownership_head = OwnershipHead(spec) if spec.network.ownership_head else None
        self.score_head = ScoreHead(spec) if spec.network.score_head else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Planes [B, P, S, S] -> policy logits [B, A], values [B] for the player to move; without auxiliary heads."""
        features, value_features = self._features(x)
        return self.policy_head(features), self.value_head(value_features)

    def predict(self, x: Tensor) -> Predictions:
        """Outputs of all heads for planes [B, P, S, S]; the auxiliary heads read the trunk of the value head."""
        features, value_features = self._features(x)
        logits, value_logit = self.policy_head(features), self.value_head.logit(value_features).squeeze(1)
        return Predictions(
            logits=logits,
            # In bf16 it would be 1, without a gradient, from a logit of 3.5 on.
            value=torch.tanh(value_logit.float()),
            # Kept for the cross-entropy: computed from the value, it would be infinite where tanh rounds to 1.
            value_logit=value_logit,
            ownership=None if self.ownership_head is None else self.ownership_head(value_features),
            score=None if self.score_head is None else self.score_head(value_features),
        )

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.tower(x)
        return features, features if self.value_tower is None else self.value_tower(x)


def fold(network: AlphaZeroNetwork) -> AlphaZeroNetwork:
    """A copy of a network on the CPU without normalisations, for inference; the given network is not modified."""
    folded = copy.deepcopy(network).eval().requires_grad_(False)
    # Lists, because the loop replaces modules.
    for parent in list(folded.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ConvNorm):
                setattr(parent, name, _folded_layer(child))
    return folded


def channels_last(network: AlphaZeroNetwork) -> AlphaZeroNetwork:
    """Lays out the filters as [C_out, K, K, C_in] for size K, the fastest on CPUs and tensor cores; in place."""
    result: AlphaZeroNetwork = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return result


def _folded_layer(layer: ConvNorm) -> nn.Conv2d:
    """The convolution with bias that equals `layer` in evaluation mode."""
    conv, norm = layer.conv, layer.norm
    assert norm.running_mean is not None and norm.running_var is not None
    tensors = (conv.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var)
    weight, bias = (torch.from_numpy(array) for array in fold_norm(*(tensor.numpy() for tensor in tensors)))
    with torch.device("meta"):  # no initialisation: the tensors are assigned below
        size = conv.kernel_size[0]
        folded = nn.Conv2d(conv.in_channels, conv.out_channels, size, padding=size // 2)
    folded.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return folded.eval().requires_grad_(False)


def _trunk(spec: NetworkSpec) -> nn.Sequential:
    channels, num_blocks = spec.network.num_channels, spec.network.num_blocks
    stem = Layer(spec.num_planes, channels)
    if spec.network.tower == "shallow":  # here the stem counts as one of the `num_blocks`
        return nn.Sequential(stem, *(Layer(channels, channels) for _ in range(num_blocks - 1)))
    # `plain` is the form without skip connections that the paper compares (Figure 4, `conv`).
    skip = spec.network.tower == "residual"
    num_plain = num_blocks // 2 if spec.network.global_pooling else num_blocks
    return nn.Sequential(stem, *(Block(channels, skip, pooled=i >= num_plain) for i in range(num_blocks)))
