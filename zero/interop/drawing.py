"""Draws boards and search results as lines for a terminal. It prints nothing itself.

Rich leaves the styles out if the terminal has no colours. Black is then X and White is O, as in GNU Go. Brackets mark
the last move.
"""

import numpy as np
from rich.table import Table
from rich.text import Text

from zero.games.coordinates import LETTERS, action_to_name
from zero.games.position import BLACK, EMPTY, GO, WHITE, Rules
from zero.interop.gtp_analysis import winrate
from zero.play.search_result import SearchResult

STONES = {BLACK: "X", WHITE: "O"}
DISC = "●"
WOOD = "on #d9a95b"
STYLES = {BLACK: f"bold #000000 {WOOD}", WHITE: f"bold #ffffff {WOOD}", EMPTY: f"#7a5a28 {WOOD}"}
MARK_STYLE = f"bold #c00000 {WOOD}"
HEAT_STYLE = "bold #ffffff on rgb({},{},{})"
COOL, HOT = (90, 110, 140), (200, 40, 30)
NAMES = {BLACK: "Black", WHITE: "White"}
MIN_STAR_SIZE = 7
LARGE_SIZE = 13
MAX_MOVES = 5
"""Maximum number of moves in the table of a search."""
MAX_VARIATION_MOVES = 8


def board_lines(rules: Rules, stones: np.ndarray, last: tuple[int, ...], in_colour: bool) -> list[Text]:
    """The board with its coordinates. `stones`: colour of each point, [S*S]; `last`: the last action, or empty."""
    lines = [_letters(rules, 2)]
    for row in range(rules.rows):
        line = Text(f"{rules.rows - row:2d}")
        for column in range(rules.columns):
            point = row * rules.columns + column
            # A bracket stands before the last move and after it; there it takes the place of the next point's blank.
            line.append("(" if point in last else ")" if column and point - 1 in last else " ", MARK_STYLE)
            colour = int(stones[point])
            text = _empty_point(rules, row, column) if colour == EMPTY else DISC if in_colour else STONES[colour]
            line.append(text, STYLES[colour])
        line.append(")" if point in last else " ", MARK_STYLE)
        line.append(f"{rules.rows - row}")
        lines.append(line)
    return [*lines, _letters(rules, 2)]


def heat_lines(rules: Rules, stones: np.ndarray, visit_counts: np.ndarray, in_colour: bool) -> list[Text]:
    """The board with the percentage of the visits of each point (`visit_counts`: [A])."""
    total, most = max(1, int(visit_counts.sum())), max(1, int(visit_counts.max()))
    lines = [_letters(rules, 3)]
    for row in range(rules.rows):
        line = Text(f"{rules.rows - row:2d}")
        for column in range(rules.columns):
            point = row * rules.columns + column
            colour, visits = int(stones[point]), int(visit_counts[point])
            if colour != EMPTY:
                line.append(f"  {DISC if in_colour else STONES[colour]}", STYLES[colour])
            elif visits == 0:
                line.append("  ·" if in_colour else "  .", STYLES[EMPTY])
            else:
                line.append(f"{100 * visits / total:3.0f}", HEAT_STYLE.format(*_mix(visits / most)))
        line.append(f" {rules.rows - row:2d}")
        lines.append(line)
    return [*lines, _letters(rules, 3)]


def moves_table(rules: Rules, result: SearchResult, variations: dict[int, tuple[int, ...]], colour: int) -> Table:
    """The table of the best moves.

    Args:
      rules: the game.
      result: the result of the search.
      variations: the actions to list, each with its principal variation.
      colour: colour to move; all win chances are its own.
    """
    table = Table(title=f"{NAMES[colour]} to move, win chance {percent(result.best_value)}", title_justify="left")
    table.add_column("move")
    for heading in ("win", "visits", "prior"):
        table.add_column(heading, justify="right")
    table.add_column("expected")
    for action, variation in variations.items():
        visits = int(result.visit_counts[action])
        table.add_row(
            action_to_name(rules, action),
            percent(float(result.q_values[action])) if visits else "",
            str(visits),
            f"{100 * float(result.prior[action]):.1f} %",
            variation_text(rules, variation),
        )
    return table


def variation_text(rules: Rules, variation: tuple[int, ...]) -> str:
    """Names of the first moves of a variation."""
    return " ".join(action_to_name(rules, action) for action in variation[:MAX_VARIATION_MOVES])


def percent(value: float) -> str:
    """A value in [-1, 1] as a percentage of the chance to win."""
    return f"{100 * winrate(value):.0f} %"


def _letters(rules: Rules, width: int) -> Text:
    return Text("  " + "".join(f"{letter:>{width}}" for letter in LETTERS[: rules.columns]))


def _empty_point(rules: Rules, row: int, column: int) -> str:
    """Symbol of an empty point; star points of Go are marked."""
    if rules.game == GO and all(at in _stars(size) for at, size in ((row, rules.rows), (column, rules.columns))):
        return "+"
    return "."


def _stars(size: int) -> tuple[int, ...]:
    """Rows and columns of the star points; boards of even size have four star points."""
    if size < MIN_STAR_SIZE:
        return ()
    edge = 3 if size >= LARGE_SIZE else 2
    return (edge, size // 2, size - 1 - edge) if size % 2 else (edge, size - 1 - edge)


def _mix(share: float) -> list[int]:
    """RGB colour between COOL and HOT."""
    return [round(cool + share * (hot - cool)) for cool, hot in zip(COOL, HOT, strict=True)]
