"""The owner of each point at the end of the game, as a network with an ownership head expects it.

The search does not need it, so no evaluator returns it. Here the network evaluates one position more.
"""

import numpy as np

from zero.games.planes import expand_planes, write_sample
from zero.games.position import NUM_PLANES, TO_PLAY, Rules, new_history, new_position
from zero.network.openvino_backend import PRECISIONS, import_openvino, new_ownership_graph
from zero.network.spec import NetworkSpec
from zero.network.weight_files import Tensors, parse_weights


class OwnershipPredictor:
    """A network in fp32 on the CPU, with OpenVINO, also if the player uses another backend. Thread-safe."""

    def __init__(self, spec: NetworkSpec, tensors: Tensors) -> None:
        """`spec`, `tensors`: a weight file with an ownership head."""
        graph = new_ownership_graph(spec, tensors)
        self._model = import_openvino().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": PRECISIONS["fp32"]})

    def predict(self, rules: Rules, actions: tuple[int, ...]) -> np.ndarray:
        """The expected owner of each point after some actions: [S*S] float32 from -1 (White) to 1 (Black)."""
        position, history = new_position(rules), new_history(rules)
        planes = np.zeros((1, NUM_PLANES, rules.num_words), np.uint64)
        write_sample(rules, position, history, np.array(actions, np.int16), len(actions), 0, planes[0])
        numbers = np.zeros((1, rules.num_points, NUM_PLANES), np.float32)
        expand_planes(planes, numbers)
        # A request of its own for each call, because a request serves one thread at a time.
        owners = self._model.create_infer_request().infer([numbers])[0]
        found: np.ndarray = owners[0] * position.state[TO_PLAY]  # the head sees the player to move
        return found


def ownership_predictor(weights: bytes) -> OwnershipPredictor | None:
    """The predictor of a weight file; None if its network has no ownership head.

    Raises:
      StorageError: the bytes are not a weight file.
    """
    spec, tensors = parse_weights(weights)
    return OwnershipPredictor(spec, tensors) if spec.network.ownership_head else None
