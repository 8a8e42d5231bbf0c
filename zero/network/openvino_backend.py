"""Inference with OpenVINO on a CPU: the folded layers as one compiled graph.

The graph is built from the network's modules, with one function per kind of module. OpenVINO's own converters use
deprecated parts of PyTorch, and take seconds. A module without a function here raises an error, and
`tests/network/test_inference.py` compares each kind with PyTorch.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from zero.config.params import ProfileParams
from zero.errors import ParamsError
from zero.games.planes import expand_planes
from zero.network.fold import fold
from zero.network.model import (
    POOLING_MEAN_SIZE,
    POOLING_SIZE_UNIT,
    AlphaZeroNetwork,
    Block,
    Layer,
    PolicyHead,
    PooledBlock,
    PooledPolicyHead,
    PooledValueHead,
    ValueHead,
)
from zero.network.planes import check_batch
from zero.network.weights import load_network

PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
"""OpenVINO's names of the precisions."""
TO_CHANNELS_FIRST = [0, 3, 1, 2]
CHANNELS, BOARD = 1, [2, 3]
"""Axes of a [B, C, S, S] node."""

Node = Any
"""A node of an OpenVINO graph; the package is not typed."""


class CompiledBatch(NamedTuple):
    """The graph compiled for one batch shape, with its buffers."""

    request: Any
    numbers: np.ndarray  # [B, S*S, P] float32, read
    prior: np.ndarray  # [B, A] float32, written
    value: np.ndarray  # [B] float32, written


class OpenVinoEvaluator:
    """Evaluates positions with a folded network, which is compiled once per batch shape.

    Results depend, to the bit, on the batch shape and on the number of threads. On a Sapphire Rapids core without AMX
    (fp32, batch 64) it is 1.2 to 1.5 times as fast as eager PyTorch. There bf16 is half as fast as fp32; on Zen 4 bf16
    is faster than fp32.
    """

    def __init__(self, data: bytes, profile: ProfileParams) -> None:
        """Loads a weight file.

        Raises:
          StorageError: the bytes are not a weight file.
          ParamsError: OpenVINO does not compute in the profile's precision on this CPU.
        """
        network = load_network(data)
        self.spec = network.spec
        self._network = fold(network)
        self._core = import_openvino().Core()
        self._precision = profile.precision
        self._options = {
            "INFERENCE_NUM_THREADS": profile.selfplay_threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # pinning puts two processes on the same core
            "INFERENCE_PRECISION_HINT": PRECISIONS[profile.precision],
        }
        self._compiled: dict[int, CompiledBatch] = {}
        # Fails here, and not in the first batch, if this CPU does not have the precision.
        self._compile(1)

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Evaluates a batch of positions. Writes into `prior` and `value`; see `zero.search.evaluator`.

        Raises:
          ParamsError: the positions are of another board, or too many.
        """
        check_batch(self.spec, planes, prior, value)
        batch = self._compiled.get(len(planes)) or self._compile(len(planes))
        expand_planes(planes, batch.numbers)
        batch.request.infer(share_outputs=True)  # into the arrays of `batch`
        prior[:] = batch.prior
        value[:] = batch.value

    def _compile(self, size: int) -> CompiledBatch:
        spec, new_tensor = self.spec, import_openvino().Tensor
        try:
            # The precision is a hint: OpenVINO may compile with another one without an error, so it is read back.
            model = self._core.compile_model(new_graph(self._network, size), "CPU", self._options)
            found = model.get_property("INFERENCE_PRECISION_HINT").to_string()
        except RuntimeError:  # observed for bf16 on a CPU that is limited to AVX2
            found = "no precision"
        if found != PRECISIONS[self._precision]:
            raise ParamsError(
                f"profile.precision = {self._precision!r}, but OpenVINO supports {found} with this instruction set; "
                "set profile.precision to 'fp32', or profile.backend to 'torch'"
            )
        batch = CompiledBatch(
            request=model.create_infer_request(),
            numbers=np.zeros((size, spec.rows * spec.columns, spec.num_planes), np.float32),
            prior=np.zeros((size, spec.num_actions), np.float32),
            value=np.zeros(size, np.float32),
        )
        # Shared memory: the kernel and the graph use the same arrays, without a copy of the batch.
        batch.request.set_input_tensor(new_tensor(batch.numbers, shared_memory=True))
        for index, array in enumerate((batch.prior, batch.value)):
            batch.request.set_output_tensor(index, new_tensor(array, shared_memory=True))
        self._compiled[size] = batch
        return batch


def import_openvino() -> ModuleType:
    """Imports OpenVINO without its telemetry, which would report to Intel over the network."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # its import now fails, as if absent
    return importlib.import_module("openvino")


