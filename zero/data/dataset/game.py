"""Reads one game of SGF for a dataset: its main line, checked against the rules, and its result as the file states it.

A game is rejected rather than changed: the record starts from an empty board with Black to move, so a game with
handicap or set-up stones has no record.
"""

import re
from typing import NamedTuple

import numpy as np

from zero.data.dataset.canonical import canonical_digest
from zero.data.dataset.manifest import ImportedGame, ImportOptions, RawGame, Rejected
from zero.data.dataset.result import GameResult, parse_rating, parse_result
from zero.data.dataset.sources import BROKEN
from zero.data.dataset.texts import decodings, has_another_header
from zero.data.sgf import (
    DEFAULT_SIZE,
    LETTERS,
    OLD_PASS,
    SETUP_PROPERTIES,
    Node,
    is_next_player,
    main_lines,
    parse_komi,
    point_to_action,
    unescape,
)
from zero.errors import ZeroError
from zero.games.legality import NO_MOVE, first_illegal_move, why_illegal
from zero.games.position import ENDED, GO, Rules, new_history, new_position
from zero.games.rules import TRAITS

OTHER_GAME, OTHER_SIZE = "another game", "another board size"
HANDICAP, SETUP, OUT_OF_TURN, ILLEGAL = "handicap", "set-up stones", "out of turn", "illegal move"
AFTER_END, NO_RESULT, OTHER_KOMI, RATING, TOO_SHORT = (
    "after the end",
    "no result",
    "another komi",
    "rating",
    "too short",
)
"""Reasons of rejected games."""
MAX_TEXT = 80
"""Characters of a header's value that are kept, or quoted in a reason."""
ROOT_PROPERTIES = ("GM", "FF", "SZ")
"""Properties of the first node only. After it, they show that two games have run into one."""
UNIQUE_PROPERTIES = frozenset((*ROOT_PROPERTIES, "KM", "HA", "RE"))
"""Properties that decide what a game is. Two different values show a damaged file."""


class _RejectedError(Exception):
    """A game that is not imported: reason and detail."""


class Header(NamedTuple):
    """The first node: the first value of each property, as text."""

    values: dict[str, str]

    def text(self, name: str) -> str:
        """The value of a property on one line, shortened; empty if it is missing."""
        return self.values.get(name, "").strip()[:MAX_TEXT]


