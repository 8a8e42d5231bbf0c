"""Games as SGF (FF[4], https://www.red-bean.com/sgf/): writes records, and reads the main line of a file.

Written files hold no date and no host, so that equal records give equal bytes. The reader rejects set-up stones and
handicap, and ignores variations and comments on moves. GNU Go loads the games of Go.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zero import __version__
from zero.errors import ZeroError
from zero.games.position import GO, GOMOKU, Rules
from zero.games.rules import TRAITS
from zero.storage.files import write_atomic
from zero.storage.manifests import RESIGNATION, GameRecord

LETTERS = "abcdefghijklmnopqrs"
"""Names of columns from the left and rows from the top; `ee` is the centre of a 9x9 board."""
OLD_PASS = "tt"
"""A pass in FF[3] on boards up to 19x19; FF[4] leaves the value empty."""
DEFAULT_SIZE = "19"
"""Board size of a file without SZ, as the standard defines it."""
MOVES_PER_LINE = 10
DIGEST_DIGITS = 12
"""Digits of a player's SHA-256 after its name; the comment of the game has all 64."""
OUT_OF_TIME, FORFEIT = "time", "forfeit"
"""How a game ended that a player lost on time, or by a failure or an illegal move."""
WITHOUT_SCORE = {RESIGNATION: "R", FORFEIT: "F", OUT_OF_TIME: "T"}
"""Suffixes of results without a margin."""
SETUP_PROPERTIES = ("AB", "AW", "AE", "PL")

VALUE = r"\[((?:[^\\\]]++|\\.)*+)\]"
PROPERTY = re.compile(rf"\s*+(?:(;?)\s*+([A-Za-z][A-Za-z0-9]*+)\s*+({VALUE}(?:\s*+{VALUE})*+)|([();]))", re.DOTALL)
"""A property with all its values and the mark of a node before it, or one mark: few matches make the reader fast."""
VALUES = re.compile(VALUE, re.DOTALL)
NAME = re.compile(r"\s*+;?\s*+[A-Za-z][A-Za-z0-9]*+\s*+")
SPACE = re.compile(r"\s*")

Node = list[tuple[str, list[str]]]
"""The properties of one node, each with its values."""


class SgfHead(NamedTuple):
    """Properties of a game other than its rules, moves and result."""

    event: str
    game_name: str
    black_name: str
    white_name: str
    comment: str


class SgfGame(NamedTuple):
    """The main line of one game in a file, not checked against the rules."""

    game: int  # GO, GOMOKU, ...
    rows: int
    columns: int
    komi: float | None  # None if the file has none
    rules_name: str
    event: str
    black_name: str
    white_name: str
    result: str  # "B+3.5", "W+R", "0", ...; empty if the file has none
    comment: str  # of the game
    actions: tuple[int, ...]  # Black's first, then in turn


def game_to_sgf(rules: Rules, record: GameRecord, *, event: str, black_name: str, white_name: str) -> str:
    """A record as one SGF game tree; players have their name and the start of their digest, `GC` the full digests."""
    head = SgfHead(
        event=event,
        game_name=f"game {record.game}",
        black_name=f"{black_name} {record.black[:DIGEST_DIGITS]}".strip(),
        white_name=f"{white_name} {record.white[:DIGEST_DIGITS]}".strip(),
        comment=f"Black sha256:{record.black}, White sha256:{record.white}, end: {record.end}",
    )
    actions = [int(action) for action in record.actions]
    return moves_to_sgf(rules, head, actions, record.outcome, record.margin, record.end)


def moves_to_sgf(
    rules: Rules, head: SgfHead, actions: Sequence[int], outcome: int, margin: float, end: str | None
) -> str:
    """Moves, Black's first, as one SGF game tree; for an unfinished game `end` is None, and the result is `?`."""
    root = {
        "FF": "4",
        "GM": str(TRAITS[rules.game].sgf_number),
        "CA": "UTF-8",
        "AP": f"zero:{__version__}",
        "SZ": str(rules.rows) if rules.rows == rules.columns else f"{rules.columns}:{rules.rows}",
        "KM": f"{rules.komi:g}",
        "RU": escape(rules_name(rules)),
        "EV": escape(head.event),
        "GN": escape(head.game_name),
        "PB": escape(head.black_name),
        "PW": escape(head.white_name),
        "RE": "?" if end is None else result(rules, outcome, margin, end),
        "GC": escape(head.comment),
    }
    if rules.game != GO:
        del root["KM"]
    colours = ("B", "W")
    moves = [f";{colours[t % 2]}[{_point_of(rules, action)}]" for t, action in enumerate(actions)]
    rows = ["".join(moves[i : i + MOVES_PER_LINE]) for i in range(0, len(moves), MOVES_PER_LINE)]
    return "\n".join(["(;" + "".join(f"{name}[{value}]" for name, value in root.items()), *rows]) + ")\n"


