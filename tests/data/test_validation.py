"""The data contract: correct shards of every kind fulfil it, and each clause finds and names its violation."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.made_games import records_of
from tests.stages.played import PlayedShard, play_shards, smoke_params
from zero.data.records import read_records, write_records
from zero.data.validation import (
    NO_MOVE,
    Violation,
    format_violations,
    moves_of,
    openings_of,
    plane_violations,
    shard_violations,
    stream_violations,
    target_bounds,
    unpack_planes,
)
from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, Rules, new_history, new_position
from zero.games.rules import rules_of
from zero.storage.files import sha256_bytes
from zero.storage.manifests import ExpectedProperties, GameRecord

SMALL: dict[str, object] = {"num_games": 8, "games_per_shard": 8}
KINDS: dict[str, dict[str, dict[str, object]]] = {
    "as in the paper": {},
    "without tree reuse": {"search": {"tree_reuse": False}},
    "a tree that forgets nodes": {"search": {"max_nodes": 10}},
    "gumbel": {"search": {"root": "gumbel"}, "selfplay": {"dirichlet_fraction": 0.0, "temperature_moves": 0}},
    "forced playouts": {"selfplay": {"forced_playouts": 2.0}},
    "fast moves": {"selfplay": {"full_search_fraction": 0.3}},
    "weighted samples": {"selfplay": {"surprise_weight": 0.5, "full_search_fraction": 0.6}},
    "one simulation": {"selfplay": {"num_simulations": 1, "fast_simulations": 1}},
    "no noise": {"selfplay": {"dirichlet_fraction": 0.0, "temperature_moves": 0}},
    "no noise and no symmetries": {
        "selfplay": {"dirichlet_fraction": 0.0, "temperature_moves": 0},
        "search": {"random_symmetry": False},
    },
    "suicide": {"game": {"name": "go", "size": 3, "komi": 1.0, "allow_suicide": True}},
    "gomoku": {"game": {"name": "gomoku", "size": 5, "in_a_row": 4}},
    "othello": {"game": {"name": "othello", "size": 6}},
}


OF_A_MATCH = (
    "as in the paper",
    "without tree reuse",
    "a tree that forgets nodes",
    "gumbel",
    "suicide",
    "gomoku",
    "othello",
)
"""Kinds whose settings hold for a match too; the others are those of section `selfplay`."""


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "selfplay") for name in KINDS), *((name, "gating") for name in OF_A_MATCH)]
)
def test_a_correct_shard_of_an_untrained_player_has_no_violations(name, kind, tmp_path):
    kind_of = KINDS[name]
    params = smoke_params(**kind_of | {"selfplay": SMALL | kind_of.get("selfplay", {}), "gating": SMALL})
    threshold = -0.1 if name == "as in the paper" else -1.0  # many games are resigned
    (shard,) = play_shards(tmp_path, params, kind, threshold)
    expected, rules = shard.spec, rules_of(params.game)
    assert shard_violations(shard.games, rules, expected) == []
    openings = openings_of(shard.games, 1)
    assert stream_violations(openings, [], expected) == []


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> PlayedShard:
    params = smoke_params(selfplay={"num_games": 12, "temperature_moves": 2, "calibration_fraction": 0.5})
    return play_shards(tmp_path_factory.mktemp("store"), params, "selfplay", threshold=-0.3)[0]


@pytest.fixture(scope="module")
def rules(shard: PlayedShard) -> Rules:
    return rules_of(shard.spec.game)


@pytest.fixture(scope="module")
def expected(shard: PlayedShard) -> ExpectedProperties:
    return shard.spec


@pytest.fixture(scope="module")
def records(shard: PlayedShard) -> list[GameRecord]:
    """The games; number 0 was played out, number 1 was resigned."""
    games = records_of(shard.games)
    resigned = next(game for game in games if game.end == "resignation")
    played_out = next(game for game in games if game.end != "resignation")
    return [played_out, resigned]


def violations_of(rules: Rules, expected: ExpectedProperties, records: list[GameRecord]) -> list[Violation]:
    """Violations by games whose numbers may have gaps: each game is checked as a shard of its own."""
    found = []
    for record in records:
        games = read_records(write_records([record]), "games")
        found += shard_violations(games, rules, expected.model_copy(update={"first_game": record.game, "num_games": 1}))
    return found


def with_values(record: GameRecord, field: str, move: int, value: float) -> GameRecord:
    values = getattr(record, field).copy()
    values[move] = value
    return record._replace(**{field: values})


def with_counts(record: GameRecord, move: int, change: Callable[[np.ndarray], object]) -> GameRecord:
    counts = record.visit_counts.copy()
    change(counts[move])
    return record._replace(visit_counts=counts)


def double(counts: np.ndarray) -> None:
    counts *= 2


def clear(counts: np.ndarray) -> None:
    counts[:] = 0


def only(action: int) -> Callable[[np.ndarray], None]:
    def change(counts: np.ndarray) -> None:
        total = counts.sum()
        counts[:] = 0
        counts[action] = total

    return change


def another_action(record: GameRecord, move: int) -> int:
    """A legal action that the search visited and that was not played."""
    return next(int(a) for a in np.flatnonzero(record.visit_counts[move]) if a != record.actions[move])


def favoured(record: GameRecord, move: int) -> GameRecord:
    """Moves the visits of the played action, all but one, to another action."""

    def change(counts: np.ndarray) -> None:
        played, other = record.actions[move], another_action(record, move)
        counts[played], counts[other] = 1, counts[other] + counts[played] - 1

    return with_counts(record, move, change)


def wide_move(record: GameRecord) -> int:
    """A late move whose search visited several actions, one of them more than twice."""
    counts = record.visit_counts
    moves = [m for m in range(2, len(counts)) if np.count_nonzero(counts[m]) > 1 and counts[m].max() > 2]
    return moves[0]


def test_the_unchanged_games_have_no_violations(rules, expected, records):
    assert violations_of(rules, expected, records) == []
    assert [record.end == "resignation" for record in records] == [False, True]


CASES: dict[str, tuple[Callable[[GameRecord], GameRecord], str, Callable[[GameRecord], int], str]] = {
    "a result that the rules do not give": (
        lambda g: g._replace(outcome=-g.outcome),
        "rules",
        lambda g: len(g.actions),
        "the recorded outcome is wrong",
    ),
    "a player who is not the champion": (
        lambda g: g._replace(white=sha256_bytes(b"another")),
        "players",
        lambda g: NO_MOVE,
        f"White was {sha256_bytes(b'another')[:12]}",
    ),
    "a calibration flag that the stream does not give": (
        lambda g: g._replace(never_resigns=not g.never_resigns),
        "calibration",
        lambda g: NO_MOVE,
        "its random stream gives",
    ),
    "a policy target with too many visits": (
        lambda g: with_counts(g, 0, double),
        "targets",
        lambda g: 0,
        "adds up to 16, possible are 8 to 8",
    ),
    "a move without its policy target": (
        lambda g: with_counts(g, 3, clear),
        "targets",
        lambda g: 3,
        "there is no policy target",
    ),
    "a move that the search did not visit": (
        lambda g: with_counts(g, 1, only(another_action(g, 1))),
        "targets",
        lambda g: 1,
        "the played move has no visit",
    ),
    "a later move that was not the most visited": (
        lambda g: favoured(g, wide_move(g)),
        "targets",
        wide_move,
        "the played move has 1 visits, another has",
    ),
    "a root value beyond a win": (lambda g: with_values(g, "root_values", 4, 1.5), "values", lambda g: 4, "is 1.5"),
    "a best value that is NaN": (
        lambda g: with_values(g, "best_values", 4, float("nan")),
        "values",
        lambda g: 4,
        "best value is nan",
    ),
    "a last value with the other sign": (
        lambda g: with_values(g, "best_values", -1, -g.best_values[-1]),
        "values",
        lambda g: len(g.actions) - 1,
        "the last move is worth",
    ),
    "a root value that its visits cannot give": (
        lambda g: with_values(with_counts(g, 0, only(int(g.actions[0]))), "root_values", 0, g.best_values[0] + 0.1),
        "values",
        lambda g: 0,
        "by the visits",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_violation_is_found_and_named(rules, expected, records, case):
    change, clause, move, text = CASES[case]
    game = records[0]
    violations = violations_of(rules, expected, [change(game)])
    matching = [violation for violation in violations if violation.clause == clause and text in violation.text]
    assert matching, violations
    assert (matching[0].game, matching[0].move) == (game.game, move(game))
    assert f"game {game.game}" in str(matching[0])


def test_a_resigned_calibration_game_is_found(rules, expected, records):
    always = expected.model_copy(update={"play": expected.play.model_copy(update={"calibration_fraction": 1.0})})
    violations = violations_of(rules, always, [records[1]._replace(never_resigns=True)])
    assert [violation.text for violation in violations] == ["a calibration game was resigned"]


WEIGHT_CASES: dict[str, tuple[Callable[[np.ndarray], object], str]] = {
    "a weight below the uniform share": (lambda w: w.__setitem__(2, 0.4), "is 0.4, possible are 0.5 to inf"),
    "a weight that is NaN": (lambda w: w.__setitem__(2, np.nan), "is nan, possible are"),
    "another sum": (lambda w: w.__setitem__(2, w[2] + 1.0), "there are"),
}


@pytest.mark.parametrize("case", WEIGHT_CASES)
def test_wrong_weights_are_found(tmp_path, case):
    params = smoke_params(selfplay=SMALL | {"surprise_weight": 0.5})
    (shard,) = play_shards(tmp_path, params, "selfplay")
    change, text = WEIGHT_CASES[case]
    weights = shard.games.sample_weights.copy()
    change(weights)
    found = shard_violations(shard.games._replace(sample_weights=weights), rules_of(shard.spec.game), shard.spec)
    assert [violation.clause for violation in found] == ["weights"]
    assert text in found[0].text and found[0].game == 0


def test_weights_without_the_parameter_are_found(shard, rules, expected):
    weights = shard.games.sample_weights.copy()
    weights[3] = 2.0
    (violation,) = shard_violations(shard.games._replace(sample_weights=weights), rules, expected)
    assert violation[:3] == ("weights", 0, 3) and "is 2, not 1" in violation.text


def test_games_under_other_numbers_are_found(shard, rules, expected):
    moved = shard.games._replace(game=shard.games.game + 1)
    (violation,) = shard_violations(moved, rules, expected)
    assert violation.clause == "numbers" and "not those from 0 to 11" in violation.text


def test_games_of_another_board_are_found(shard, expected):
    (violation,) = shard_violations(shard.games, rules_of(smoke_params(game=GO7).game), expected)
    assert "out of 26 actions, the game has 50" in violation.text


GO7 = {"name": "go", "size": 7, "komi": 0.5, "allow_suicide": False}


def test_a_target_without_order_or_with_an_empty_entry_is_found(shard, rules, expected):
    first, second = shard.games.visit_actions.copy(), shard.games.visit_counts.copy()
    first[[0, 1]] = first[[1, 0]]
    second[0] = 0
    disordered = shard_violations(shard.games._replace(visit_actions=first), rules, expected)
    assert "repeated or out of order" in disordered[0].text and disordered[0][:3] == ("targets", 0, 0)
    empty = shard_violations(shard.games._replace(visit_counts=second), rules, expected)
    assert "has no visit" in empty[0].text and empty[0][:3] == ("targets", 0, 0)


def test_in_a_match_the_colours_alternate(tmp_path):
    (shard,) = play_shards(tmp_path, smoke_params(gating=SMALL), "gating")
    swapped = shard.games._replace(black=shard.games.white, white=shard.games.black)
    violations = shard_violations(swapped, rules_of(shard.spec.game), shard.spec)
    assert {violation.clause for violation in violations} == {"players"}
    assert {violation.game for violation in violations} == set(range(8))


def test_without_forgetting_the_bounds_of_kept_trees_are_met_exactly(shard, expected):
    moves = moves_of(shard.games)
    least, most = target_bounds(moves, expected)
    assert (least == expected.play.num_simulations).all()
    np.testing.assert_array_equal(moves.total, most)
    assert (most > least).any()


def test_the_target_of_a_gumbel_root_is_a_fixed_whole(tmp_path):
    no_noise = {"dirichlet_fraction": 0.0, "temperature_moves": 0}
    params = smoke_params(search={"root": "gumbel"}, selfplay=SMALL | no_noise)
    (shard,) = play_shards(tmp_path, params, "selfplay")
    counts = shard.games.visit_counts.copy()
    counts[0] += 1
    violations = shard_violations(shard.games._replace(visit_counts=counts), rules_of(shard.spec.game), shard.spec)
    assert [violation.text for violation in violations] == [
        "the policy target adds up to 65536, possible are 65535 to 65535"
    ]


def planes_at(rules: Rules, record: GameRecord, move: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Planes after `move` moves and one move earlier, and the board."""
    position, history = new_position(rules), new_history(rules)
    bits = np.zeros((2, NUM_PLANES, rules.num_words), np.uint64)
    write_sample(rules, position, history, record.actions, move - 1, 0, bits[1])
    write_sample(rules, position, history, record.actions, move, 0, bits[0])
    planes, before = unpack_planes(bits, rules.num_points)
    return planes, before, position.board[: rules.num_points].copy()


