"""Small networks and inputs for the tests of the network."""

import numpy as np
import torch

from zero.games.position import NUM_PLANES
from zero.network.tower import AlphaZeroNetwork
from zero.network.weights import new_network
from zero.params import GoParams, NetworkParams, ProfileParams

GO5 = GoParams(name="go", size=5, komi=0.5, allow_suicide=False)
NUM_ACTIONS = 26
TINY = NetworkParams(tower="residual", heads="joint", num_blocks=2, num_channels=6, value_hidden=7)
CPU = ProfileParams(device="cpu", precision="fp32", isa="native", selfplay_threads=1, training_threads=1)


def lived_in_network(network: NetworkParams = TINY, seed: int = 3) -> AlphaZeroNetwork:
    """A network with every number away from its start, as if it had been trained."""
    model = new_network(network, GO5, seed)
    draws = np.random.default_rng(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            shape = tuple(tensor.shape)
            values = (
                draws.uniform(0.5, 1.5, shape)
                if name.endswith(("norm.weight", "running_var"))
                else draws.normal(0, 0.3, shape)
            )
            tensor.copy_(torch.from_numpy(values))
    return model


def random_planes(batch_size: int, seed: int = 0) -> np.ndarray:
    """[B, P, S*S] float32 zeros and ones."""
    return np.random.default_rng(seed).integers(0, 2, (batch_size, NUM_PLANES, 25)).astype(np.float32)


def as_images(planes: np.ndarray) -> torch.Tensor:
    """[B, P, S*S] -> [B, P, S, S]."""
    return torch.from_numpy(planes).view(-1, NUM_PLANES, 5, 5)
