"""Random streams, slow and obvious: SplitMix64 in Python integers. Twin of zero/search/streams.py."""

import hashlib
import math

WORD = 2**64


class Stream:
    """The random stream of one game: SplitMix64 under each half of a 128-bit key."""

    def __init__(self, seed: int, generation: int, phase: str, game: int) -> None:
        digest = hashlib.sha256(f"{seed}/{generation}/{phase}/{game}".encode()).digest()
        self.keys = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
        self.counter = 0

    @staticmethod
    def mix(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
        return word ^ (word >> 31)

    def word(self) -> int:
        self.counter += 1
        return self.mix(self.mix((self.counter * 0x9E3779B97F4A7C15 + self.keys[0]) % WORD) ^ self.keys[1])

    def uniform(self) -> float:
        return (self.word() >> 11) / 2**53

    def below(self, bound: int) -> int:
        return int(self.uniform() * bound)

    def normal(self) -> float:
        """Box and Muller."""
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def gamma(self, shape: float) -> float:
        """Marsaglia and Tsang."""
        if shape < 1:
            boost = math.pow(1 - self.uniform(), 1 / shape)
            return boost * self.gamma(shape + 1)
        d = shape - 1 / 3
        while True:
            x = self.normal()
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(1 - self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return d * v
