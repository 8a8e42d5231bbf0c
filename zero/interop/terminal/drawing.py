"""Boards and thoughts as lines for a terminal, with colours or without. Pure: nothing is printed here.

Without colours Black is X and White O, as GNU Go draws them; the last move stands in brackets.
"""

import numpy as np
from rich.table import Table
from rich.text import Text

from zero.games.coordinates import LETTERS, action_to_name
from zero.games.position import BLACK, EMPTY, GO, WHITE, Rules
from zero.interop.gtp.analysis import winrate
from zero.play.search_result import SearchResult

STONES = {BLACK: "X", WHITE: "O"}
DISC = "●"
WOOD = "on #d9a95b"
STYLES = {BLACK: f"bold #000000 {WOOD}", WHITE: f"bold #ffffff {WOOD}", EMPTY: f"#7a5a28 {WOOD}"}
MARK_STYLE = f"bold #c00000 {WOOD}"
HEAT_STYLE = "bold #ffffff on rgb({},{},{})"
COOL, HOT = (90, 110, 140), (200, 40, 30)
NAMES = {BLACK: "Black", WHITE: "White"}
MIN_SIZE_OF_STARS = 7
LARGE_SIZE = 13
MAX_TOLD = 5
MAX_LINE = 8


def board_lines(rules: Rules, stones: np.ndarray, last: int | None, in_colour: bool) -> list[Text]:
    """The board, [S*S] colours, with its coordinates; `last`: the point of the last move."""
    lines = [_letters(rules, 2)]
    for row in range(rules.rows):
        line = Text(f"{rules.rows - row:2d}")
        for column in range(rules.columns + 1):
            point = row * rules.columns + column if column < rules.columns else None
            before = row * rules.columns + column - 1 if column else None
            mark = "(" if last is not None and point == last else ")" if last is not None and before == last else " "
            line.append(mark, MARK_STYLE if in_colour else None)
            if point is None:
                continue
            colour = int(stones[point])
            text = _empty_point(rules, row, column) if colour == EMPTY else DISC if in_colour else STONES[colour]
            line.append(text, STYLES[colour] if in_colour else None)
        line.append(f"{rules.rows - row}")
        lines.append(line)
    lines.append(_letters(rules, 2))
    return lines


def heat_lines(rules: Rules, stones: np.ndarray, visit_counts: np.ndarray, in_colour: bool) -> list[Text]:
    """The board with the share of the visits of each point, in per cent."""
    total, most = max(1, int(visit_counts.sum())), max(1, int(visit_counts.max()))
    lines = [_letters(rules, 3)]
    for row in range(rules.rows):
        line = Text(f"{rules.rows - row:2d}")
        for column in range(rules.columns):
            point = row * rules.columns + column
            colour, visits = int(stones[point]), int(visit_counts[point])
            if colour != EMPTY:
                text = DISC if in_colour else STONES[colour]
                line.append(f"  {text}", STYLES[colour] if in_colour else None)
            elif visits == 0:
                line.append("  ·" if in_colour else "  .", STYLES[EMPTY] if in_colour else None)
            else:
                style = HEAT_STYLE.format(*_mix(visits / most)) if in_colour else None
                line.append(f"{100 * visits / total:3.0f}", style)
        line.append(f" {rules.rows - row:2d}")
        lines.append(line)
    lines.append(_letters(rules, 3))
    return lines


def thoughts_table(rules: Rules, result: SearchResult, lines: dict[int, tuple[int, ...]], colour: int) -> Table:
    """The moves that were searched most.

    Args:
      rules: the game.
      result: what the search found.
      lines: for each action to be told, what is expected to follow.
      colour: who is to move, as whose chances they are told.
    """
    table = Table(title=f"{NAMES[colour]} to move, win chance {percent(result.best_value)}", title_justify="left")
    table.add_column("move")
    for heading in ("win", "visits", "prior"):
        table.add_column(heading, justify="right")
    table.add_column("expected")
    for action, line in lines.items():
        visits = int(result.visit_counts[action])
        table.add_row(
            action_to_name(rules, action),
            percent(float(result.q_values[action])) if visits else "",
            str(visits),
            f"{100 * float(result.prior[action]):.1f} %",
            line_text(rules, line),
        )
    return table


def line_text(rules: Rules, line: tuple[int, ...]) -> str:
    """The names of the first moves of a line."""
    return " ".join(action_to_name(rules, action) for action in line[:MAX_LINE])


def percent(value: float) -> str:
    """A value as a chance to win."""
    return f"{100 * winrate(value):.0f} %"


def _letters(rules: Rules, width: int) -> Text:
    return Text("  " + "".join(f"{letter:>{width}}" for letter in LETTERS[: rules.columns]))


def _empty_point(rules: Rules, row: int, column: int) -> str:
    """A point, or a star where Go boards have one."""
    if rules.game == GO and all(at in _stars(size) for at, size in ((row, rules.rows), (column, rules.columns))):
        return "+"
    return "."


def _stars(size: int) -> tuple[int, ...]:
    """Rows of the stars of a board of odd size; others have four."""
    if size < MIN_SIZE_OF_STARS:
        return ()
    edge = 3 if size >= LARGE_SIZE else 2
    return (edge, size // 2, size - 1 - edge) if size % 2 else (edge, size - 1 - edge)


def _mix(share: float) -> list[int]:
    return [round(cool + share * (hot - cool)) for cool, hot in zip(COOL, HOT, strict=True)]