def new_graph(network: AlphaZeroNetwork, size: int) -> Any:
    """The graph of a folded network for a batch size B: numbers [B, S*S, P] -> prior [B, A], value [B]."""
    ops = import_openvino().opset15
    spec = network.spec
    numbers = ops.parameter([size, spec.rows * spec.columns, spec.num_planes], np.float32)
    image = ops.reshape(numbers, [size, spec.rows, spec.columns, spec.num_planes], False)
    graph = Graph(ops)
    x = ops.transpose(image, TO_CHANNELS_FIRST)
    features = graph.trunk(network.tower, x)
    value_features = features if network.value_tower is None else graph.trunk(network.value_tower, x)
    prior = ops.softmax(graph.policy(network.policy_head, features), 1)
    return import_openvino().Model([prior, graph.value(network.value_head, value_features)], [numbers])


class Graph:
    """Builds graph nodes from folded modules; each method corresponds to the `forward` of its module."""

    def __init__(self, ops: ModuleType) -> None:
        """`ops`: OpenVINO's operations, for example `openvino.opset15`."""
        self._ops = ops

    def trunk(self, modules: nn.Sequential, x: Node) -> Node:
        """[B, P, S, S] -> [B, C, S, S]."""
        for module in modules:
            if isinstance(module, Layer):
                x = self._ops.relu(self._convolution(module.first, x))
            elif isinstance(module, Block):
                y = self._convolution(module.second, self._ops.relu(self._convolution(module.first, x)))
                x = self._ops.relu(self._ops.add(y, x) if module.skip else y)
            else:
                assert isinstance(module, PooledBlock), type(module)
                x = self._pooled_block(module, x)
        return x

    def policy(self, head: PolicyHead | PooledPolicyHead, x: Node) -> Node:
        """[B, C, S, S] -> logits [B, A]."""
        if isinstance(head, PooledPolicyHead):
            return self._pooled_policy(head, x)
        return self._linear(head.output, self._flat(self._ops.relu(self._convolution(head.reduce, x))))

    def value(self, head: ValueHead | PooledValueHead, x: Node) -> Node:
        """[B, C, S, S] -> [B]."""
        y = self._ops.relu(self._convolution(head.reduce, x))
        features = self._pooled(y) if isinstance(head, PooledValueHead) else self._flat(y)
        hidden = self._ops.relu(self._linear(head.hidden, features))
        return self._ops.reshape(self._ops.tanh(self._linear(head.output, hidden)), [-1], False)

    def _pooled_block(self, block: PooledBlock, x: Node) -> Node:
        ops = self._ops
        rest, _ = self._with_pooled_bias(block.pool, block.num_pooled, self._convolution(block.first, x))
        y = self._convolution(block.second, rest)
        return ops.relu(ops.add(y, x) if block.skip else y)

    def _pooled_policy(self, head: PooledPolicyHead, x: Node) -> Node:
        points, pooled = self._with_pooled_bias(head.pool, head.num_filters, self._convolution(head.reduce, x))
        logits = self._flat(self._convolution(head.output, points))
        return logits if head.passing is None else self._ops.concat([logits, self._linear(head.passing, pooled)], 1)

    def _with_pooled_bias(self, pool: nn.Linear, num_pooled: int, y: Node) -> tuple[Node, Node]:
        """`with_pooled_bias`: [B, C, S, S] -> [B, C - P, S, S], [B, 3 P]."""
        ops = self._ops
        first, rest = ops.variadic_split(y, CHANNELS, [num_pooled, pool.out_features]).outputs()
        pooled = self._pooled(ops.relu(first))
        # [B, C - P] becomes [B, C - P, 1, 1] and is broadcast over the board.
        return ops.relu(ops.add(rest, ops.unsqueeze(self._linear(pool, pooled), BOARD))), pooled

    def _pooled(self, y: Node) -> Node:
        """`pool_board`: [B, C, S, S] -> [B, 3 C]."""
        ops = self._ops
        size = np.sqrt(np.prod(list(y.get_output_shape(0))[2:]))
        mean = ops.reduce_mean(y, BOARD)
        scaled = ops.multiply(mean, np.float32((size - POOLING_MEAN_SIZE) / POOLING_SIZE_UNIT))
        return ops.concat([mean, scaled, ops.reduce_max(y, BOARD)], 1)

    def _flat(self, y: Node) -> Node:
        """[B, C, S, S] -> [B, C * S * S]."""
        batch, *rest = list(y.get_output_shape(0))
        return self._ops.reshape(y, [batch, int(np.prod(rest))], False)

    def _convolution(self, layer: nn.Module, x: Node) -> Node:
        assert isinstance(layer, nn.Conv2d), "the network is not folded"
        padding = list(layer.padding)
        y = self._ops.convolution(x, numbers_of(layer.weight), [1, 1], padding, padding, [1, 1])
        return self._ops.add(y, numbers_of(layer.bias).reshape(1, -1, 1, 1))

    def _linear(self, layer: nn.Linear, x: Node) -> Node:
        y = self._ops.matmul(x, numbers_of(layer.weight), False, True)
        return y if layer.bias is None else self._ops.add(y, numbers_of(layer.bias).reshape(1, -1))


def numbers_of(weight: Tensor | None) -> np.ndarray:
    """A weight as a contiguous NumPy array."""
    assert weight is not None
    return np.ascontiguousarray(weight.numpy())
