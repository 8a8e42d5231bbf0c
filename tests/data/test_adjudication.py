"""Adjudication: every kind of false record is found at its move, and nothing else, compared with a slow twin."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.made_games import made_records
from tests.oracle.adjudication import judge
from zero.data.adjudication import Adjudicated, adjudicate, violation_text
from zero.data.records import GameColumns, read_records, write_records
from zero.games.position import Rules
from zero.games.rules import go_rules, gomoku_rules, othello_rules
from zero.play.slots import END_NAMES
from zero.storage.manifests import GameRecord

GO5 = go_rules(5, 5, komi=0.5)
RULES = {
    "go 5x5": GO5,
    "go 3x3 with suicide and draws": go_rules(3, 3, komi=1.0, allow_suicide=True),
    "go 2x3": go_rules(2, 3),
    "gomoku 4x4": gomoku_rules(4, 4, 3),
    "othello 4x4": othello_rules(4, 4),
}
VIOLATIONS = {
    "": 0,
    "illegal move": 1,
    "illegal target": 2,
    "move after end": 3,
    "unfinished": 4,
    "resigned after end": 5,
    "early resignation": 6,
    "wrong end": 7,
    "wrong outcome": 8,
    "wrong margin": 9,
    "wrong ownership": 10,
}


def columns_of(records: list[GameRecord]) -> GameColumns:
    return read_records(write_records(records), "games")


def adjudicated(rules: Rules, records: list[GameRecord]) -> Adjudicated:
    return adjudicate(rules, columns_of(records))


def with_rows(record: GameRecord, rows: np.ndarray) -> GameRecord:
    """A game with the given moves of another game."""
    return record._replace(
        actions=record.actions[rows],
        visit_counts=record.visit_counts[rows],
        root_values=record.root_values[rows],
        best_values=record.best_values[rows],
    )


def shortened(record: GameRecord, moves: int) -> GameRecord:
    """A game that stops after some moves."""
    return with_rows(record, np.arange(moves))


def resigned(record: GameRecord, moves: int) -> GameRecord:
    outcome = -1 if moves % 2 == 0 else 1
    cut = shortened(record, moves)
    return cut._replace(end="resignation", outcome=outcome, margin=0.0, ownership=np.zeros(0, np.int8))


def lengthened(record: GameRecord) -> GameRecord:
    """A game with its last move repeated."""
    return with_rows(record, np.append(np.arange(len(record.actions)), -1))


def tampered(record: GameRecord, draws: np.random.Generator, num_actions: int) -> GameRecord:
    """A game with one random change; some changes keep it correct."""
    moves = len(record.actions)
    kind, move = int(draws.integers(10)), int(draws.integers(moves))
    if kind == 0:
        actions = record.actions.copy()
        actions[move] = draws.integers(num_actions)
        return record._replace(actions=actions)
    if kind == 1:
        counts = record.visit_counts.copy()
        counts[move, draws.integers(num_actions)] += 1
        return record._replace(visit_counts=counts)
    if kind == 2:
        return shortened(record, max(1, move))
    if kind == 3:
        return lengthened(record)
    if kind == 4:
        return resigned(record, max(1, move))
    if kind == 5:
        return resigned(record, moves)
    if kind == 6:
        return record._replace(outcome=int(draws.integers(-1, 2)))
    if kind == 7:
        return record._replace(margin=record.margin + float(draws.integers(-1, 2)))
    if kind == 8:
        return record._replace(end=str(draws.choice([*END_NAMES, "made"])))
    owners = record.ownership.copy()
    if len(owners):
        owners[draws.integers(len(owners))] = draws.integers(-1, 2)
    return record._replace(ownership=owners)


@pytest.mark.parametrize("name", RULES)
def test_it_agrees_with_the_slow_twin_on_true_and_false_games(name):
    rules, draws = RULES[name], np.random.default_rng(5)
    true = made_records(rules, 16, seed=1)
    false = [tampered(record, draws, rules.num_actions) for record in true for _ in range(10)]
    games = true + false
    found, seen = adjudicated(rules, games), set()
    for index, record in enumerate(games):
        verdict = judge(rules, record)
        seen.add(verdict.violation)
        assert (found.violation[index], found.violation_move[index]) == (VIOLATIONS[verdict.violation], verdict.move), (
            verdict
        )
        if verdict.end is not None:
            assert (found.outcome[index], found.margin[index]) == (verdict.outcome, verdict.margin)
            assert END_NAMES[found.end[index]] == verdict.end
            assert found.ownership[index].tolist() == (verdict.owners or [0] * rules.num_points)
    assert len(seen) >= 9  # a violation of nearly every kind came up
    assert not found.violation[: len(true)].any()


@pytest.fixture(scope="module")
def game() -> GameRecord:
    return made_records(GO5, 1, seed=3)[0]


def with_action(record: GameRecord, move: int, action: int) -> GameRecord:
    actions = record.actions.copy()
    actions[move] = action
    return record._replace(actions=actions)


def with_target(record: GameRecord, move: int, action: int) -> GameRecord:
    counts = record.visit_counts.copy()
    counts[move, action] = 3
    return record._replace(visit_counts=counts)


CASES: dict[str, tuple[Callable[[GameRecord], GameRecord], str]] = {
    "a move on a stone": (lambda g: with_action(g, 3, int(g.actions[2])), "an illegal move: "),
    "a target on a stone": (lambda g: with_target(g, 3, int(g.actions[2])), "a policy target on an illegal action"),
    "a move after the end": (lengthened, "a move after the end: "),
    "an end left out": (lambda g: shortened(g, len(g.actions) - 1), "the game is not over and was not resigned"),
    "a resignation after the end": (lambda g: resigned(g, len(g.actions)), "resigned after the end of the game"),
    "a resignation at the second move": (lambda g: resigned(g, 1), "resigned before move 2"),
    "a resignation won by the one who gave up": (
        lambda g: resigned(g, 4)._replace(outcome=1),
        "recorded +1, by the rules -1",
    ),
    "another end": (lambda g: g._replace(end="length"), "recorded 'length', by the rules 'passes'"),
    "another winner": (lambda g: g._replace(outcome=-g.outcome), "the recorded outcome is wrong"),
    "another margin": (lambda g: g._replace(margin=g.margin + 1), "the recorded margin is wrong"),
    "an owner changed": (lambda g: g._replace(ownership=-g.ownership), "the recorded ownership is wrong"),
    "owners left out": (lambda g: g._replace(ownership=g.ownership[:0]), "the recorded ownership is wrong"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_false_record_is_found_and_named(game, case):
    change, text = CASES[case]
    games = columns_of([game, change(game), game])
    found = adjudicate(GO5, games)
    assert found.violating_games.tolist() == [1]
    assert text in violation_text(GO5, games, found, 1)
