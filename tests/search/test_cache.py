"""The evaluation cache: exact keys, one place a hash."""

import numpy as np

from zero.search.cache import entry_of, holds, new_cache, remember

PLANES, WORDS, ACTIONS = 3, 2, 4


def planes_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 2**63, (PLANES, WORDS), np.uint64)


def prior_of(number: int) -> np.ndarray:
    return np.full(ACTIONS, number, np.float32)


def cache_of(num_entries: int):
    return new_cache(num_entries, PLANES, WORDS, ACTIONS)


def test_what_was_said_is_remembered_whole():
    cache = cache_of(64)
    remember(cache, 0, planes_of(5), prior_of(7), np.float32(0.25))
    entry = entry_of(cache, 0, planes_of(5))
    assert holds(cache, entry, 0, planes_of(5))
    assert (cache.prior[entry] == 7).all() and cache.value[entry] == 0.25


def test_an_empty_cache_holds_nothing_not_even_the_empty_board():
    cache = cache_of(8)
    empty = np.zeros((PLANES, WORDS), np.uint64)
    assert not holds(cache, entry_of(cache, 0, empty), 0, empty)


def test_the_other_player_has_another_opinion():
    cache = cache_of(1)
    remember(cache, 0, planes_of(5), prior_of(7), np.float32(0.25))
    assert not holds(cache, 0, 1, planes_of(5))


def test_a_collision_is_no_answer():
    """One entry: all positions collide, and only the last is remembered."""
    cache = cache_of(1)
    for number in range(20):
        remember(cache, 0, planes_of(number), prior_of(number), np.float32(0.0))
        assert [holds(cache, 0, 0, planes_of(other)) for other in range(20)] == [n == number for n in range(20)]


def test_one_bit_makes_another_position():
    cache = cache_of(1)
    remember(cache, 0, planes_of(5), prior_of(7), np.float32(0.25))
    for plane in range(PLANES):
        for word in range(WORDS):
            other = planes_of(5)
            other[plane, word] ^= np.uint64(1)
            assert not holds(cache, 0, 0, other)


def test_positions_spread_over_the_entries():
    cache = cache_of(64)
    entries = [entry_of(cache, 0, planes_of(number)) for number in range(2000)]
    assert set(entries) == set(range(64))
    assert max(np.bincount(entries)) < 60
