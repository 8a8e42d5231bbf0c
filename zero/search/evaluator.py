"""The interface between the search and a network: planes in, priors and values out. No torch here."""

from typing import Protocol, runtime_checkable

import numpy as np

MAX_SUBMITTED = 2
"""Batches that an `AsyncEvaluator` takes before the first of them is fetched by `wait`."""


class Evaluator(Protocol):
    """Evaluates positions. It is deterministic: equal planes in a batch of equal shape give equal bits.

    The search does not check the results. With NaN or infinite numbers its choices mean nothing.
    """

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Evaluates a batch. Writes into `prior` and `value`.

        The arrays are contiguous, and the next batch uses them again. Some rows may hold planes of earlier batches; the
        search does not read their results. With `search.random_symmetry` a position may be turned or mirrored; its
        priors are those of the position in `planes`.

        Args:
          planes: [B, P, W] uint64, bitboards, see `zero.games.planes`; only read.
          prior: [B, A] float32, probabilities over all actions. The search divides them by their sum over the legal
            actions; if that is 0, it takes equal ones.
          value: [B] float32, in [-1, 1] for the player to move.
        """
        ...


@runtime_checkable
class AsyncEvaluator(Evaluator, Protocol):
    """An evaluator on another device, which computes while the host searches.

    It takes up to `MAX_SUBMITTED` batches and evaluates them in turn. With two, the device begins the second without
    waiting for the host.
    """

    def submit(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Starts the evaluation of a batch and returns.

        The arrays are those of `evaluate`. The caller may overwrite `planes` as soon as `submit` returns.
        """
        ...

    def wait(self) -> None:
        """Returns when the results of the oldest batch are in the arrays that `submit` got with it."""
        ...


class UniformEvaluator:
    """Gives every position equal priors and the value 0: for a search without a network, as in benchmarks and tests."""

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Writes equal priors and zeros."""
        prior[:] = 1.0 / prior.shape[1]
        value[:] = 0.0
