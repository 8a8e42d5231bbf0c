"""Adjudication, slow and obvious: the twin of zero/data/adjudication.py on the rules of tests/oracle."""

from typing import NamedTuple

import numpy as np

from tests.oracle.games import Game, oracle_of
from tests.oracle.go import GoGame, all_points, area, neighbours, regions
from zero.games.position import Rules
from zero.storage.manifests import GameRecord


class Verdict(NamedTuple):
    """The result of a game by the rules; if a move is a violation, only the violation."""

    violation: str  # empty if there is none
    move: int  # -1 if there is none
    outcome: int | None = None
    margin: float | None = None
    end: str | None = None
    owners: list[int] | None = None


def judge(rules: Rules, record: GameRecord) -> Verdict:
    """Replays a game and returns its result or its first violation."""
    game = oracle_of(rules)
    for move, action in enumerate(record.actions):
        legal = game.legal_actions()
        if game.ended:
            return Verdict("move after end", move)
        if int(action) not in legal:
            return Verdict("illegal move", move)
        if not set(np.flatnonzero(record.visit_counts[move])) <= legal:
            return Verdict("illegal target", move)
        game.play(int(action))
    moves = len(record.actions)
    if record.end == "resignation":
        if game.ended:
            return Verdict("resigned after end", moves)
        if moves < 2:
            return Verdict("early resignation", moves)
        result: tuple[int, float, str, list[int]] = (-game.to_play, 0.0, "resignation", [])
    elif not game.ended:
        return Verdict("unfinished", moves)
    else:
        result = (game.outcome(), game.margin(), game.end, owners_of(game))
    recorded = (record.outcome, record.margin, record.end, [int(owner) for owner in record.ownership])
    names = {2: "end", 0: "outcome", 1: "margin", 3: "ownership"}
    for place, name in names.items():
        if recorded[place] != result[place]:
            return Verdict(f"wrong {name}", moves, *result)
    return Verdict("", -1, *result)


def owners_of(game: Game) -> list[int]:
    """Owner of each point of Go, row by row: colour of the stone, or the only colour that its empty region touches."""
    if not isinstance(game, GoGame):
        return []
    board, points = game.board, all_points(game.rows, game.columns)
    owner = {point: 1 for point in board.black} | {point: -1 for point in board.white}
    for part in regions(frozenset(points) - board.black - board.white):
        around = frozenset().union(*(neighbours(point) for point in part))
        colour = int(bool(around & board.black)) - int(bool(around & board.white))
        owner |= dict.fromkeys(part, colour)
    assert sum(owner.values()) == area(game.rows, game.columns, board, 1) - area(game.rows, game.columns, board, -1)
    return [owner[point] for point in points]
