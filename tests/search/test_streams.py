"""Random streams: keys, equality with the slow twin, and statistical tests."""

import itertools

import numpy as np
import pytest

from tests.golden.golden import check_golden
from tests.oracle.streams import Stream
from zero.search.streams import next_below, next_float, next_gamma, next_normal, next_word, stream_of

KEY = (1, 2, "selfplay", 3)


def draws(draw, stream, count, *arguments):
    """The next numbers of a stream."""
    return [draw(stream, *arguments) for _ in range(count)]


def words_of(*key, count=4):
    return tuple(draws(next_word, stream_of(*key), count))


def test_words_equal_those_of_the_twin():
    stream = Stream(*KEY)
    assert words_of(*KEY, count=200) == tuple(stream.word() for _ in range(200))


def test_floats_and_integers_equal_those_of_the_twin():
    ours, twin = stream_of(*KEY), Stream(*KEY)
    assert draws(next_float, ours, 50) == [twin.uniform() for _ in range(50)]
    assert draws(next_below, ours, 50, 8) == [twin.below(8) for _ in range(50)]


@pytest.mark.parametrize("shape", [0.03, 0.13, 1.0, 2.5])
def test_gamma_numbers_equal_those_of_the_twin(shape):
    ours, twin = stream_of(*KEY), Stream(*KEY)
    assert draws(next_gamma, ours, 50, shape) == pytest.approx([twin.gamma(shape) for _ in range(50)], rel=1e-12)
    assert int(ours[2]) == twin.counter


def test_a_key_has_the_same_draws_each_time():
    assert words_of(*KEY) == words_of(*KEY)
    assert stream_of(*KEY).dtype == np.uint64


@pytest.mark.parametrize(
    "other", [(2, 2, "selfplay", 3), (1, 3, "selfplay", 3), (1, 2, "gating", 3), (1, 2, "selfplay", 4)]
)
def test_another_seed_generation_phase_or_game_has_other_draws(other):
    assert set(words_of(*KEY, count=50)).isdisjoint(words_of(*other, count=50))


def test_parts_of_a_key_are_separated():
    # 1/11 and 11/1 have the same digits.
    assert words_of(1, 11, "selfplay", 1) != words_of(11, 1, "selfplay", 1)


def test_ten_thousand_games_share_no_draw():
    # 40,000 words of 64 bits: the chance of two equal ones is 1 in 2 * 10^10.
    firsts = [word for game in range(10_000) for word in words_of(1, 1, "selfplay", game)]
    assert len(set(firsts)) == 40_000


def test_the_first_draws_of_many_games_are_uniform():
    # A game draws few numbers, so numbers must be independent across games.
    firsts = [next_float(stream_of(1, 1, "selfplay", game)) for game in range(10_000)]
    assert chi_square(firsts, 100) < 149  # 99 degrees of freedom: exceeded once in 1,000


def test_draws_within_a_game_are_uniform():
    assert (
        chi_square(draws(next_float, stream_of(*KEY), 100_000), 256) < 331
    )  # 255 degrees of freedom: exceeded once in 1,000


def test_successive_draws_are_independent():
    pairs = np.array(draws(next_float, stream_of(*KEY), 100_000)).reshape(-1, 2)
    cells = np.floor(pairs * 16) @ (16, 1)
    assert chi_square(cells / 256, 256) < 331
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.015


def test_every_bit_is_1_in_half_of_the_words():
    words = np.array(words_of(*KEY, count=20_000), np.uint64)
    ones = ((words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 4.5 * 0.5 / np.sqrt(20_000)


def test_a_bit_of_the_counter_flips_half_of_the_bits():
    words = words_of(*KEY, count=2_000)
    changes = [(one ^ other).bit_count() for one, other in itertools.pairwise(words)]
    assert abs(np.mean(changes) - 32) < 0.5


def test_floats_are_at_least_0_and_below_1():
    numbers = draws(next_float, stream_of(*KEY), 10_000)
    assert 0.0 <= min(numbers) < 0.001
    assert 0.999 < max(numbers) < 1.0


@pytest.mark.parametrize("bound", [1, 2, 8, 362])
def test_integers_cover_their_range(bound):
    assert set(draws(next_below, stream_of(*KEY), 40 * bound, bound)) == set(range(bound))


def test_normal_numbers_have_mean_0_and_variance_1():
    numbers = np.array(draws(next_normal, stream_of(*KEY), 40_000))
    assert abs(numbers.mean()) < 0.02
    assert numbers.var() == pytest.approx(1.0, abs=0.03)
    assert (numbers**4).mean() == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize("shape", [0.03, 0.13, 0.5, 1.0, 2.5, 30.0])
def test_gamma_numbers_have_mean_and_variance_of_their_shape(shape):
    numbers = np.array(draws(next_gamma, stream_of(*KEY), 40_000, shape))
    error = np.sqrt(shape / 40_000)
    assert numbers.min() >= 0.0
    assert numbers.mean() == pytest.approx(shape, abs=5 * error)
    assert numbers.var() == pytest.approx(shape, rel=0.03 + 0.4 / np.sqrt(40_000 * shape / 6) * 5)


def test_pinned_draws():
    # A change here would make published games impossible to reproduce.
    stream = stream_of(*KEY)
    found = {
        "words": [str(word) for word in draws(next_word, stream, 4)],
        "floats": draws(next_float, stream, 4),
        "below 8": draws(next_below, stream, 16, 8),
    }
    check_golden("streams", found)


def chi_square(numbers, num_bins: int) -> float:
    """Chi-square statistic of numbers in [0, 1) against the uniform distribution."""
    counts = np.bincount(np.floor(np.asarray(numbers) * num_bins).astype(int), minlength=num_bins)
    expected = len(numbers) / num_bins
    return float(((counts - expected) ** 2 / expected).sum())
