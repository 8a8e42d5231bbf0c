"""The evaluation cache: exact keys, one entry for each hash."""

import numpy as np

from zero.search.cache import NOT_CACHED, entry_index, insert, lookup, new_cache

PLANES, WORDS, ACTIONS = 3, 2, 4


def random_planes(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**63, (PLANES, WORDS), np.uint64)


def constant_prior(value: int) -> np.ndarray:
    return np.full(ACTIONS, value, np.float32)


def empty_cache(num_entries: int):
    return new_cache(num_entries, PLANES, WORDS, ACTIONS)


def test_an_inserted_evaluation_is_found():
    cache = empty_cache(64)
    insert(cache, 0, random_planes(5), constant_prior(7), np.float32(0.25))
    entry = lookup(cache, 0, random_planes(5))
    assert entry != NOT_CACHED
    assert (cache.prior[entry] == 7).all() and cache.value[entry] == 0.25


def test_an_empty_cache_contains_nothing_not_even_the_empty_board():
    assert lookup(empty_cache(8), 0, np.zeros((PLANES, WORDS), np.uint64)) == NOT_CACHED


def test_a_cache_without_entries_is_off():
    cache = empty_cache(0)
    insert(cache, 0, random_planes(5), constant_prior(7), np.float32(0.25))
    assert lookup(cache, 0, random_planes(5)) == NOT_CACHED


def test_players_do_not_share_evaluations():
    cache = empty_cache(1)
    insert(cache, 0, random_planes(5), constant_prior(7), np.float32(0.25))
    assert lookup(cache, 1, random_planes(5)) == NOT_CACHED


def test_a_collision_finds_nothing():
    """With one entry all positions collide, and the cache contains only the last."""
    cache = empty_cache(1)
    for number in range(20):
        insert(cache, 0, random_planes(number), constant_prior(number), np.float32(0.0))
        found = [lookup(cache, 0, random_planes(other)) != NOT_CACHED for other in range(20)]
        assert found == [other == number for other in range(20)]


def test_one_bit_makes_another_position():
    cache = empty_cache(1)
    insert(cache, 0, random_planes(5), constant_prior(7), np.float32(0.25))
    for plane in range(PLANES):
        for word in range(WORDS):
            other = random_planes(5)
            other[plane, word] ^= np.uint64(1)
            assert lookup(cache, 0, other) == NOT_CACHED


def test_positions_spread_over_the_entries():
    cache = empty_cache(64)
    entries = [entry_index(cache, 0, random_planes(number)) for number in range(2000)]
    assert set(entries) == set(range(64))
    assert max(np.bincount(entries)) < 60
