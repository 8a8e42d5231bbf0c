"""Names of points, compared with a drawn board."""

import pytest

from zero.games.coordinates import action_to_name, name_to_action
from zero.games.rules import go_rules, gomoku_rules


@pytest.mark.parametrize(
    ("name", "action"), [("A9", 0), ("J9", 8), ("A1", 72), ("J1", 80), ("E5", 40), ("D4", 48), ("pass", 81)]
)
def test_points_of_9x9(name, action):
    assert action_to_name(go_rules(9, 9), action) == name
    assert name_to_action(go_rules(9, 9), name) == action


def test_columns_are_letters_and_rows_are_numbers():
    rules = go_rules(2, 5)
    assert [action_to_name(rules, action) for action in range(11)] == [
        *("A2", "B2", "C2", "D2", "E2"),
        *("A1", "B1", "C1", "D1", "E1"),
        "pass",
    ]


def test_the_letter_i_is_skipped():
    assert [action_to_name(go_rules(19, 19), action)[0] for action in range(19)] == list("ABCDEFGHJKLMNOPQRST")


@pytest.mark.parametrize("name", ["", "A", "5", "I5", "K5", "A0", "A10", "A-1", "AA1", "A1.0", "5E", "passes"])
def test_an_invalid_name_is_rejected(name):
    with pytest.raises(ValueError, match="not a point of a 9x9 board; points are A1 to J9"):
        name_to_action(go_rules(9, 9), name)


def test_gomoku_has_no_pass():
    with pytest.raises(ValueError, match="not a point"):
        name_to_action(gomoku_rules(9, 9, 5), "pass")
    with pytest.raises(ValueError, match="no action 81"):
        action_to_name(gomoku_rules(9, 9, 5), 81)


@pytest.mark.parametrize("action", [-1, 82])
def test_an_action_beyond_the_board_has_no_name(action):
    with pytest.raises(ValueError, match=f"no action {action}"):
        action_to_name(go_rules(9, 9), action)