PLANE_CASES: dict[str, tuple[int, str]] = {
    "a stone of both players": (1, "a point belongs to both players"),
    "a colour plane with a hole": (NUM_PLANES - 1, "the colour plane"),
    "a stone that is not on the board": (0, "the newest planes"),
    "a stone too many three moves ago": (6, "the older planes"),
}


@pytest.mark.parametrize("case", PLANE_CASES)
def test_planes_that_are_not_the_position_are_found(rules, records, case):
    plane, expected_text = PLANE_CASES[case]
    planes, before, board = planes_at(rules, records[0], 9)
    mover = -1
    assert plane_violations(planes, before, board, mover) == []
    point = int(np.flatnonzero(planes[0])[0]) if plane == 1 else int(np.flatnonzero(~planes[0] & ~planes[1])[0])
    planes[plane, point] = ~planes[plane, point]
    assert any(expected_text in text for text in plane_violations(planes, before, board, mover))


def test_a_reason_lists_the_first_violations():
    violations = [Violation("rules", 3, move, "an illegal move: C4") for move in range(30)]
    lines = format_violations("the shard", violations).splitlines()
    assert lines[0] == "the shard breaks the data contract with 30 violations:"
    assert lines[1] == "  game 3, move 0: an illegal move: C4 (rules)"
    assert len(lines) == 21


def test_violations_do_not_depend_on_the_memory_of_the_columns(shard: PlayedShard, rules, expected, tmp_path: Path):
    """Columns of one file are read-only views; concatenated columns are not."""
    assert not shard.games.actions.flags.writeable
    copied = shard.games._replace(actions=shard.games.actions.copy(), visit_actions=shard.games.visit_actions.copy())
    assert shard_violations(copied, rules, expected) == shard_violations(shard.games, rules, expected) == []
