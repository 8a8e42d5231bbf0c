"""Where the stones of a handicap stand, on every board, beside GNU Go."""

import pytest

from tests.oracle.gnugo import GnuGo, needs_gnugo
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.rules import go_rules
from zero.interop.gtp.handicap import fixed_points, free_points


@needs_gnugo
def test_fixed_handicaps_are_gnugos():
    with GnuGo() as gnugo:
        for size in range(5, 20):
            rules = go_rules(size, size)
            for stones in range(11):
                gnugo.ask(f"boardsize {size}")
                gnugo.ask("clear_board")
                try:
                    theirs = {name_to_action(rules, name) for name in gnugo.ask(f"fixed_handicap {stones}").split()}
                except RuntimeError:
                    assert fixed_points(rules, stones) is None
                else:
                    assert set(fixed_points(rules, stones) or ()) == theirs, (size, stones)


def test_the_order_is_the_protocols():
    rules = go_rules(19, 19)
    names = [action_to_name(rules, point) for point in fixed_points(rules, 9) or ()]
    assert names == ["D4", "Q16", "D16", "Q4", "D10", "Q10", "K4", "K16", "K10"]


@pytest.mark.parametrize("size", range(2, 20))
def test_free_handicaps_are_different_points_and_never_more_than_asked(size):
    rules = go_rules(size, size)
    for wanted in range(2, 12):
        points = free_points(rules, wanted)
        assert len(set(points)) == len(points) <= wanted
        assert bool(points) == (size >= 4)
        assert all(0 <= point < rules.num_points for point in points)
