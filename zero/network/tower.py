"""The network of the paper (Methods, 'Neural network architecture') at any size: towers, policy head, value head.

Convolutions are followed by batch normalisation and have no bias of their own. Not here: where weights come from
(`weights`), how they are played with (`fold`, `inference`) and how they are learned (`learner`).
"""

import torch
from torch import Tensor, nn

from zero.artifacts import Manifest
from zero.games.position import NUM_PLANES
from zero.games.rules import rules_of
from zero.params import GomokuParams, GoParams, NetworkParams

POLICY_FILTERS = 2
VALUE_FILTERS = 1


class NetworkSpec(Manifest):
    """All that the shapes of a network depend on; written into its weight file."""

    network: NetworkParams
    num_planes: int
    rows: int
    columns: int
    num_actions: int


def network_spec(network: NetworkParams, game: GoParams | GomokuParams) -> NetworkSpec:
    """The spec of a network that plays `game`."""
    rules = rules_of(game)
    return NetworkSpec(
        network=network,
        num_planes=NUM_PLANES,
        rows=rules.rows,
        columns=rules.columns,
        num_actions=rules.num_actions,
    )


class ConvNorm(nn.Module):
    """A convolution that keeps the board's size, and its batch normalisation."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)
        self.norm.num_batches_tracked = None  # only a momentum of None would read it

    def forward(self, x: Tensor) -> Tensor:
        """[B, C_in, S, S] -> [B, C_out, S, S]."""
        result: Tensor = self.norm(self.conv(x))
        return result


class Layer(nn.Module):
    """One 3x3 convolution with its rectifier."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = ConvNorm(in_channels, out_channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C_in, S, S] -> [B, C_out, S, S]."""
        return torch.relu_(self.first(x))


class Block(nn.Module):
    """Two 3x3 convolutions; with the skip it is the residual block of the paper."""

    def __init__(self, channels: int, skip: bool) -> None:
        super().__init__()
        self.skip = skip
        self.first = ConvNorm(channels, channels, 3)
        self.second = ConvNorm(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, C, S, S]."""
        y: Tensor = self.second(torch.relu_(self.first(x)))
        return torch.relu_(y.add_(x) if self.skip else y)


class PolicyHead(nn.Module):
    """Logits of all actions."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.reduce = ConvNorm(spec.network.num_channels, POLICY_FILTERS, 1)
        self.output = nn.Linear(POLICY_FILTERS * spec.rows * spec.columns, spec.num_actions)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, A]."""
        logits: Tensor = self.output(torch.relu_(self.reduce(x)).flatten(1))
        return logits


class ValueHead(nn.Module):
    """Value in [-1, 1] for the player to move."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.reduce = ConvNorm(spec.network.num_channels, VALUE_FILTERS, 1)
        self.hidden = nn.Linear(VALUE_FILTERS * spec.rows * spec.columns, spec.network.value_hidden)
        self.output = nn.Linear(spec.network.value_hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B]."""
        features = torch.relu_(self.hidden(torch.relu_(self.reduce(x)).flatten(1)))
        return torch.tanh(self.output(features)).squeeze(1)


class AlphaZeroNetwork(nn.Module):
    """Planes to policy logits and value."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.spec = spec
        self.tower = _tower(spec)
        self.value_tower = _tower(spec) if spec.network.heads == "separate" else None
        self.policy_head = PolicyHead(spec)
        self.value_head = ValueHead(spec)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Planes [B, P, S, S] -> policy logits [B, A], values [B] for the player to move."""
        features = self.tower(x)
        value_features = features if self.value_tower is None else self.value_tower(x)
        return self.policy_head(features), self.value_head(value_features)


def channels_last(network: AlphaZeroNetwork) -> AlphaZeroNetwork:
    """The network itself, its filters laid out [C_out, S, S, C_in]: the fastest layout on CPUs and for tensor cores."""
    laid_out: AlphaZeroNetwork = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid_out


def _tower(spec: NetworkSpec) -> nn.Sequential:
    channels, num_blocks = spec.network.num_channels, spec.network.num_blocks
    stem = Layer(spec.num_planes, channels)
    if spec.network.tower == "shallow":  # its first convolution is one of the `num_blocks`
        return nn.Sequential(stem, *(Layer(channels, channels) for _ in range(num_blocks - 1)))
    skip = spec.network.tower == "residual"
    return nn.Sequential(stem, *(Block(channels, skip) for _ in range(num_blocks)))