def write_collection(path: Path, games: Iterable[str]) -> None:
    """Writes many games, each from `game_to_sgf`, as one file, atomically.

    Raises:
      StorageError: it cannot be written.
    """
    write_atomic(path, "\n".join(games).encode())


def read_sgf(text: str) -> SgfGame:
    """The game of an SGF file with exactly one game.

    Raises:
      ZeroError: the file is not SGF, has another number of games, or needs more than moves.
    """
    games = read_collection(text)
    if len(games) != 1:
        raise ZeroError(f"the SGF file holds {len(games)} games, expected one; give a file with one game")
    return games[0]


def read_collection(text: str) -> list[SgfGame]:
    """All games of an SGF file.

    Raises:
      ZeroError: as `read_sgf`.
    """
    games = [_game(nodes) for nodes in main_lines(text)]
    if not games:
        raise ZeroError("not an SGF file: it has no '(;', which starts a game")
    return games


def main_lines(text: str) -> Iterator[list[Node]]:
    """The nodes of each game's main line, the first of several variations; text outside of games is ignored.

    Raises:
      ZeroError: a game has a syntax error; the message has the line.
    """
    # One kind of line break, so that an escaped one is always the two characters that `unescape` expects.
    text, end = text.replace("\r\n", "\n").replace("\r", "\n"), 0
    while start := re.compile(r"\(\s*;").search(text, end):
        end, nodes = _main_line(text, start.start())
        yield nodes


def rules_name(rules: Rules) -> str:
    """Value of the property RU, which names every rule that `Rules` leaves open."""
    if rules.game == GO:
        return "Tromp-Taylor" if rules.allow_suicide else "Tromp-Taylor without suicide"
    if rules.game == GOMOKU:
        return f"{rules.in_a_row} or more in a row"
    return TRAITS[rules.game].title


def result(rules: Rules, outcome: int, margin: float, end: str) -> str:
    """Value of the property RE: the winner, and the margin, R (resignation), T (time) or F (forfeit); 0 for a draw."""
    if outcome == 0:
        return "0"
    winner = "B+" if outcome > 0 else "W+"
    if end in WITHOUT_SCORE:
        return winner + WITHOUT_SCORE[end]
    return f"{winner}{abs(margin):g}" if TRAITS[rules.game].has_score else winner


def escape(text: str) -> str:
    """`text` as the value of a property, on one line."""
    return re.sub(r"([\]\\])", r"\\\1", re.sub(r"\s", " ", text))


def unescape(value: str) -> str:
    """The text of a value: a backslash before a line break joins the lines, elsewhere it quotes one character."""
    joined = re.sub(r"\\(\n|.)", lambda match: "" if match[1] == "\n" else match[1], value)
    return re.sub(r"\s", " ", joined)


def point_to_action(game: int, rows: int, columns: int, point: str) -> int | None:
    """The action of a move's value such as `"ee"`; None if it is not a point of the board."""
    if TRAITS[game].has_pass and point in ("", OLD_PASS):
        return rows * columns
    column, row = (LETTERS.find(letter) for letter in point) if len(point) == 2 else (-1, -1)
    return row * columns + column if 0 <= column < columns and 0 <= row < rows else None


def _main_line(text: str, start: int) -> tuple[int, list[Node]]:
    """End of the game tree at `start`, and the nodes of its main line."""
    nodes: list[Node] = []
    node: Node | None = None
    num_children: list[int] = []  # of each tree that is open
    on_main_line = [True]
    position = start
    while True:
        token = PROPERTY.match(text, position)
        if token is None:
            raise _token_error(text, position)
        node_mark, name, values, single, _, mark = token.groups()
        if mark == "(":
            if num_children and node is None and not num_children[-1]:
                raise _syntax_error(text, token.start(6), "a variation without a node")
            # The main line continues in the first child of each tree. The others are parsed only to find their ends.
            on_main_line.append(on_main_line[-1] and (not num_children or num_children[-1] == 0))
            if num_children:
                num_children[-1] += 1
            num_children.append(0)
            node = None
        elif mark == ")":
            if node is None and num_children[-1] == 0:
                raise _syntax_error(text, token.start(6), "a variation without a node")
            num_children.pop()
            on_main_line.pop()
            node = None
        if node_mark or mark == ";":
            if num_children[-1]:
                raise _syntax_error(text, token.start(1) if node_mark else token.start(6), "a move after a variation")
            node = []
            if on_main_line[-1]:
                nodes.append(node)
        if name is not None:
            if node is None:
                raise _syntax_error(text, token.start(2), "a property outside of a node")
            # Before FF[4], lower-case letters in names were allowed and ignored: `Black` is `B`. Digits are in no
            # standard, but LizzieYzy writes `LZ2`.
            if not name.isupper():
                name = "".join(letter for letter in name if not letter.islower())
            node.append((name, [single] if len(single) == len(values) - 2 else VALUES.findall(values)))
        position = token.end()
        if not num_children:
            return position, nodes


