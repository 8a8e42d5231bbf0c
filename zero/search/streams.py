"""Random streams, keyed by what they are for and never by who runs them.

A stream is three words: a 128-bit key and a counter. Draw i is a hash of (key, i), so a game has the same draws on any
worker, in any company. The hash is SplitMix64's finaliser (Steele, Lea and Flood 2014), under each half of the key.
"""

import hashlib
import math

import numpy as np

from zero.kernels import inline_kernel, kernel

STREAM_WORDS = 3
KEY_0, KEY_1, COUNTER = 0, 1, 2

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
FLOAT_STEP = 1.0 / (1 << 53)


def stream_of(seed: int, generation: int, phase: str, game: int) -> np.ndarray:
    """The stream of one game (or sample) of one phase: [3] uint64, at its start."""
    digest = hashlib.sha256(f"{seed}/{generation}/{phase}/{game}".encode()).digest()
    words = np.frombuffer(digest[:16], "<u8")
    return np.array([words[0], words[1], 0], np.uint64)


@inline_kernel
def mix(word: np.uint64) -> np.uint64:
    """SplitMix64's finaliser."""
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@inline_kernel
def next_word(stream: np.ndarray) -> np.uint64:
    """64 random bits. Writes into `stream`."""
    stream[COUNTER] += np.uint64(1)
    return mix(mix(stream[COUNTER] * GOLDEN + stream[KEY_0]) ^ stream[KEY_1])


@inline_kernel
def next_float(stream: np.ndarray) -> float:
    """A number in [0, 1) with 53 bits. Writes into `stream`."""
    return np.float64(next_word(stream) >> np.uint64(11)) * FLOAT_STEP


@inline_kernel
def next_below(stream: np.ndarray, bound: int) -> int:
    """An integer in [0, bound); its bias is below bound / 2^53. Writes into `stream`."""
    return int(next_float(stream) * bound)


@kernel
def next_normal(stream: np.ndarray) -> float:
    """A standard normal number (Box and Muller). Writes into `stream`."""
    radius = math.sqrt(-2.0 * math.log(1.0 - next_float(stream)))
    return radius * math.cos(2.0 * math.pi * next_float(stream))


@kernel
def next_gamma(stream: np.ndarray, shape: float) -> float:
    """A gamma number of unit scale (Marsaglia and Tsang 2000). Writes into `stream`."""
    boost = 1.0
    if shape < 1.0:
        boost = (1.0 - next_float(stream)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = next_normal(stream)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - next_float(stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v
