"""Inference of the network, slow and obvious: float64 NumPy, one convolution as nine shifted products.

Twin of zero/network/model.py, written from the paper (Methods, 'Neural network architecture') and, for global pooling
in blocks and heads, after KataGo's (Wu 2019, section 3.3 and appendix A), with the differences documented there.
"""

from collections.abc import Mapping

import numpy as np

from zero.config.params import NetworkParams

NORM_EPSILON = 1e-5


def convolve(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[B, C_in, S, S] * [C_out, C_in, K, K] -> [B, C_out, S, S], zeros outside the board."""
    size = weight.shape[-1]
    rows, columns = x.shape[2:]
    edge = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    result = np.zeros((len(x), len(weight), rows, columns))
    for i in range(size):
        for j in range(size):
            result += np.einsum("bcrs,oc->bors", padded[:, :, i : i + rows, j : j + columns], weight[:, :, i, j])
    return result


class NetworkTwin:
    """A network as its weights by name."""

    def __init__(self, network: NetworkParams, weights: Mapping[str, np.ndarray]) -> None:
        self.network = network
        self.weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}

    def layer(self, name: str, x: np.ndarray) -> np.ndarray:
        """Convolution and normalisation."""
        mean, variance, gamma, beta = (
            self.weights[f"{name}.norm.{part}"].reshape(-1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = convolve(x, self.weights[f"{name}.conv.weight"])
        return (x - mean) / np.sqrt(variance + NORM_EPSILON) * gamma + beta

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def tower(self, name: str, x: np.ndarray) -> np.ndarray:
        x = np.maximum(self.layer(f"{name}.0.first", x), 0)
        if self.network.tower == "shallow":
            for block in range(1, self.network.num_blocks):
                x = np.maximum(self.layer(f"{name}.{block}.first", x), 0)
            return x
        for block in range(1, self.network.num_blocks + 1):
            y = self.layer(f"{name}.{block}.first", x)
            if self.network.global_pooling and 2 * block > self.network.num_blocks:
                y = self.with_pooled_bias(f"{name}.{block}.pool", y)
            y = self.layer(f"{name}.{block}.second", np.maximum(y, 0))
            x = np.maximum(y + x if self.network.tower == "residual" else y, 0)
        return x

    def with_pooled_bias(self, name: str, x: np.ndarray) -> np.ndarray:
        """Pools a quarter of the channels into a bias of the others, [B, C, S, S] -> [B, C - P, S, S]."""
        pooled = max(1, x.shape[1] // 4)
        return self.biased(name, x[:, pooled:], self.seen(np.maximum(x[:, :pooled], 0)))

    def biased(self, name: str, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Adds one number per channel to all its points."""
        result = x.copy()
        for b in range(len(x)):
            for channel, number in enumerate(self.weights[f"{name}.weight"] @ seen[b]):
                result[b, channel] += number
        return result

    def seen(self, x: np.ndarray) -> np.ndarray:
        """Global pooling over each board, [B, C, S, S] -> [B, 3 C]."""
        rows = []
        for boards in x:
            means = [board.mean() for board in boards]
            scaled = [mean * (x.shape[2] - 14) / 10 for mean in means]
            rows.append([*means, *scaled, *(board.max() for board in boards)])
        return np.array(rows)

    def features(self, planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs of the policy head, and of the other heads."""
        features = self.tower("tower", planes.astype(np.float64))
        if self.network.heads == "separate":
            return features, self.tower("value_tower", planes.astype(np.float64))
        return features, features

    def ownership(self, planes: np.ndarray) -> np.ndarray:
        """[B, P, S, S] -> [B, S*S]."""
        _, features = self.features(planes)
        weight, bias = self.weights["ownership_head.output.weight"], self.weights["ownership_head.output.bias"]
        return np.tanh(convolve(features, weight) + bias).reshape(len(planes), -1)

    def score(self, planes: np.ndarray) -> np.ndarray:
        """[B, P, S, S] -> [B]."""
        _, features = self.features(planes)
        hidden = np.maximum(self.linear("score_head.hidden", features.mean(axis=(2, 3))), 0)
        return self.linear("score_head.output", hidden)[:, 0]

    def evaluate(self, planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[B, P, S, S] -> logits [B, A], values [B]."""
        features, value_features = self.features(planes)
        value = np.maximum(self.layer("value_head.reduce", value_features), 0)
        value = self.seen(value) if self.network.pooled_heads else value.reshape(len(planes), -1)
        value = np.maximum(self.linear("value_head.hidden", value), 0)
        return self.policy(features), np.tanh(self.linear("value_head.output", value))[:, 0]

    def policy(self, features: np.ndarray) -> np.ndarray:
        """[B, C, S, S] -> logits [B, A]."""
        y = self.layer("policy_head.reduce", features)
        if not self.network.pooled_heads:
            return self.linear("policy_head.output", np.maximum(y, 0).reshape(len(features), -1))
        half = self.network.num_channels // 2
        seen = self.seen(np.maximum(y[:, :half], 0))
        points = np.maximum(self.biased("policy_head.pool", y[:, half:], seen), 0)
        logits = convolve(points, self.weights["policy_head.output.weight"]) + self.weights["policy_head.output.bias"]
        logits = logits.reshape(len(features), -1)
        if "policy_head.passing.weight" not in self.weights:  # Gomoku has no pass
            return logits
        return np.concatenate([logits, self.linear("policy_head.passing", seen)], axis=1)
