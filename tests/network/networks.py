"""Small networks and inputs for the tests of the network."""

import numpy as np
import pytest
import torch

from tests.parameters import network_params, profile_params, training_params
from zero.config.params import GameParams, GomokuParams, GoParams, NetworkParams
from zero.games.planes import pack_planes
from zero.games.position import NUM_PLANES
from zero.network.model import AlphaZeroNetwork
from zero.network.weights import new_network

GO5 = GoParams(name="go", size=5, komi=0.5, allow_suicide=False)
GOMOKU5 = GomokuParams(name="gomoku", size=5, in_a_row=4)
NUM_ACTIONS = 26
TINY = network_params(num_blocks=2, num_channels=6, value_hidden=7)
CPU = profile_params()
needs_cuda = pytest.mark.gpu
"""See `tests/network/conftest.py`."""
BEYOND_THE_PAPER = {"global_pooling": True, "ownership_head": True, "score_head": True}
ARCHITECTURES = {
    **{
        f"{tower} {heads}": TINY.model_copy(update={"tower": tower, "heads": heads})
        for tower in ("residual", "plain", "shallow")
        for heads in ("joint", "separate")
    },
    **{
        f"{tower} {heads} with everything": network_params(
            tower=tower, heads=heads, num_blocks=2, num_channels=9, value_hidden=7, **BEYOND_THE_PAPER
        )
        for tower in ("residual", "plain")
        for heads in ("joint", "separate")
    },
    "pooled heads": TINY.model_copy(update={"pooled_heads": True}),
    "separate pooled heads with everything": network_params(
        heads="separate", num_blocks=2, num_channels=12, value_hidden=7, pooled_heads=True, **BEYOND_THE_PAPER
    ),
    "shallow with heads": TINY.model_copy(update={"tower": "shallow", "ownership_head": True, "score_head": True}),
}
"""The paper's four (its Figure 4), the plain convolutions of many small projects, and the extensions."""
TRAINING = training_params(
    num_steps=4,
    batch_size=8,
    weight_decay=1e-3,
    value_loss_weight=0.5,
    ownership_loss_weight=0.3,
    score_loss_weight=0.2,
    ema_decay=0.0,
    learning_rate=({"from_step": 0, "learning_rate": 0.05},),
    checkpoint_interval=2,
    log_interval=2,
)


def randomized_network(network: NetworkParams = TINY, seed: int = 3, game: GameParams = GO5) -> AlphaZeroNetwork:
    """A network with random values in all tensors, running statistics included, as after training."""
    model = new_network(network, game, seed)
    draws = np.random.default_rng(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            shape = tuple(tensor.shape)
            values = (
                draws.uniform(0.5, 1.5, shape)
                if name.endswith(("norm.weight", "running_var"))
                else draws.normal(0, 0.1 if len(shape) == 1 else 1.5 * tensor[0].numel() ** -0.5, shape)
            )
            tensor.copy_(torch.from_numpy(values))
    return model


def random_planes(batch_size: int, seed: int = 0) -> np.ndarray:
    """[B, P, S*S] float32 zeros and ones."""
    return np.random.default_rng(seed).integers(0, 2, (batch_size, NUM_PLANES, 25)).astype(np.float32)


def as_images(planes: np.ndarray) -> torch.Tensor:
    """[B, P, S*S] -> [B, P, S, S]."""
    return torch.from_numpy(planes).view(-1, NUM_PLANES, 5, 5)


def random_batch(batch_size: int = 8, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Planes and targets, in the order of `SampleBatch`; some games were not played out."""
    draws = np.random.default_rng(seed)
    policy = draws.dirichlet(np.full(NUM_ACTIONS, 0.3), batch_size).astype(np.float32)
    value = draws.integers(-1, 2, batch_size).astype(np.float32)
    played_out = draws.integers(0, 2, batch_size).astype(np.float32)
    ownership = draws.integers(-1, 2, (batch_size, 25)) * played_out[:, None]
    score = draws.integers(-25, 26, batch_size) * played_out
    planes = pack_planes(random_planes(batch_size, seed))
    return planes, policy, value, ownership.astype(np.float32), score.astype(np.float32), played_out
