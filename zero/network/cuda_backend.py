"""The network in play on an NVIDIA GPU: one captured CUDA graph a batch shape, positions sent as bits.

A position at 9x9 is 272 bytes on its way to the GPU instead of 5,508; there the bits become planes. A replayed graph
launches all kernels of the network at once, which for small towers takes Python longer than the GPU needs to run them.
The weights are laid out channels-last, as tensor cores want them. See 'CUDA Graphs' in the notes on CUDA semantics of
PyTorch's documentation.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zero.config.params import ProfileParams
from zero.errors import ParamsError
from zero.games.position import WORD_BITS
from zero.network.fold import fold
from zero.network.model import AlphaZeroNetwork, channels_last
from zero.network.planes import BYTE_BITS, check_batch, expand_bits, plane_bytes
from zero.network.torch_backend import DTYPES
from zero.network.weights import load_network

WARM_UPS = 3
"""Runs before a capture, in which cuDNN and cuBLAS choose their algorithms; as in PyTorch's documentation."""
MEBIBYTE = 2**20


class CapturedBatch(NamedTuple):
    """The network's work for one batch shape, and the memory that it reads and writes at fixed addresses."""

    graph: torch.cuda.CUDAGraph
    octets: Tensor  # [B, P, 8 W] uint8 on the GPU, read by the graph
    prior: Tensor  # [B, A] float32 on the GPU, written by the graph
    value: Tensor  # [B] float32 on the GPU, written by the graph
    sent: Tensor  # as `octets`, in pinned memory of the host
    prior_back: Tensor  # as `prior`, in pinned memory of the host
    value_back: Tensor  # as `value`, in pinned memory of the host
    done: torch.cuda.Event  # the answers are back


class Submitted(NamedTuple):
    """A batch at work, and where its answers go."""

    batch: CapturedBatch
    prior: np.ndarray
    value: np.ndarray


class CudaEvaluator:
    """A folded network on a GPU. Its bits depend on the batch's shape, the precision, the GPU model and the libraries.

    `submit` returns at once and `wait` fetches the answers, so that the host can search other games meanwhile.
    """

    def __init__(self, data: bytes, profile: ProfileParams) -> None:
        """Loads a weight file.

        Raises:
          StorageError: the bytes are no weight file.
          ParamsError: there is no GPU, or it has no memory for the network.
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
            raise ParamsError(f"the GPU has no memory for the network{self._memory()}; free some of it") from None
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # graphs run one after the other and can share their scratch memory
        self._captured: dict[int, CapturedBatch] = {}
        self._submitted: Submitted | None = None

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Judges a batch of positions. Writes into `prior` and `value`; see `zero.search.evaluator`.

        Raises:
          ParamsError: the positions are of another board, or too many for the GPU's memory.
        """
        self.submit(planes, prior, value)
        self.wait()

    def submit(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Sends a batch on its way; `wait` must follow before the next one. Arguments and errors as of `evaluate`."""
        check_batch(self.spec, planes, prior, value)
        assert self._submitted is None, "a batch was submitted and not waited for"
        batch = self._captured.get(len(planes)) or self._capture(len(planes))
        batch.sent.numpy()[:] = plane_bytes(planes)
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            batch.octets.copy_(batch.sent, non_blocking=True)
            batch.graph.replay()
            batch.prior_back.copy_(batch.prior, non_blocking=True)
            batch.value_back.copy_(batch.value, non_blocking=True)
            batch.done.record(self._stream)
        self._submitted = Submitted(batch, prior, value)

    def wait(self) -> None:
        """Waits for the batch submitted. Writes its answers into the arrays that `submit` was given."""
        assert self._submitted is not None, "no batch was submitted"
        (batch, prior, value), self._submitted = self._submitted, None
        batch.done.synchronize()
        prior[:] = batch.prior_back.numpy()
        value[:] = batch.value_back.numpy()

    def _capture(self, size: int) -> CapturedBatch:
        """Makes the batch of a shape; where it does not fit, says which would."""
        try:
            batch = self._try_capture(size)
        except torch.cuda.OutOfMemoryError:
            batch = None  # handled below: here the error still holds the tensors that it failed beside
        if batch is None:
            fits = largest_batch(size, self._fits)
            remedy = (
                f"a batch of {fits} fits: lower num_slots (selfplay and gating)"
                if fits
                else "not even a batch of 1 fits"
            )
            raise ParamsError(f"the GPU has no memory for a batch of {size} positions{self._memory()}; {remedy}")
        self._captured[size] = batch
        return batch

    def _fits(self, size: int) -> bool:
        torch.cuda.empty_cache()
        try:
            self._try_capture(size)
        except torch.cuda.OutOfMemoryError:
            return False
        return True

    def _try_capture(self, size: int) -> CapturedBatch:
        spec = self.spec
        words = -(-spec.rows * spec.columns // WORD_BITS)
        octets = torch.zeros(
            (size, spec.num_planes, words * WORD_BITS // BYTE_BITS), dtype=torch.uint8, device=self._device
        )
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.inference_mode():
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    judge(self._network, octets, self._dtype)
            self._stream.synchronize()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                prior, value = judge(self._network, octets, self._dtype)
        return CapturedBatch(
            graph=graph,
            octets=octets,
            prior=prior,
            value=value,
            sent=torch.zeros(octets.shape, dtype=torch.uint8, pin_memory=True),
            prior_back=torch.zeros(prior.shape, pin_memory=True),
            value_back=torch.zeros(value.shape, pin_memory=True),
            done=torch.cuda.Event(),  # type: ignore[no-untyped-call]
        )

    def _memory(self) -> str:
        free, total = torch.cuda.mem_get_info(self._device)
        return f" ({free // MEBIBYTE} of {total // MEBIBYTE} MiB free)"


def judge(network: AlphaZeroNetwork, octets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Priors [B, A] and values [B] (both float32) of positions as bits ([B, P, 8 W] uint8), on any device."""
    logits, value = network(expand_bits(octets, network.spec, dtype))
    return torch.softmax(logits.float(), dim=1), value.float()


def largest_batch(too_large: int, fits: Callable[[int], bool]) -> int:
    """The largest power of two below `too_large` that fits, or 0; asks from the largest down."""
    size = (1 << (too_large - 1).bit_length()) >> 1
    while size and not fits(size):
        size //= 2
    return size
