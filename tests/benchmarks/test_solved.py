"""What a player says of the empty board, and when a lineage is through."""

from types import SimpleNamespace

import pytest

from benchmarks import solved
from benchmarks.solved import opening_of, solve
from zero.errors import ZeroError
from zero.games.coords import name_to_action
from zero.games.rules import go_rules


def test_the_first_move_and_its_value(tmp_path):
    move, value = opening_of(tmp_path, "go9", simulations=64)
    row, column = divmod(name_to_action(go_rules(9, 9, 7.0), move), 9)
    assert {row, column} <= set(range(2, 7))  # the shipped player opens near the centre
    assert -0.5 < value < 0.5  # and finds komi 7 fair


def test_a_player_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ZeroError, match="nobody"):
        opening_of(tmp_path, "nobody")


@pytest.mark.parametrize(
    ("made", "answers", "through", "num_made"),
    [
        (0, [("D1", 0.0), ("B3", 0.95), ("C3", 0.9), ("C3", 0.91)], True, 3),  # the centre, and above the goal
        (0, [("D1", 0.0), ("C3", 0.5), ("C3", 0.5), ("C3", 0.5)], False, 3),  # given up
        (5, [("C3", 0.91)], True, 0),  # it was through before
        (5, [("C3", 0.5)], False, 0),  # it has more generations than are allowed
    ],
)
def test_a_lineage_goes_on_until_it_is_through(monkeypatch, tmp_path, made, answers, through, num_made):
    """A generation takes a minute, so none is played."""
    calls = []

    def make_generation(home, lineage):
        calls.append(lineage)
        return 60.0

    monkeypatch.setattr(solved, "lineages", lambda home: ["go5-seed-1"])
    monkeypatch.setattr(solved, "read_ledger", lambda workspace: (SimpleNamespace(generation=made),))
    monkeypatch.setattr(solved, "make_generation", make_generation)
    monkeypatch.setattr(solved, "opening_of", lambda home, player: answers.pop(0))
    assert solve(tmp_path, seed=1, goal=0.9, most_generations=3) is through
    assert calls == ["go5-seed-1"] * num_made and not answers
