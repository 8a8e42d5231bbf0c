"""Counter-based random streams, keyed by their purpose and never by a worker.

A stream is three words: a 128-bit key and a counter. Draw i is a hash of (key, i), so a game gets the same draws on any
worker and next to any other games. The hash applies SplitMix64's finaliser (Steele, Lea and Flood 2014) once for each
half of the key.
"""

import hashlib
import math

import numpy as np

from zero.kernels import kernel

STREAM_WORDS = 3
KEY_0, KEY_1, COUNTER = 0, 1, 2
"""Indices of the words of a stream."""

# 2^64 over the golden ratio, SplitMix64's increment. The next two are multipliers of its finaliser (Stafford's Mix13).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
FLOAT_STEP = 1.0 / (1 << 53)
"""Distance between two neighbouring results of `next_float`: a float64 has 53 bits of precision."""


def stream_of(seed: int, generation: int, phase: str, game: int) -> np.ndarray:
    """The stream of one game (or sample) in one phase, at its start: [3] uint64."""
    digest = hashlib.sha256(f"{seed}/{generation}/{phase}/{game}".encode()).digest()
    # Little-endian on every machine, so that a game does not depend on the host's byte order.
    words = np.frombuffer(digest[:16], "<u8")
    return np.array([words[0], words[1], 0], np.uint64)


@kernel
def mix(word: np.uint64) -> np.uint64:
    """SplitMix64's finaliser."""
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@kernel
def next_word(stream: np.ndarray) -> np.uint64:
    """64 random bits. Writes into `stream`."""
    stream[COUNTER] += np.uint64(1)
    # The inner argument is the state of SplitMix64 with seed KEY_0 after as many steps as the counter says.
    return mix(mix(stream[COUNTER] * GOLDEN + stream[KEY_0]) ^ stream[KEY_1])


@kernel
def next_float(stream: np.ndarray) -> float:
    """A uniform number in [0, 1) with 53 random bits. Writes into `stream`."""
    # The upper 53 bits are exact in a float64, so that no result is rounded up to 1.
    return np.float64(next_word(stream) >> np.uint64(11)) * FLOAT_STEP


@kernel
def next_below(stream: np.ndarray, bound: int) -> int:
    """A uniform integer in [0, bound), with a bias below bound / 2^53. Writes into `stream`."""
    return int(next_float(stream) * bound)


@kernel
def next_normal(stream: np.ndarray) -> float:
    """A standard normal number (Box and Muller). Writes into `stream`."""
    # 1 - u is in (0, 1]: the logarithm stays finite. The second number of the pair is not kept, a stream has no state.
    radius = math.sqrt(-2.0 * math.log(1.0 - next_float(stream)))
    return radius * math.cos(2.0 * math.pi * next_float(stream))


@kernel
def next_gamma(stream: np.ndarray, shape: float) -> float:
    """A gamma-distributed number of unit scale (Marsaglia and Tsang 2000). Writes into `stream`."""
    # The method needs shape >= 1; gamma(shape) = gamma(shape + 1) * u^(1 / shape) covers the rest.
    boost = 1.0
    if shape < 1.0:
        # Drawn before the loop, so the order of draws is fixed; 1 - u is never 0, as in `next_normal`.
        boost = (1.0 - next_float(stream)) ** (1.0 / shape)
        shape += 1.0
    # Names as in the paper: d = a - 1/3, c = 1 / sqrt(9 d).
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = next_normal(stream)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - next_float(stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v
