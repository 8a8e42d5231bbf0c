"""Inference on an NVIDIA GPU: one captured CUDA graph per batch shape, positions transferred as bits.

A 9x9 position takes 272 bytes in the transfer instead of 5,508; the GPU expands the bits to planes. Replaying a graph
launches all kernels of the network at once. For small networks, launching them from Python takes longer than running
them. Weights are laid out channels-last for tensor cores. In bf16, the convolutions of a block also add and rectify,
see `fuse`.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zero.config.auto import NO_CUDA
from zero.config.params import ProfileParams
from zero.errors import ParamsError
from zero.games.position import WORD_BITS
from zero.network.cuda_graphs import capture
from zero.network.model import AlphaZeroNetwork, Block, channels_last, fold
from zero.network.planes import BYTE_BITS, expand_bits, plane_bytes
from zero.network.spec import check_batch
from zero.network.torch_backend import DTYPES
from zero.network.weights import load_network
from zero.search.evaluator import MAX_SUBMITTED

FUSED_CHANNELS = 32
"""Only trunks with a multiple of this number of channels are fused: the three quarters that the second convolution of a
pooled block reads are then a multiple of 8. cuDNN may lack fused kernels for other numbers of channels, and for fp32
without TF32."""
MEBIBYTE = 2**20


class HostBuffers(NamedTuple):
    """Pinned host memory for one batch in flight; without pinning, transfers would not be asynchronous."""

    bits: Tensor
    prior: Tensor
    value: Tensor
    done: torch.cuda.Event  # recorded after the results are in host memory


class CapturedBatch(NamedTuple):
    """The captured graph of one batch shape, with its buffers: a graph reads and writes fixed addresses."""

    graph: torch.cuda.CUDAGraph
    bits: Tensor  # [B, P, 8 W] uint8 on the GPU, read by the graph
    prior: Tensor  # [B, A] float32 on the GPU, written by the graph
    value: Tensor  # [B] float32 on the GPU, written by the graph
    host: Iterator[HostBuffers]  # buffers for each batch that can be in flight, in turn, without end


class Submitted(NamedTuple):
    """A batch in flight, and the caller's arrays for its results."""

    host: HostBuffers
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
            raise ParamsError(NO_CUDA)
        self.spec = network.spec
        self._device = torch.device("cuda")
        self._dtype = DTYPES[profile.precision]
        try:
            self._network = channels_last(fold(network).to(self._device, self._dtype))
            if self._dtype == torch.bfloat16 and self.spec.network.num_channels % FUSED_CHANNELS == 0:
                fuse(self._network)
        except torch.cuda.OutOfMemoryError:
            raise ParamsError(f"the GPU's memory is too small for the network{self._memory()}; free some") from None
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # graphs run one after the other, so they can share scratch memory
        self._captured: dict[int, CapturedBatch] = {}
        self._submitted: deque[Submitted] = deque()

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Evaluates a batch of positions. Writes into `prior` and `value`; see `zero.search.evaluator`.

        Raises:
          ParamsError: the positions are of another board, or too many for the GPU's memory.
        """
        assert not self._submitted, "`wait` was not called for the earlier batches"
        self.submit(planes, prior, value)
        self.wait()

    def submit(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Starts the evaluation of a batch, after those in flight. Errors are those of `evaluate`."""
        check_batch(self.spec, planes, prior, value)
        assert len(self._submitted) < MAX_SUBMITTED, "`wait` was not called for the earlier batches"
        batch = self._captured_batch(len(planes))
        host = next(batch.host)
        # A copy, because the transfer runs after `submit` has returned and the caller may then overwrite `planes`.
        host.bits.numpy()[:] = plane_bytes(planes)
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            batch.bits.copy_(host.bits, non_blocking=True)
            batch.graph.replay()
            host.prior.copy_(batch.prior, non_blocking=True)
            host.value.copy_(batch.value, non_blocking=True)
            host.done.record(self._stream)
        self._submitted.append(Submitted(host, prior, value))

    def wait(self) -> None:
        """Waits for the oldest batch. Writes its results into the arrays given to `submit`."""
        assert self._submitted, "no batch was submitted"
        host, prior, value = self._submitted.popleft()
        host.done.synchronize()
        prior[:] = host.prior.numpy()
        value[:] = host.value.numpy()

    def _captured_batch(self, size: int) -> CapturedBatch:
        """The graph for a batch size, which is captured at its first use.

        Raises:
          ParamsError: the GPU's memory is too small.
        """
        if size not in self._captured:
            try:
                self._captured[size] = self._capture(size)
            except torch.cuda.OutOfMemoryError:
                raise ParamsError(
                    f"the GPU's memory is too small for a batch of {size}{self._memory()}; lower num_slots (selfplay "
                    "and gating) or executor.num_processes"
                ) from None
        return self._captured[size]

    def _capture(self, size: int) -> CapturedBatch:
        spec = self.spec
        words = -(-spec.rows * spec.columns // WORD_BITS)
        bits = torch.zeros(
            (size, spec.num_planes, words * WORD_BITS // BYTE_BITS), dtype=torch.uint8, device=self._device
        )
        with torch.inference_mode():
            graph, (prior, value) = capture(
                lambda: forward_bits(self._network, bits, self._dtype), self._stream, self._pool
            )
        return CapturedBatch(
            graph=graph,
            bits=bits,
            prior=prior,
            value=value,
            host=itertools.cycle([_host_buffers(bits, prior, value) for _ in range(MAX_SUBMITTED)]),
        )

    def _memory(self) -> str:
        free, total = torch.cuda.mem_get_info(self._device)
        return f" ({free // MEBIBYTE} of {total // MEBIBYTE} MiB free)"


class FusedBlock(nn.Module):
    """A residual block of a folded network. Its convolutions also add bias and skip, and rectify.

    The first convolution of a pooled block is as it was. That of another block adds its input with the factor 0:
    `torch.cudnn_convolution_relu` would add its own output before it is written, so that a NaN in that memory might
    stay.

    PyTorch does not ask cuDNN for deterministic kernels here. By its documentation ('Reproducibility') only routines of
    the backward pass are not deterministic; `make gpu` compares the games of two runs.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, S, S] -> [B, C, S, S]."""
        block = self.block
        y = _fused_convolution(x, block.first, x, 0.0) if block.pool is None else block.middle(x)
        return _fused_convolution(y, block.second, x, 1.0)


def _fused_convolution(x: Tensor, folded: nn.Module, other: Tensor, factor: float) -> Tensor:
    """The rectified sum of the convolution with its bias and another tensor times a factor."""
    assert isinstance(folded, nn.Conv2d) and isinstance(folded.padding, tuple), "the network is not folded"
    settings = folded.stride, folded.padding, folded.dilation, folded.groups
    return torch.cudnn_convolution_add_relu(x, folded.weight, other, factor, folded.bias, *settings)


def fuse(network: AlphaZeroNetwork) -> None:
    """Replaces the residual blocks of a folded network by fused ones.

    PyTorch otherwise runs a convolution, its bias, the sum and the rectifier as kernels of their own, which read and
    write all activations.
    """
    for trunk in filter(None, (network.tower, network.value_tower)):
        for number, block in enumerate(trunk):
            if isinstance(block, Block) and block.skip:
                trunk[number] = FusedBlock(block)


def _host_buffers(bits: Tensor, prior: Tensor, value: Tensor) -> HostBuffers:
    pinned = [torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in (bits, prior, value)]
    return HostBuffers(pinned[0], pinned[1], pinned[2], torch.cuda.Event())  # type: ignore[no-untyped-call]


def forward_bits(network: AlphaZeroNetwork, bits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Priors [B, A] and values [B] (both float32) of positions as bits ([B, P, 8 W] uint8), on any device."""
    logits, value = network(expand_bits(bits, network.spec, dtype))
    # softmax in fp32, as in `TorchEvaluator`; the results leave the graph in fp32 for the host.
    return torch.softmax(logits.float(), dim=1), value.float()
