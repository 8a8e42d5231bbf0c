"""Conversion between planes and bitboards, slow and obvious: bit p & 63 of word p >> 6 is point p."""

import numpy as np


def pack(planes: np.ndarray) -> np.ndarray:
    """[..., S*S] zeros and ones -> [..., W] uint64."""
    words = [0] * -(-planes.shape[-1] // 64)
    if planes.ndim > 1:
        return np.stack([pack(plane) for plane in planes])
    for point, number in enumerate(planes):
        words[point // 64] |= int(number != 0) << (point % 64)
    return np.array(words, np.uint64)


def unpack(bits: np.ndarray, num_points: int) -> np.ndarray:
    """[..., W] uint64 -> [..., S*S] float32; bits beyond the board must be zero."""
    if bits.ndim > 1:
        return np.stack([unpack(plane, num_points) for plane in bits])
    number = sum(int(word) << (64 * i) for i, word in enumerate(bits))
    assert number >> num_points == 0, "a bit beyond the board"
    return np.array([(number >> point) & 1 for point in range(num_points)], np.float32)
