"""Seconds for a move by the time settings: never more than the player has."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zero.games.position import BLACK, WHITE
from zero.interop.gtp_clock import LAG_SECONDS, MIN_SECONDS, Clock
from zero.interop.gtp_protocol import TimeLeft, TimeSettings


def clock(*settings):
    one = Clock()
    one.configure(TimeSettings(*settings))
    return one


def seconds(one, colour=BLACK, num_moves=0):
    return one.seconds_for_move(colour, 81, num_moves)


def test_without_settings_there_is_no_limit():
    assert seconds(Clock()) is None


def test_a_period_without_stones_means_no_limit():
    assert seconds(clock(0, 1, 0)) is None
    assert seconds(clock(600, 30, 0)) is None


def test_main_time_is_spread_over_the_expected_moves():
    assert seconds(clock(324, 0, 0)) == pytest.approx(0.9 * 10)  # 32.4 moves of each player on 81 points
    assert seconds(clock(324, 0, 0), num_moves=200) == pytest.approx(0.9 * 32.4)  # at least ten moves are expected


def test_a_canadian_period_is_shared_by_its_stones():
    one = clock(0, 100, 10)
    one.set_left(BLACK, TimeLeft(100, 10))
    assert seconds(one) == pytest.approx(9.0)
    one.set_left(BLACK, TimeLeft(5, 5))
    assert seconds(one) == pytest.approx(0.8)


def test_without_main_time_the_first_move_uses_the_first_period():
    assert seconds(clock(0, 100, 10)) == pytest.approx(9.0)


def test_a_period_for_one_stone_is_a_time_for_each_move():
    one = clock(0, 5, 1)
    for _ in range(5):
        assert seconds(one) == pytest.approx(4.5)
        one.spend(BLACK, 4.6)


def test_spent_time_is_subtracted_until_the_controller_reports_it():
    one = clock(1000, 0, 0)
    before = seconds(one)
    one.spend(BLACK, 500)
    assert seconds(one) == pytest.approx(before / 2)
    assert seconds(one, WHITE) == before
    one.set_left(BLACK, TimeLeft(1000, 0))
    assert seconds(one) == before


def test_exceeding_the_main_time_uses_the_first_period():
    one = clock(10, 100, 10)
    one.spend(BLACK, 20)
    assert seconds(one) == pytest.approx(0.9 * 90 / 9)


def test_a_new_game_restarts_the_clock():
    one = clock(100, 0, 0)
    before = seconds(one)
    one.spend(BLACK, 99)
    one.restart()
    assert seconds(one) == before


TIMES = st.floats(0, 1e5)


@settings(deadline=None)  # a busy machine takes any time
@given(TIMES, TIMES, st.integers(0, 50), st.integers(1, 500), st.lists(st.floats(0, 100), max_size=20))
def test_no_move_takes_more_time_than_is_left(main, period, stones, num_points, used):
    one = clock(main, period, stones)
    for number, spent in enumerate(used):
        limit = one.seconds_for_move(BLACK, num_points, 2 * number)
        if limit is None:
            assert period > 0
            assert stones == 0
            return
        left = one._left[BLACK]
        available = left.seconds if left.stones else left.seconds + (period / stones if stones else 0)
        assert MIN_SECONDS <= limit <= max(MIN_SECONDS, available - LAG_SECONDS)
        one.spend(BLACK, spent)


def test_time_left_sets_no_limit_if_the_settings_have_none():
    one = clock(0, 1, 0)
    one.set_left(BLACK, TimeLeft(0, 0))
    assert seconds(one) is None
