"""Names of points such as "D4", as in GTP: columns are letters without I, row 1 is at the bottom."""

from zero.games.position import Rules

LETTERS = "ABCDEFGHJKLMNOPQRST"
PASS = "pass"


def action_to_name(rules: Rules, action: int) -> str:
    """The name of an action: `"D4"` or `"pass"`.

    Raises:
      ValueError: the board has no such action.
    """
    if rules.num_points <= action < rules.num_actions:
        return PASS
    if not 0 <= action < rules.num_points:
        raise ValueError(f"no action {action} on a {rules.rows}x{rules.columns} board")
    row, column = divmod(action, rules.columns)
    return f"{LETTERS[column]}{rules.rows - row}"


def name_to_action(rules: Rules, name: str) -> int:
    """The action with this name; case does not matter.

    Raises:
      ValueError: the name is not a point of this board.
    """
    text = name.strip().upper()
    if text == PASS.upper() and rules.num_actions > rules.num_points:
        return rules.num_points
    column = LETTERS.find(text[:1]) if text else -1
    if 0 <= column < rules.columns and text[1:].isdecimal() and 1 <= int(text[1:]) <= rules.rows:
        return (rules.rows - int(text[1:])) * rules.columns + column
    last = f"{LETTERS[rules.columns - 1]}{rules.rows}"
    raise ValueError(f"{name!r} is not a point of a {rules.rows}x{rules.columns} board; points are A1 to {last}")
