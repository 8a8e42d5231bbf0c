"""The owner of each point at the end of the game, as a network with an ownership head expects it.

The search does not need it, so no evaluator returns it. Here the network evaluates one position more.
"""

import numpy as np
import torch

from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, TO_PLAY, Rules, new_history, new_position
from zero.network.fold import fold
from zero.network.model import AlphaZeroNetwork
from zero.network.planes import network_input
from zero.network.weights import load_network


class OwnershipPredictor:
    """A network in fp32 on the CPU. Thread-safe."""

    def __init__(self, network: AlphaZeroNetwork) -> None:
        """`network`: has an ownership head."""
        self._network = fold(network)

    def predict(self, rules: Rules, actions: tuple[int, ...]) -> np.ndarray:
        """The expected owner of each point after some actions: [S*S] float32 from -1 (White) to 1 (Black)."""
        position, history = new_position(rules), new_history(rules)
        planes = np.zeros((1, NUM_PLANES, rules.num_words), np.uint64)
        write_sample(rules, position, history, np.array(actions, np.int16), len(actions), 0, planes[0])
        numbers = np.zeros((1, rules.num_points, NUM_PLANES), np.float32)
        with torch.inference_mode():
            owners = self._network.predict(network_input(planes, self._network.spec, numbers)).ownership
        assert owners is not None, "the network has no ownership head"
        found: np.ndarray = owners[0].numpy() * position.state[TO_PLAY]  # the head sees the player to move
        return found


def ownership_predictor(weights: bytes) -> OwnershipPredictor | None:
    """The predictor of a weight file; None if its network has no ownership head.

    Raises:
      StorageError: the bytes are not a weight file.
    """
    network = load_network(weights)
    return OwnershipPredictor(network) if network.ownership_head is not None else None
