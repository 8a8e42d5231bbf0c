"""What the search asks of a network: priors and values for planes. No torch here."""

from typing import Protocol, runtime_checkable

import numpy as np


class Evaluator(Protocol):
    """Judges positions. Deterministic: equal planes in a batch of equal shape give equal bits."""

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Judges a batch.

        Args:
          planes: [B, P, W] uint64, bitboards, see `zero.games.planes`.
          prior: [B, A] float32, written: probabilities over all actions, legal or not.
          value: [B] float32, written: in [-1, 1] for the player to move.
        """
        ...


@runtime_checkable
class AsyncEvaluator(Evaluator, Protocol):
    """An evaluator that works on a device of its own, while the host does something else. One batch at a time."""

    def submit(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Begins to judge a batch and returns; the arrays are those of `evaluate`, and `planes` may change at once."""
        ...

    def wait(self) -> None:
        """Returns when the answers are in the arrays that `submit` was given."""
        ...


class UniformEvaluator:
    """Knows nothing: equal priors and value 0. For benchmarks and tests of the search alone."""

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Writes equal priors and zeros."""
        prior[:] = 1.0 / prior.shape[1]
        value[:] = 0.0
