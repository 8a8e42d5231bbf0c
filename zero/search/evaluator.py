"""What the search asks of a network: priors and values for planes. No torch here."""

from typing import Protocol

import numpy as np


class Evaluator(Protocol):
    """Judges positions. Deterministic: equal planes in a batch of equal shape give equal bits."""

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Judges a batch.

        Args:
          planes: [B, P, S*S] float32, see `zero.games.planes`.
          prior: [B, A] float32, written: probabilities over all actions, legal or not.
          value: [B] float32, written: in [-1, 1] for the player to move.
        """
        ...


class UniformEvaluator:
    """Knows nothing: equal priors and value 0. For benchmarks and tests of the search alone."""

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Writes equal priors and zeros."""
        prior[:] = 1.0 / prior.shape[1]
        value[:] = 0.0
