"""Deterministic evaluators without knowledge of the game: their results are hashes of the planes or constants.

Each row is evaluated alone with integers, so the results depend neither on the batch nor on the machine.
"""

import hashlib
from collections.abc import Callable

import numpy as np

from tests.oracle.bitboards import pack
from zero.games.position import NUM_PLANES, Rules

BLACK_TO_PLAY = NUM_PLANES - 1


class HashEvaluator:
    """Priors and values from a hash, peaked enough for deep trees, and different under each symmetry."""

    def __init__(self, rules: Rules, salt: str = "") -> None:
        self.num_points, self.num_actions, self.salt = rules.num_points, rules.num_actions, salt.encode()
        self.num_rows = 0

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        bits = np.unpackbits(np.ascontiguousarray(planes).view(np.uint8), axis=-1, bitorder="little")
        for row in range(len(planes)):
            prior[row], value[row] = self.judge(bits[row, :, : self.num_points])
        self.num_rows += len(planes)

    def judge(self, planes: np.ndarray) -> tuple[np.ndarray, float]:
        """Prior [A] and value of one position [17, S*S]."""
        words = self.words(planes)
        weights = words[:-1] ** 3  # below 2^48: their sum is exact
        return (weights / weights.sum()).astype(np.float32), float(words[-1]) / 2**15 - 1.0

    def words(self, planes: np.ndarray) -> np.ndarray:
        """[A + 1] integers below 2^16."""
        data = self.salt + np.packbits(planes != 0).tobytes()
        return np.frombuffer(hashlib.shake_128(data).digest(2 * (self.num_actions + 1)), "<u2").astype(np.int64)


class EquivariantEvaluator(HashEvaluator):
    """A `HashEvaluator` whose priors turn with the board: the mean over all symmetries."""

    def __init__(self, rules: Rules, salt: str = "") -> None:
        super().__init__(rules, salt)
        self.symmetries = rules.symmetries

    def words(self, planes: np.ndarray) -> np.ndarray:
        total = np.zeros(self.num_actions + 1, np.int64)
        for symmetry in self.symmetries:
            turned = np.empty_like(planes)
            turned[:, symmetry[: planes.shape[1]]] = planes
            words = super().words(turned)
            total += np.append(words[symmetry], words[-1])
        return total // len(self.symmetries)


class ColourEvaluator:
    """Equal priors, and one constant value for Black."""

    def __init__(self, value_for_black: float) -> None:
        self.value_for_black = value_for_black

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        prior[:] = 1.0 / prior.shape[1]
        value[:] = np.where(planes[:, BLACK_TO_PLAY, 0] != 0, self.value_for_black, -self.value_for_black)


class PriorEvaluator:
    """One prior for all positions, and the value 0."""

    def __init__(self, prior: np.ndarray) -> None:
        self.prior = prior

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        prior[:] = self.prior
        value[:] = 0.0


class ValueEvaluator:
    """A uniform prior and one value for all positions."""

    def __init__(self, value: float) -> None:
        self.value = value

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        prior[:] = 1.0 / prior.shape[1]
        value[:] = self.value


def judge_of(evaluator) -> Callable[[np.ndarray], tuple[np.ndarray, float]]:
    """The evaluation of one position at a time, as the slow twin needs it."""

    def judge(planes: np.ndarray) -> tuple[np.ndarray, float]:
        prior, value = np.zeros((1, evaluator.num_actions), np.float32), np.zeros(1, np.float32)
        evaluator.evaluate(pack(planes[None]), prior, value)
        return prior[0], float(value[0])

    return judge
