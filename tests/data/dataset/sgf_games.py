"""Made games of SGF for the tests of imports: always legal, and as many as are needed."""

import random
from collections.abc import Iterator

EVEN_POINTS = [
    f"{column}{row}" for i, column in enumerate("abcdefghi") for j, row in enumerate("abcdefghi") if (i + j) % 2 == 0
]
"""Points of which no two are neighbours: stones there never lose all their liberties, in whatever order."""
HEAD = "(;FF[4]GM[1]CA[UTF-8]AP[CGoban:3]SZ[9]KM[6.50]RU[Japanese]PB[black {0}]PW[white {0}]BR[{1}d]WR[1d]RE[{2}]"
RESULTS = ("B+R", "W+Resign", "B+T", "W+3.5", "B+0.5", "W+Time")


def made_game(number: int, result: str = "") -> str:
    """A legal game of 20 to 40 moves at 9x9."""
    draw = random.Random(number)
    points = draw.sample(EVEN_POINTS, draw.randint(20, 40))
    moves = "".join(f";{'BW'[t % 2]}[{point}]{'BW'[t % 2]}L[{900 - t}.25]\n" for t, point in enumerate(points))
    return HEAD.format(number, number % 9 + 1, result or RESULTS[number % len(RESULTS)]) + "\n" + moves + ")\n"


def made_games(count: int, first: int = 0) -> Iterator[str]:
    """Different games."""
    return (made_game(number) for number in range(first, first + count))


def mirrored(text: str) -> str:
    """The game on the board mirrored left to right."""
    letters = "abcdefghi"
    for mark in (";B[", ";W["):
        head, *moves = text.split(mark)
        text = mark.join([head, *(letters[8 - letters.index(move[0])] + move[1:] for move in moves)])
    return text
