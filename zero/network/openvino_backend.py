"""Inference with OpenVINO on a CPU: the network as one compiled graph, built from the arrays of its weight file.

No PyTorch here: its import takes 195 MiB of memory and seconds, which each worker and the web page would pay. So the
network of `model` is described a second time; `tests/network/test_inference.py` compares the two in all architectures.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from zero.config.params import ProfileParams
from zero.errors import ParamsError
from zero.games.planes import expand_planes
from zero.network.fold import fold_norm
from zero.network.spec import (
    HEAD_SHARE,
    POLICY_FILTERS,
    POOLED_SHARE,
    POOLING_MEAN_SIZE,
    POOLING_SIZE_UNIT,
    VALUE_FILTERS,
    NetworkSpec,
    check_batch,
)
from zero.network.weight_files import WEIGHT_FILE, Tensors, check_names, parse_weights, tensor_of

PRECISIONS = {"fp32": "f32", "bf16": "bf16"}
"""OpenVINO's names of the precisions."""
TO_CHANNELS_FIRST = [0, 3, 1, 2]
CHANNELS, BOARD = 1, [2, 3]
"""Axes of a [B, C, S, S] node."""
TRAINING_HEADS = ("ownership_head.", "score_head.")
"""Beginnings of the names of tensors that only training and the web page need."""

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
        self.spec, self._tensors = parse_weights(data)
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
            model = self._core.compile_model(new_graph(self.spec, self._tensors, size), "CPU", self._options)
            found = model.get_property("INFERENCE_PRECISION_HINT").to_string()
        except RuntimeError:  # observed for bf16 on a CPU that is limited to AVX2
            if self._precision == "fp32":
                raise  # every CPU has that precision, so it is something else
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


def new_graph(spec: NetworkSpec, tensors: Tensors, size: int) -> Node:
    """The graph of a weight file for a batch size B: numbers [B, S*S, P] -> prior [B, A], value [B].

    Raises:
      StorageError: the tensors do not match the spec.
    """
    graph = Graph(spec, tensors)
    numbers, x = graph.input(size)
    features = graph.trunk("tower", x)
    value_features = graph.trunk("value_tower", x) if spec.network.heads == "separate" else features
    outputs = [graph.policy(features), graph.value(value_features)]
    check_names(tensors, graph.names | {name for name in tensors if name.startswith(TRAINING_HEADS)}, WEIGHT_FILE)
    return import_openvino().Model(outputs, [numbers])


def new_ownership_graph(spec: NetworkSpec, tensors: Tensors) -> Node:
    """The graph of a weight file with an ownership head for one position: numbers [1, S*S, P] -> owners [1, S*S]."""
    graph = Graph(spec, tensors)
    numbers, x = graph.input(1)
    features = graph.trunk("value_tower" if spec.network.heads == "separate" else "tower", x)
    return import_openvino().Model([graph.ownership(features)], [numbers])


