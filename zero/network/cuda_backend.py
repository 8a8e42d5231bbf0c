"""Inference on an NVIDIA GPU: one captured CUDA graph per batch shape, positions transferred as bits.

A 9x9 position takes 272 bytes in the transfer instead of 5,508; the GPU expands the bits to planes. Replaying a graph
launches all kernels of the network at once. For small networks, launching them from Python takes longer than running
them. Weights are laid out channels-last for tensor cores. See 'CUDA Graphs' in PyTorch's notes on CUDA semantics.
"""

import threading
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zero.config.params import ProfileParams
from zero.errors import ParamsError
from zero.games.position import WORD_BITS
from zero.network.model import AlphaZeroNetwork, channels_last, fold
from zero.network.planes import BYTE_BITS, expand_bits, plane_bytes
from zero.network.spec import check_batch
from zero.network.torch_backend import DTYPES
from zero.network.weights import load_network

WARM_UPS = 3
"""Number of runs before a capture, in which cuDNN and cuBLAS choose their algorithms (PyTorch's documentation)."""
MEBIBYTE = 2**20
CAPTURING = threading.Lock()
"""Held during a capture: PyTorch allows one at a time in a process, and the web page plays several networks at once."""


class CapturedBatch(NamedTuple):
    """The captured graph of one batch shape, with its buffers: a graph reads and writes fixed addresses."""

    graph: torch.cuda.CUDAGraph
    bits: Tensor  # [B, P, 8 W] uint8 on the GPU, read by the graph
    prior: Tensor  # [B, A] float32 on the GPU, written by the graph
    value: Tensor  # [B] float32 on the GPU, written by the graph
    host_bits: Tensor  # copies of the three in pinned host memory, which a transfer can use asynchronously
    host_prior: Tensor
    host_value: Tensor
    done: torch.cuda.Event  # recorded after the results are in host memory


class Submitted(NamedTuple):
    """A batch in flight, and the caller's arrays for its results."""

    batch: CapturedBatch
    prior: np.ndarray
    value: np.ndarray


class CudaEvaluator:
    """Evaluates positions with a folded network on a GPU.

    Results depend, to the bit, on the batch shape, the precision, the GPU model and the library versions. `submit`
    returns at once and `wait` fetches the results, so that the host can search other games meanwhile.
    """

    def __init__(self, data: bytes, profile: ProfileParams) -> None:
        """Loads a weight file.

        Raises:
          StorageError: the bytes are not a weight file.
          ParamsError: there is no GPU, or its memory is too small for the network.
        """
        network = load_network(data)
        if not torch.cuda.is_available():
            raise ParamsError("profile.device = 'cuda', but torch finds no CUDA device; set it to 'cpu'")
        self.spec = network.spec
        self._device = torch.device("cuda")
        self._dtype = DTYPES[profile.precision]
        try:
            self._network = channels_last(fold(network).to(self._device, self._dtype))
        except torch.cuda.OutOfMemoryError:
            raise ParamsError(f"the GPU's memory is too small for the network{self._memory()}; free some") from None
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # graphs run one after the other, so they can share scratch memory
        self._captured: dict[int, CapturedBatch] = {}
        self._submitted: Submitted | None = None

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Evaluates a batch of positions. Writes into `prior` and `value`; see `zero.search.evaluator`.

        Raises:
          ParamsError: the positions are of another board, or too many for the GPU's memory.
        """
        self.submit(planes, prior, value)
        self.wait()

    def submit(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Starts the evaluation of a batch; `wait` must follow before the next one. Errors are those of `evaluate`."""
        check_batch(self.spec, planes, prior, value)
        assert self._submitted is None, "`wait` was not called for the previous batch"
        batch = self._captured_batch(len(planes))
        # A copy, because the transfer runs after `submit` has returned and the caller may then overwrite `planes`.
        batch.host_bits.numpy()[:] = plane_bytes(planes)
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            batch.bits.copy_(batch.host_bits, non_blocking=True)
            batch.graph.replay()
            batch.host_prior.copy_(batch.prior, non_blocking=True)
            batch.host_value.copy_(batch.value, non_blocking=True)
            batch.done.record(self._stream)
        self._submitted = Submitted(batch, prior, value)

    def wait(self) -> None:
        """Waits for the submitted batch. Writes its results into the arrays given to `submit`."""
        assert self._submitted is not None, "no batch was submitted"
        (batch, prior, value), self._submitted = self._submitted, None
        batch.done.synchronize()
        prior[:] = batch.host_prior.numpy()
        value[:] = batch.host_value.numpy()

    def _captured_batch(self, size: int) -> CapturedBatch:
        """The graph for a batch size, which is captured at its first use.

        Raises:
          ParamsError: the GPU's memory is too small.
        """
        if size not in self._captured:
            try:
                with CAPTURING:
                    self._captured[size] = self._capture(size)
            except torch.cuda.OutOfMemoryError:
                raise ParamsError(
                    f"the GPU's memory is too small for a batch of {size}{self._memory()}; lower num_slots (selfplay "
                    "and gating)"
                ) from None
        return self._captured[size]

    def _capture(self, size: int) -> CapturedBatch:
        spec = self.spec
        words = -(-spec.rows * spec.columns // WORD_BITS)
        bits = torch.zeros(
            (size, spec.num_planes, words * WORD_BITS // BYTE_BITS), dtype=torch.uint8, device=self._device
        )
        graph = torch.cuda.CUDAGraph()
        # Weights and `bits` were written on the current stream; a capture uses a stream of its own.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.inference_mode():
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    forward_bits(self._network, bits, self._dtype)
            self._stream.synchronize()
            # By default, CUDA also rejects calls of other threads during a capture, such as allocations.
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                prior, value = forward_bits(self._network, bits, self._dtype)
        return CapturedBatch(
            graph=graph,
            bits=bits,
            prior=prior,
            value=value,
            host_bits=torch.zeros(bits.shape, dtype=torch.uint8, pin_memory=True),
            host_prior=torch.zeros(prior.shape, pin_memory=True),
            host_value=torch.zeros(value.shape, pin_memory=True),
            done=torch.cuda.Event(),  # type: ignore[no-untyped-call]
        )

    def _memory(self) -> str:
        free, total = torch.cuda.mem_get_info(self._device)
        return f" ({free // MEBIBYTE} of {total // MEBIBYTE} MiB free)"


def forward_bits(network: AlphaZeroNetwork, bits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Priors [B, A] and values [B] (both float32) of positions as bits ([B, P, 8 W] uint8), on any device."""
    logits, value = network(expand_bits(bits, network.spec, dtype))
    # softmax in fp32, as in `TorchEvaluator`; the results leave the graph in fp32 for the host.
    return torch.softmax(logits.float(), dim=1), value.float()
