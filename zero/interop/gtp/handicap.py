"""Where the stones of a handicap stand: the table of the protocol (its section 4.1.1), in GNU Go's order."""

from zero.games.position import Rules

MIN_STONES = 2
MIN_SIZE = 7
"""Below this board the table is empty."""
LARGE_SIZE = 12
"""From this board on the corner stones stand on the fourth line, below on the third."""
MIN_SIZE_OF_SIDES = 9
"""From here on, on boards with a centre, more than four stones have places."""


def fixed_points(rules: Rules, num_stones: int) -> tuple[int, ...] | None:
    """The points of a fixed handicap; None where the board has no such handicap."""
    size = rules.rows
    if rules.columns != size or size < MIN_SIZE:
        return None
    has_sides = size % 2 == 1 and size >= MIN_SIZE_OF_SIDES
    if not MIN_STONES <= num_stones <= (9 if has_sides else 4):
        return None
    low = 3 if size >= LARGE_SIZE else 2
    high, middle = size - 1 - low, size // 2
    places = [(low, low), (high, high), (low, high), (high, low)][: min(num_stones, 4)]  # column and row from A1
    if num_stones >= 6:
        places += [(low, middle), (high, middle)]
    if num_stones >= 8:
        places += [(middle, low), (middle, high)]
    if num_stones in (5, 7, 9):
        places.append((middle, middle))
    return tuple((size - 1 - row) * size + column for column, row in places)


def free_points(rules: Rules, num_stones: int) -> tuple[int, ...]:
    """The points we choose: the fixed ones as far as they go, fewer stones than asked for where they end.

    On a board without fixed points every second point of every second line; empty where that makes no two stones.
    """
    for wanted in range(min(num_stones, 9), MIN_STONES - 1, -1):
        if points := fixed_points(rules, wanted):
            return points
    points = tuple(
        row * rules.columns + column for row in range(1, rules.rows, 2) for column in range(1, rules.columns, 2)
    )[:num_stones]
    return points if len(points) >= MIN_STONES else ()
