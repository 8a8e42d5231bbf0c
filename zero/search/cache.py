"""Evaluations that were asked for before: a table with one place for each hash, and exact keys.

An entry is found by a hash of the planes and used only where all planes, turned as they were shown, and the player are
equal, so that a collision can never answer for another position. A newer entry replaces an older one.
"""

from typing import NamedTuple

import numpy as np

from zero.kernels import kernel
from zero.search.streams import GOLDEN, mix

EMPTY_ENTRY = -1
"""Player of an entry that holds nothing."""


class EvaluationCache(NamedTuple):
    """C entries; C = 0 remembers nothing."""

    player: np.ndarray  # [C] int8, whose network said so, or EMPTY_ENTRY
    planes: np.ndarray  # [C, P, W] uint64
    prior: np.ndarray  # [C, A] float32
    value: np.ndarray  # [C] float32


def new_cache(num_entries: int, num_planes: int, num_words: int, num_actions: int) -> EvaluationCache:
    """An empty cache."""
    return EvaluationCache(
        player=np.full(num_entries, EMPTY_ENTRY, np.int8),
        planes=np.zeros((num_entries, num_planes, num_words), np.uint64),
        prior=np.zeros((num_entries, num_actions), np.float32),
        value=np.zeros(num_entries, np.float32),
    )


@kernel
def entry_of(cache: EvaluationCache, player: int, planes: np.ndarray) -> int:
    """The one entry that may hold the evaluation of `planes` ([P, W]); the cache must not be of size 0."""
    key = np.uint64(player)
    for plane in range(planes.shape[0]):
        for word in range(planes.shape[1]):
            key = mix(key ^ planes[plane, word]) + GOLDEN
    return int(key % np.uint64(cache.player.shape[0]))


@kernel
def holds(cache: EvaluationCache, entry: int, player: int, planes: np.ndarray) -> bool:
    """True where an entry is the evaluation of `planes` by `player`."""
    if cache.player[entry] != player:
        return False
    for plane in range(planes.shape[0]):
        for word in range(planes.shape[1]):
            if cache.planes[entry, plane, word] != planes[plane, word]:
                return False
    return True


@kernel
def remember(cache: EvaluationCache, player: int, planes: np.ndarray, prior: np.ndarray, value: np.float32) -> None:
    """Keeps an evaluation. Writes into `cache`."""
    entry = entry_of(cache, player, planes)
    cache.player[entry] = player
    for plane in range(planes.shape[0]):
        for word in range(planes.shape[1]):
            cache.planes[entry, plane, word] = planes[plane, word]
    for a in range(prior.shape[0]):
        cache.prior[entry, a] = prior[a]
    cache.value[entry] = value