class Graph:
    """Builds the nodes of a network; each method corresponds to the `forward` of a module in `model`.

    `name` is that of the module in the weight file. Normalisations are folded into their convolutions.
    """

    def __init__(self, spec: NetworkSpec, tensors: Tensors) -> None:
        self.names: set[str] = set()
        """Names of the tensors that were used."""
        self._spec, self._tensors, self._ops = spec, tensors, import_openvino().opset15

    def input(self, size: int) -> tuple[Node, Node]:
        """The parameter [B, S*S, P], and its planes [B, P, S, S]."""
        spec, ops = self._spec, self._ops
        numbers = ops.parameter([size, spec.rows * spec.columns, spec.num_planes], np.float32)
        image = ops.reshape(numbers, [size, spec.rows, spec.columns, spec.num_planes], False)
        return numbers, ops.transpose(image, TO_CHANNELS_FIRST)

    def trunk(self, name: str, x: Node) -> Node:
        """[B, P, S, S] -> [B, C, S, S]."""
        ops, network = self._ops, self._spec.network
        channels, num_blocks = network.num_channels, network.num_blocks
        x = ops.relu(self._normalised(f"{name}.0.first", x, channels))
        if network.tower == "shallow":
            for i in range(1, num_blocks):
                x = ops.relu(self._normalised(f"{name}.{i}.first", x, channels))
            return x
        num_plain = num_blocks // 2 if network.global_pooling else num_blocks
        for i in range(num_blocks):
            block = f"{name}.{i + 1}"
            y = self._normalised(f"{block}.first", x, channels)
            if i < num_plain:
                y = ops.relu(y)
            else:
                y, _ = self._with_pooled_bias(f"{block}.pool", max(1, channels // POOLED_SHARE), y)
            y = self._normalised(f"{block}.second", y, channels)
            x = ops.relu(ops.add(y, x) if network.tower == "residual" else y)
        return x

    def policy(self, x: Node) -> Node:
        """[B, C, S, S] -> probabilities [B, A]."""
        ops, spec = self._ops, self._spec
        if spec.network.pooled_heads:
            num_filters = spec.network.num_channels // HEAD_SHARE
            y = self._normalised("policy_head.reduce", x, 2 * num_filters, 1)
            points, pooled = self._with_pooled_bias("policy_head.pool", num_filters, y)
            logits = self._flat(self._convolution("policy_head.output", points))
            if spec.num_actions > spec.rows * spec.columns:
                logits = ops.concat([logits, self._linear("policy_head.passing", pooled, 1)], 1)
        else:
            y = ops.relu(self._normalised("policy_head.reduce", x, POLICY_FILTERS, 1))
            logits = self._linear("policy_head.output", self._flat(y), spec.num_actions)
        return ops.softmax(logits, 1)

    def value(self, x: Node) -> Node:
        """[B, C, S, S] -> [B]."""
        ops, network = self._ops, self._spec.network
        num_filters = network.num_channels // HEAD_SHARE if network.pooled_heads else VALUE_FILTERS
        y = ops.relu(self._normalised("value_head.reduce", x, num_filters, 1))
        features = self._pooled(y) if network.pooled_heads else self._flat(y)
        hidden = ops.relu(self._linear("value_head.hidden", features, network.value_hidden))
        return ops.reshape(ops.tanh(self._linear("value_head.output", hidden, 1)), [-1], False)

    def ownership(self, x: Node) -> Node:
        """[B, C, S, S] -> [B, S*S]."""
        return self._flat(self._ops.tanh(self._convolution("ownership_head.output", x)))

    def _with_pooled_bias(self, name: str, num_pooled: int, y: Node) -> tuple[Node, Node]:
        """`with_pooled_bias`: [B, C, S, S] -> [B, C - P, S, S], [B, 3 P]."""
        ops, num_rest = self._ops, num_channels(y) - num_pooled
        first, rest = ops.variadic_split(y, CHANNELS, [num_pooled, num_rest]).outputs()
        pooled = self._pooled(ops.relu(first))
        bias = self._linear(name, pooled, num_rest, has_bias=False)
        # [B, C - P] becomes [B, C - P, 1, 1] and is broadcast over the board.
        return ops.relu(ops.add(rest, ops.unsqueeze(bias, BOARD))), pooled

    def _pooled(self, y: Node) -> Node:
        """`pool_board`: [B, C, S, S] -> [B, 3 C]."""
        ops = self._ops
        size = np.sqrt(self._spec.rows * self._spec.columns)
        mean = ops.reduce_mean(y, BOARD)
        scaled = ops.multiply(mean, np.float32((size - POOLING_MEAN_SIZE) / POOLING_SIZE_UNIT))
        return ops.concat([mean, scaled, ops.reduce_max(y, BOARD)], 1)

    def _flat(self, y: Node) -> Node:
        """[B, C, S, S] -> [B, C * S * S]."""
        batch, *rest = list(y.get_output_shape(0))
        return self._ops.reshape(y, [batch, int(np.prod(rest))], False)

    def _normalised(self, name: str, x: Node, filters: int, size: int = 3) -> Node:
        """`ConvNorm`: [B, C, S, S] -> [B, F, S, S]."""
        weight = self._tensor(f"{name}.conv.weight", filters, num_channels(x), size, size)
        norm = (
            self._tensor(f"{name}.norm.{each}", filters) for each in ("weight", "bias", "running_mean", "running_var")
        )
        return self._convolve(x, *fold_norm(weight, *norm))

    def _convolution(self, name: str, x: Node) -> Node:
        """A 1x1 convolution with one filter: [B, C, S, S] -> [B, 1, S, S]."""
        return self._convolve(
            x, self._tensor(f"{name}.weight", 1, num_channels(x), 1, 1), self._tensor(f"{name}.bias", 1)
        )

    def _convolve(self, x: Node, weight: np.ndarray, bias: np.ndarray) -> Node:
        padding = [weight.shape[2] // 2] * 2
        y = self._ops.convolution(x, weight, [1, 1], padding, padding, [1, 1])
        return self._ops.add(y, bias.reshape(1, -1, 1, 1))

    def _linear(self, name: str, x: Node, num_outputs: int, has_bias: bool = True) -> Node:
        """[B, N] -> [B, M]."""
        y = self._ops.matmul(x, self._tensor(f"{name}.weight", num_outputs, num_channels(x)), False, True)
        return self._ops.add(y, self._tensor(f"{name}.bias", num_outputs).reshape(1, -1)) if has_bias else y

    def _tensor(self, name: str, *shape: int) -> np.ndarray:
        self.names.add(name)
        return tensor_of(self._tensors, name, shape, WEIGHT_FILE)


def num_channels(x: Node) -> int:
    """C of a node [B, C, ...]."""
    return int(x.get_output_shape(0)[CHANNELS])
