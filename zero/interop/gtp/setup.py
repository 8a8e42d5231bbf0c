"""SGF files as a controller loads them: handicap and set-up stones, and moves out of turn, which records never have.

Set-up stones become moves of their colour. A position in which every chain has a liberty can be put together in any
order without a capture, so the board is the same; positional superko counts the boards on the way as played.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zero.data.sgf import DEFAULT_SIZE, GAME_NUMBERS, LETTERS, OLD_PASS, Node, main_lines, unescape
from zero.errors import ZeroError
from zero.games.position import BLACK, GO, WHITE, Rules
from zero.interop.gtp.game import Game
from zero.interop.gtp.moves import Move
from zero.interop.gtp.protocol import CommandError

COLOUR_OF = {"B": BLACK, "W": WHITE, "AB": BLACK, "AW": WHITE}
SETUP = ("AB", "AW")
MAX_BYTES = 1 << 24
CHARSET = re.compile(rb"\bCA\s*\[\s*([\w.:-]+)\s*\]")


class Loaded(NamedTuple):
    """The main line of a file up to some move. Nothing in it has been checked against the rules."""

    size: int
    komi: float | None  # None where the file does not say
    stones: tuple[Move, ...]  # set up before the first move
    to_play: int | None  # after them, where the file says it
    moves: tuple[Move, ...]


def load_setup(text: str, game: int, before_move: int | None = None) -> Loaded:
    """The first game of a file.

    Args:
      text: of the file.
      game: GO or GOMOKU, which it has to be.
      before_move: stop before the move of this number, counted from 1; None: the whole line.

    Raises:
      ZeroError: it is broken or of another game, or stones are taken away or set up between moves.
    """
    nodes = next(main_lines(text), None)
    if nodes is None:
        raise ZeroError("no SGF: there is no '(;' in it, which begins a game")
    root = {name: unescape(values[0]).strip() for name, values in nodes[0] if values}
    if (number := root.get("GM", "1")) != str(GAME_NUMBERS[game]):
        raise ZeroError(f"SGF of another game: GM[{number}]; this one is GM[{GAME_NUMBERS[game]}]")
    if not (match := re.fullmatch(r"(\d{1,2})(?::\1)?", root.get("SZ", DEFAULT_SIZE), re.ASCII)):
        raise ZeroError(f"SZ[{root['SZ']}] is no square board")
    size = int(match[1])
    if not 1 <= size <= len(LETTERS):
        raise ZeroError(f"SZ[{size}] is too large; boards go up to {len(LETTERS)}")
    stones: list[Move] = []
    moves: list[Move] = []
    for name, point in _placements(nodes):
        if name in SETUP and moves:
            raise ZeroError(f"stones are set up after move {len(moves)} ({name}); only before the first is read")
        if name in SETUP:
            stones += [Move(COLOUR_OF[name], action) for action in _points(game, size, point)]
            continue
        if before_move is not None and len(moves) + 1 >= before_move:
            break
        moves.append(Move(COLOUR_OF[name], _point(game, size, point)))
    told = [values[-1].strip().upper() for node in nodes for name, values in node if name == "PL" and values]
    return Loaded(size, _komi(root), tuple(stones), COLOUR_OF.get(told[0][:1]) if told else None, tuple(moves))


def read_text(path: Path) -> str:
    """The text of a file in the encoding that it names (SGF's `CA`), else UTF-8; what is none is of no interest.

    Raises:
      ZeroError: it cannot be read.
    """
    try:
        if path.exists() and not path.is_file():
            raise ZeroError("it is no file")
        with path.open("rb") as file:
            read = file.read(MAX_BYTES)
    except OSError as error:
        raise ZeroError(error.strerror or str(error)) from None
    named = CHARSET.search(read)
    try:
        return read.decode(named[1].decode("ascii") if named else "utf-8", errors="replace")
    except (LookupError, ValueError):  # a name that nobody knows
        return read.decode(errors="replace")


def game_of(loaded: Loaded, rules: Rules) -> Game:
    """The game of a file; its komi where it tells one.

    Raises:
      CommandError: a move or a stone is against the rules.
    """
    game = Game(rules)
    if loaded.komi is not None:
        game.set_komi(loaded.komi)
    game.set_up(loaded.stones, loaded.to_play)
    for number, move in enumerate(loaded.moves, 1):
        try:
            game.play(move)
        except CommandError as error:
            raise CommandError(f"{error} (move {number})") from None
    return game


def _placements(nodes: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Stones that are set up or played, in the order of the file."""
    for node in nodes:
        for name, values in node:
            if name == "AE":
                raise ZeroError("stones are taken away (AE); only files that set stones up are read")
            if name in COLOUR_OF:
                yield from ((name, value.strip()) for value in values)


def _points(game: int, size: int, text: str) -> list[int]:
    """The points of a value of a set-up property: one, or a rectangle such as `aa:cc`."""
    first, colon, last = text.partition(":")
    corners = [divmod(_point(game, size, corner), size) for corner in ((first, last) if colon else (first, first))]
    (top, left), (bottom, right) = corners
    if top == size or bottom == size:
        raise ZeroError("a pass is set up as a stone")
    return [row * size + column for row in range(top, bottom + 1) for column in range(left, right + 1)]


def _point(game: int, size: int, text: str) -> int:
    if game == GO and text in ("", OLD_PASS):
        return size * size
    column, row = (LETTERS.find(letter) for letter in text) if len(text) == 2 else (-1, -1)
    if not (0 <= column < size and 0 <= row < size):
        raise ZeroError(f"{text!r} is no point of a board of {size}x{size}")
    return row * size + column


def _komi(root: dict[str, str]) -> float | None:
    """The komi of a file; one that is no number counts as not told."""
    text = root.get("KM", "")
    return float(text) if re.fullmatch(r"[+-]?\d{1,4}(\.\d*)?", text, re.ASCII) else None