class GameReader:
    """Reads games by the rules of one game, with one set of options."""

    def __init__(self, rules: Rules, options: ImportOptions) -> None:
        self._rules, self._options = rules, options
        self._position, self._history = new_position(rules), new_history(rules)
        self._mask = np.zeros(rules.num_actions, np.bool_)
        self._min_rating = parse_rating(options.min_rating) if options.min_rating is not None else None
        # A dictionary of all points: a lookup is faster than parsing each of millions of moves.
        names = ["", OLD_PASS, *(column + row for column in LETTERS for row in LETTERS)]
        actions = {name: point_to_action(rules.game, rules.rows, rules.columns, name) for name in names}
        self._points = {name: action for name, action in actions.items() if action is not None}

    def read(self, raw: RawGame) -> ImportedGame | Rejected:
        """The game, or why it is rejected."""
        try:
            return self._read(raw)
        except _RejectedError as error:
            reason, detail = error.args
            if reason == BROKEN and has_another_header(raw.data):
                detail += "; another game starts inside it and is lost too"
            return Rejected(file=raw.file, game=raw.game, reason=reason, detail=detail)

    def _read(self, raw: RawGame) -> ImportedGame:
        nodes = _main_line(raw.data)
        header = _header(nodes)
        self._check_board(header)
        actions = self._actions(nodes)
        result = _result(header)
        komi = self._komi(header)
        ratings = header.text("BR"), header.text("WR")
        self._check_ratings(ratings)
        moves = self._checked_moves(actions)
        self._check_length(len(moves))  # again: passes after the end were dropped
        return ImportedGame(
            digest=canonical_digest(self._rules, moves),
            number=raw.number,
            file=raw.file,
            game=raw.game,
            actions=moves.tolist(),
            outcome=result.outcome,
            margin=result.margin,
            end=result.end,
            black=header.text("PB"),
            white=header.text("PW"),
            black_rating=ratings[0],
            white_rating=ratings[1],
            result=header.text("RE"),
            komi=komi,
            rules=header.text("RU"),
            date=header.text("DT"),
            place=header.text("PC"),
        )

    def _check_board(self, header: Header) -> None:
        """Rejects other games, other boards and handicap."""
        number, expected = header.values.get("GM", "1").strip() or "1", TRAITS[self._rules.game].sgf_number
        if number != str(expected):
            raise _RejectedError(OTHER_GAME, f"GM[{number[:MAX_TEXT]}] is another game, expected GM[{expected}]")
        size = header.values.get("SZ", DEFAULT_SIZE).strip()
        match = re.fullmatch(r"(\d{1,3})(?:\s*:\s*(\d{1,3}))?", size, re.ASCII)
        columns, rows = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if (rows, columns) != (self._rules.rows, self._rules.columns):
            raise _RejectedError(OTHER_SIZE, f"SZ[{size[:MAX_TEXT]}], expected SZ[{self._rules.columns}]")
        handicap = header.text("HA")
        if self._rules.game == GO and handicap not in ("", "0", "1"):
            raise _RejectedError(HANDICAP, f"HA[{handicap}]: the record starts from an empty board")

    def _actions(self, nodes: list[Node]) -> list[int]:
        """The moves of the main line, Black's first, not checked against the rules."""
        actions: list[int] = []
        for node in nodes:
            for name, values in node:
                if name in ("B", "W"):
                    actions.append(self._action(len(actions), name, values))
                elif name in SETUP_PROPERTIES:
                    self._check_setup(name, values, len(actions))
        self._check_length(len(actions))
        return actions

    def _check_length(self, num_moves: int) -> None:
        if num_moves < self._options.min_moves:
            raise _RejectedError(TOO_SHORT, f"{num_moves} moves, at least {self._options.min_moves} are required")

    def _action(self, move: int, name: str, values: list[str]) -> int:
        if name != "BW"[move % 2]:
            raise _RejectedError(OUT_OF_TURN, f"move {move + 1} is {name}'s; Black moves first, then they alternate")
        if len(values) != 1:
            raise _RejectedError(BROKEN, f"move {move + 1} has {len(values)} points")
        if (action := self._points.get(values[0])) is not None:
            return action
        point = values[0].strip()
        if (action := self._points.get(point)) is None:
            raise _RejectedError(ILLEGAL, f"move {move + 1}: {point[:MAX_TEXT]!r} is not a point of the board")
        return action

    def _check_setup(self, name: str, values: list[str], num_moves: int) -> None:
        """Rejects stones that were not played. PL that names the player who is to move anyway is harmless."""
        if is_next_player(name, values, num_moves):
            return
        what = f"{name}[{values[0][:MAX_TEXT]}]" + (" and more" if len(values) > 1 else "")
        raise _RejectedError(SETUP, f"{what} after move {num_moves}: the record starts from an empty board")

    def _komi(self, header: Header) -> float | None:
        """The komi; None if the file has none and any is accepted."""
        accepted, text = self._options.komi, header.text("KM")
        komi = parse_komi(text)
        if self._rules.game == GO and accepted is not None and komi not in accepted:
            expected = ", ".join(f"{value:g}" for value in accepted)
            found = "there is no KM" if "KM" not in header.values else f"KM[{text}]"
            raise _RejectedError(OTHER_KOMI, f"{found}, accepted are {expected}")
        return komi

    def _check_ratings(self, texts: tuple[str, str]) -> None:
        if self._min_rating is None:
            return
        for name, text in zip(("BR", "WR"), texts, strict=True):
            rating = parse_rating(text)
            if rating is None:
                raise _RejectedError(RATING, f"{name}[{text}] is not a rating" if text else f"there is no {name}")
            if rating.is_rank != self._min_rating.is_rank:
                raise _RejectedError(RATING, f"{name}[{text}] cannot be compared with {self._options.min_rating}")
            if rating.value < self._min_rating.value:
                raise _RejectedError(RATING, f"{name}[{text}] is below {self._options.min_rating}")

    def _checked_moves(self, actions: list[int]) -> np.ndarray:
        """The moves up to the end of the game, [T] int16; passes after it are dropped."""
        rules = self._rules
        moves = np.array(actions, np.int16)
        bad = first_illegal_move(rules, self._position, self._history, self._mask, moves)
        if bad == NO_MOVE:
            return moves
        if not self._position.state[ENDED]:
            text = why_illegal(rules, self._position, self._history, int(moves[bad])) or ""
            raise _RejectedError(ILLEGAL, f"move {bad + 1}: {text.removeprefix('illegal move ').split(';')[0]}")
        if rules.game == GO and (moves[bad:] == rules.num_points).all():
            return moves[:bad]  # some servers record three or four passes
        raise _RejectedError(AFTER_END, f"move {bad + 1} of {len(moves)} follows the end of the game")


def _main_line(data: bytes) -> list[Node]:
    """The nodes of the main line, in the first character set in which the game can be read."""
    first: ZeroError | None = None
    for text in decodings(data):
        try:
            return next(main_lines(text))
        except ZeroError as error:
            first = first or error
    raise _RejectedError(BROKEN, str(first))


def _header(nodes: list[Node]) -> Header:
    """The properties of the first node; komi, handicap and result may also be in a later one."""
    values: dict[str, str] = {}
    for index, node in enumerate(nodes):
        for name, texts in node:
            text = unescape(texts[0])
            if name in UNIQUE_PROPERTIES and not text.strip():
                continue  # as if it were missing
            if index and name not in UNIQUE_PROPERTIES:
                continue
            if index and name in ROOT_PROPERTIES:
                raise _RejectedError(BROKEN, f"{name}[{text[:MAX_TEXT]}] appears in node {index + 1}, expected node 1")
            if name in UNIQUE_PROPERTIES and values.get(name, text) != text:
                raise _RejectedError(BROKEN, f"{name}[{values[name][:MAX_TEXT]}] and {name}[{text[:MAX_TEXT]}]")
            values.setdefault(name, text)
    return Header(values)


def _result(header: Header) -> GameResult:
    text = header.text("RE")
    if (result := parse_result(text)) is None:
        raise _RejectedError(NO_RESULT, f"RE[{text}] names no winner" if "RE" in header.values else "there is no RE")
    return result
