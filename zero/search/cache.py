"""Cache of network evaluations: a direct-mapped table with exact keys.

A hash of the planes selects one entry. The entry counts only if its player and all its planes are equal, so a hash
collision never returns the evaluation of another position. The planes include the symmetry they were shown under. A
newer evaluation replaces an older one.
"""

from typing import NamedTuple

import numpy as np

from zero.kernels import kernel
from zero.search.streams import GOLDEN, mix

NO_PLAYER = -1
"""Player of an empty entry."""
NOT_CACHED = -1
"""Result of `lookup` for an evaluation that is not in the cache."""


class EvaluationCache(NamedTuple):
    """C entries; with C = 0 the cache is off."""

    player: np.ndarray  # [C] int8, player whose network made the evaluation, or NO_PLAYER
    planes: np.ndarray  # [C, P, W] uint64
    prior: np.ndarray  # [C, A] float32
    value: np.ndarray  # [C] float32


def new_cache(num_entries: int, num_planes: int, num_words: int, num_actions: int) -> EvaluationCache:
    """An empty cache."""
    return EvaluationCache(
        player=np.full(num_entries, NO_PLAYER, np.int8),
        planes=np.zeros((num_entries, num_planes, num_words), np.uint64),
        prior=np.zeros((num_entries, num_actions), np.float32),
        value=np.zeros(num_entries, np.float32),
    )


@kernel
def entry_index(cache: EvaluationCache, player: int, planes: np.ndarray) -> int:
    """The one entry that can store the evaluation of `planes` ([P, W]) by `player`; needs C > 0."""
    # In a match both players share one table: the player is part of the key, because the same planes have two
    # evaluations.
    key = np.uint64(player)
    for plane in range(planes.shape[0]):
        for word in range(planes.shape[1]):
            # The sum moves the key away from 0, which `mix` maps to itself: leading empty planes would leave no trace
            # in it.
            key = mix(key ^ planes[plane, word]) + GOLDEN
    # Signed: Numba would unify uint64 with NOT_CACHED to float64, which is not an index.
    return int(np.int64(key % np.uint64(cache.player.shape[0])))


@kernel
def lookup(cache: EvaluationCache, player: int, planes: np.ndarray) -> int:
    """Index of the entry that stores the evaluation of `planes` ([P, W]) by `player`, or NOT_CACHED."""
    if cache.player.shape[0] == 0:
        return NOT_CACHED
    entry = entry_index(cache, player, planes)
    if cache.player[entry] != player:
        return NOT_CACHED
    for plane in range(planes.shape[0]):
        for word in range(planes.shape[1]):
            if cache.planes[entry, plane, word] != planes[plane, word]:
                return NOT_CACHED
    return entry


@kernel
def insert(cache: EvaluationCache, player: int, planes: np.ndarray, prior: np.ndarray, value: np.float32) -> None:
    """Stores an evaluation, if the cache is on. Writes into `cache`."""
    if cache.player.shape[0] == 0:
        return
    entry = entry_index(cache, player, planes)
    cache.player[entry] = player
    for plane in range(planes.shape[0]):
        for word in range(planes.shape[1]):
            cache.planes[entry, plane, word] = planes[plane, word]
    for a in range(prior.shape[0]):
        cache.prior[entry, a] = prior[a]
    cache.value[entry] = value