def _token_error(text: str, position: int) -> ZeroError:
    """The error of text that is neither a mark nor a property with its values."""
    if name := NAME.match(text, position):
        position = name.end()
        if position < len(text) and text[position] in ";()":
            return _syntax_error(text, position, "a property without a value")
    else:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]
        if VALUES.match(text, position):
            return _syntax_error(text, position, "a value without a property")
    return _syntax_error(text, position, "the game is incomplete" if position == len(text) else "unexpected text")


def _syntax_error(text: str, position: int, what: str) -> ZeroError:
    line = text.count("\n", 0, position) + 1
    found = text[position : position + 10].split("\n")[0]
    return ZeroError(f"SGF syntax error in line {line}: {what}" + (f" at {found!r}" if found else ""))


def _game(nodes: list[Node]) -> SgfGame:
    """A game from the nodes of its main line."""
    root = nodes[0]
    number = _text(root, "GM", "1").strip()
    game = next((game for game, traits in TRAITS.items() if str(traits.sgf_number) == number), None)
    if game is None:
        known = ", ".join(f"GM[{traits.sgf_number}] ({traits.title})" for traits in TRAITS.values())
        raise ZeroError(f"SGF of an unsupported game: GM[{number}]; supported are {known}")
    size = re.fullmatch(r"\s*(\d{1,2})\s*(?::\s*(\d{1,2})\s*)?", _text(root, "SZ", DEFAULT_SIZE), re.ASCII)
    columns, rows = (int(size[1]), int(size[2] or size[1])) if size else (0, 0)
    if not (1 <= columns <= len(LETTERS) and 1 <= rows <= len(LETTERS)):
        raise ZeroError(
            f"SZ[{_text(root, 'SZ')}] is not a board size; use SZ[9] or SZ[columns:rows], at most {len(LETTERS)}"
        )
    return SgfGame(
        game=game,
        rows=rows,
        columns=columns,
        komi=_komi(_text(root, "KM")),
        rules_name=_text(root, "RU"),
        event=_text(root, "EV"),
        black_name=_text(root, "PB"),
        white_name=_text(root, "PW"),
        result=_text(root, "RE"),
        comment=_text(root, "GC"),
        actions=tuple(_actions(game, rows, columns, nodes)),
    )


def is_next_player(name: str, values: list[str], num_moves: int) -> bool:
    """True for a PL that names the player who is to move anyway after this number of moves."""
    players = (("B", "BLACK", "1"), ("W", "WHITE", "2"))
    return name == "PL" and values[0].strip().upper() in players[num_moves % 2]


def _actions(game: int, rows: int, columns: int, nodes: list[Node]) -> Iterator[int]:
    number = 0
    for node in nodes:
        for name, values in node:
            if name in SETUP_PROPERTIES and not is_next_player(name, values, number):
                raise ZeroError(
                    f"SGF with set-up stones or handicap ({name}); only games from an empty board are supported"
                )
            if name not in ("B", "W"):
                continue
            number += 1
            if name != "BW"[(number - 1) % 2]:
                raise ZeroError(
                    f"SGF move {number} is {name}'s, out of turn; Black moves first, then the players alternate"
                )
            if len(values) != 1:
                raise ZeroError(f"SGF move {number} has {len(values)} points, expected one")
            point = values[0].strip()
            if (action := point_to_action(game, rows, columns, point)) is None:
                raise ZeroError(
                    f"SGF move {number}: {point!r} is not a point of a board of {rows} rows and {columns} columns"
                )
            yield action


def _point_of(rules: Rules, action: int) -> str:
    """`"ee"` for the centre of a 9x9 board; empty for a pass."""
    if action == rules.num_points:
        return ""
    row, column = divmod(action, rules.columns)
    return LETTERS[column] + LETTERS[row]


def _text(node: Node, name: str, default: str = "") -> str:
    """Text of the property `name`; `default` if it is missing or blank."""
    text = next((unescape(values[0]) for found, values in node if found == name and values), "")
    return text if text.strip() else default


def parse_komi(text: str) -> float | None:
    """The komi in KM; None if it is not a number."""
    match = re.fullmatch(r"[+-]?(\d{1,4}([.,]\d*)?|[.,]\d+)", text.strip(), re.ASCII)
    return float(match[0].replace(",", ".")) if match else None


def usable_komi(komi: float | None, num_points: int) -> float | None:
    """The komi of a file to go on with; None if it has none, or more than the points of the board (as in `KM[375]`)."""
    return komi if komi is not None and abs(komi) <= num_points else None


def _komi(text: str) -> float | None:
    if not text:
        return None
    if (komi := parse_komi(text)) is None:
        raise ZeroError(f"KM[{text}] is not a komi; use a number such as KM[7.5]")
    return komi
