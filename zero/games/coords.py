"""Names of points: GTP and people say "D4"; the letter I is left out, row 1 is at the bottom."""

from zero.games.position import Rules

LETTERS = "ABCDEFGHJKLMNOPQRST"
PASS = "pass"


def action_to_name(rules: Rules, action: int) -> str:
    """`"D4"` or `"pass"`."""
    if rules.num_points <= action < rules.num_actions:
        return PASS
    if not 0 <= action < rules.num_points:
        raise ValueError(f"no action {action} on a board of {rules.rows}x{rules.columns}")
    row, column = divmod(action, rules.columns)
    return f"{LETTERS[column]}{rules.rows - row}"


def name_to_action(rules: Rules, name: str) -> int:
    """The action that `name` means, upper or lower case.

    Raises:
      ValueError: it names no point of this board.
    """
    text = name.strip().upper()
    if text == PASS.upper() and rules.num_actions > rules.num_points:
        return rules.num_points
    column = LETTERS.find(text[:1]) if text else -1
    if 0 <= column < rules.columns and text[1:].isdecimal() and 1 <= int(text[1:]) <= rules.rows:
        return (rules.rows - int(text[1:])) * rules.columns + column
    last = f"{LETTERS[rules.columns - 1]}{rules.rows}"
    raise ValueError(f"{name!r} is no point of a {rules.rows}x{rules.columns} board; points are A1 to {last}")
