"""Positions to begin with: handicap stones, and SGF files with set-up stones and moves out of turn.

Handicap points are those of the protocol's table (section 4.1.1) in GNU Go's order. Set-up stones of a file become
moves of their colour. If every chain has a liberty, stones can be placed in any order without a capture, so the board
is the same. Positional superko then counts the boards on the way as played.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zero.data.sgf import DEFAULT_SIZE, Node, main_lines, parse_komi, point_to_action, unescape, usable_komi
from zero.errors import ZeroError
from zero.games.position import BLACK, WHITE, Rules
from zero.games.rules import TRAITS
from zero.interop.gtp_game import MAX_SIZE, MIN_SIZE, Game, Move
from zero.interop.gtp_protocol import CommandError

COLOUR_OF = {"B": BLACK, "W": WHITE, "AB": BLACK, "AW": WHITE}
SETUP = ("AB", "AW")
MIN_HANDICAP, MAX_HANDICAP = 2, 9
MIN_HANDICAP_SIZE = 7
"""Smaller boards have no handicap points."""
FOURTH_LINE_SIZE = 12
"""From this size on, handicap stones are placed on the fourth line; on smaller boards, on the third."""
MIN_SIZE_FOR_SIDES = 9
"""From this size on, odd boards have points for more than four stones."""


def handicap_points(rules: Rules, num_stones: int) -> tuple[int, ...] | None:
    """Points of a fixed handicap; None if the board has no such handicap."""
    size = rules.rows
    if rules.columns != size or size < MIN_HANDICAP_SIZE:
        return None
    has_sides = size % 2 == 1 and size >= MIN_SIZE_FOR_SIDES
    if not MIN_HANDICAP <= num_stones <= (MAX_HANDICAP if has_sides else 4):
        return None
    low = 3 if size >= FOURTH_LINE_SIZE else 2
    high, middle = size - 1 - low, size // 2
    places = [(low, low), (high, high), (low, high), (high, low)][: min(num_stones, 4)]  # column and row from A1
    if num_stones >= 6:
        places += [(low, middle), (high, middle)]
    if num_stones >= 8:
        places += [(middle, low), (middle, high)]
    if num_stones in (5, 7, 9):
        places.append((middle, middle))
    return tuple((size - 1 - row) * size + column for column, row in places)  # actions count rows from the top


def free_handicap_points(rules: Rules, num_stones: int) -> tuple[int, ...] | None:
    """Points of the largest fixed handicap with at most this number of stones; None if there is none."""
    for number in range(min(num_stones, MAX_HANDICAP), MIN_HANDICAP - 1, -1):
        if points := handicap_points(rules, number):
            return points
    return None


class Loaded(NamedTuple):
    """The main line of a file up to a move, not yet checked against the rules."""

    size: int
    komi: float | None  # None if the file does not contain it
    stones: tuple[Move, ...]  # set up before the first move
    to_play: int | None  # after them; None if the file does not contain it
    moves: tuple[Move, ...]


def load_setup(text: str, game: int, before_move: int | None = None) -> Loaded:
    """Reads the first game of an SGF file.

    Args:
      text: content of the file.
      game: the expected game, such as GO.
      before_move: stops before the move of this number, counted from 1; None reads all moves.

    Raises:
      ZeroError: the file is corrupt or contains another game, or stones are removed, or set up after the first move.
    """
    nodes = next(main_lines(text), None)
    if nodes is None:
        raise ZeroError("not an SGF file: it lacks '(;', which begins a game")
    root = {name: unescape(values[0]).strip() for name, values in nodes[0] if values}
    if (number := root.get("GM") or "1") != str(expected := TRAITS[game].sgf_number):
        raise ZeroError(f"GM[{number}] is another game; this game is GM[{expected}]")
    if not (match := re.fullmatch(r"(\d{1,2})(?::\1)?", root.get("SZ") or DEFAULT_SIZE, re.ASCII)):
        raise ZeroError(f"SZ[{root['SZ']}] is not a square board")
    size = int(match[1])
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise ZeroError(f"SZ[{size}] is not supported; board sizes are {MIN_SIZE} to {MAX_SIZE}")
    stones: list[Move] = []
    moves: list[Move] = []
    for name, point in _placements(nodes):
        if name in SETUP and moves:
            raise ZeroError(
                f"stones are set up after move {len(moves)} ({name}); only those before move 1 are supported"
            )
        if name in SETUP:
            stones += [Move(COLOUR_OF[name], action) for action in _points(game, size, point)]
            continue
        if before_move is not None and len(moves) + 1 >= before_move:
            break
        moves.append(Move(COLOUR_OF[name], _point(game, size, point)))
    turns = [values[-1].strip().upper() for node in nodes for name, values in node if name == "PL" and values]
    komi = usable_komi(parse_komi(root.get("KM", "")), size * size)
    return Loaded(size, komi, tuple(stones), COLOUR_OF.get(turns[0][:1]) if turns else None, tuple(moves))


def game_of(loaded: Loaded, rules: Rules) -> Game:
    """The game of a file. `rules` supply the komi if the file lacks it.

    Raises:
      CommandError: a move or a stone is illegal.
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
    """Properties and points of stones that are set up or played, in the order of the file."""
    for node in nodes:
        for name, values in node:
            if name == "AE":
                raise ZeroError("stones are removed (AE), which is not supported")
            if name in COLOUR_OF:
                yield from ((name, value.strip()) for value in values)


def _points(game: int, size: int, text: str) -> list[int]:
    """Points of a set-up property's value: a single point, or a rectangle such as `aa:cc`."""
    first, colon, last = text.partition(":")
    corners = [divmod(_point(game, size, corner), size) for corner in ((first, last) if colon else (first, first))]
    (top, left), (bottom, right) = corners
    if top == size or bottom == size:
        raise ZeroError("a set-up stone has no point")
    return [row * size + column for row in range(top, bottom + 1) for column in range(left, right + 1)]


def _point(game: int, size: int, text: str) -> int:
    if (action := point_to_action(game, size, size, text)) is None:
        raise ZeroError(f"{text!r} is not a point of a {size}x{size} board")
    return action
