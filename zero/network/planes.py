"""Conversion of bitboards to the network's input planes: by a kernel on the CPU, by torch on any device."""

import numpy as np
import torch
from torch import Tensor

from zero.games.planes import expand_planes
from zero.network.spec import NetworkSpec

BYTE_BITS = 8


def network_input(bits: np.ndarray, spec: NetworkSpec, numbers: np.ndarray) -> Tensor:
    """Planes as [B, P, S, S] float32 on the CPU, laid out channels-last. `expand_bits` is the equivalent for GPUs.

    Args:
      bits: [B, P, W] uint64, see `zero.games.planes`.
      spec: spec of the network, which gives the shape.
      numbers: [B, S*S, P] float32, written; the result shares its memory.
    """
    expand_planes(bits, numbers)
    return torch.from_numpy(numbers).view(-1, spec.rows, spec.columns, spec.num_planes).permute(0, 3, 1, 2)


def plane_bytes(bits: np.ndarray) -> np.ndarray:
    """A view of bitboards as bytes: [B, P, W] uint64 -> [B, P, 8 W] uint8, point p in bit p & 7 of byte p >> 3."""
    return bits.view(np.uint8)  # assumes a little-endian machine, as all that run torch are


def expand_bits(bits: Tensor, spec: NetworkSpec, dtype: torch.dtype) -> Tensor:
    """Expands bits to planes on any device: [B, P, 8 W] uint8 -> [B, P, S, S], laid out channels-last.

    The equivalent of the kernel `expand_planes`.
    """
    batch, num_planes, _ = bits.shape
    shifts = torch.arange(BYTE_BITS, dtype=torch.uint8, device=bits.device)
    by_point = bits.transpose(1, 2).unsqueeze(2) >> shifts.view(1, 1, -1, 1) & 1  # [B, 8 W, 8, P]
    # The last word has more bits than the board has points left.
    points = by_point.reshape(batch, -1, num_planes)[:, : spec.rows * spec.columns].to(dtype)
    return points.reshape(batch, spec.rows, spec.columns, num_planes).permute(0, 3, 1, 2)
