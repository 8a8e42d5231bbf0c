"""What a player says of the empty board."""

import pytest

from benchmarks.solved import opening_of
from zero.errors import ZeroError
from zero.games.coords import name_to_action
from zero.games.rules import go_rules


def test_the_first_move_and_its_value_for_black(tmp_path):
    move, value = opening_of(tmp_path, "go9", simulations=64)
    row, column = divmod(name_to_action(go_rules(9, 9, 7.0), move), 9)
    assert {row, column} <= set(range(2, 7))  # the shipped player opens near the centre
    assert -0.5 < value < 0.5  # and finds komi 7 fair


def test_a_player_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ZeroError, match="nobody"):
        opening_of(tmp_path, "nobody")
