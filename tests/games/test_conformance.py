"""Requirements on every game and board: a new game is complete when these tests pass with its rules in `BOARDS`."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle.bitboards import unpack
from tests.oracle.games import oracle_of
from tests.oracle.planes import planes, symmetric_actions
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.legality import NO_MOVE, first_illegal_move, why_illegal
from zero.games.planes import write_sample
from zero.games.position import (
    ENDED,
    NUM_PLANES,
    History,
    Position,
    Rules,
    load,
    new_history,
    new_position,
    reset,
    store,
)
from zero.games.rules import go_rules, gomoku_rules, legal_mask, othello_rules, play
from zero.play.slots import END_NAMES

BOARDS = {
    "go 2x2": go_rules(2, 2, 0.0),
    "go 3x3 with suicide": go_rules(3, 3, 0.5, allow_suicide=True),
    "go 3x5": go_rules(3, 5, 1.0),
    "go 8x8": go_rules(8, 8, 7.0),
    "go 9x9 with suicide": go_rules(9, 9, 7.5, allow_suicide=True),
    "go 19x19": go_rules(19, 19, 7.5),
    "gomoku 3x3": gomoku_rules(3, 3, 3),
    "gomoku 7x4": gomoku_rules(7, 4, 4),
    "gomoku 8x8": gomoku_rules(8, 8, 5),
    "gomoku 15x15": gomoku_rules(15, 15, 5),
    "othello 4x4": othello_rules(4, 4),
    "othello 6x4": othello_rules(6, 4),
    "othello 8x8": othello_rules(8, 8),
}
NUM_CHECKS = 12
"""Numbers of tested positions per game and of tested actions per position, evenly spread."""
LONGEST = 200
"""Moves of a game on the largest board; on other boards a game continues to its end."""

every_board = pytest.mark.parametrize("rules", [pytest.param(rules, id=name) for name, rules in BOARDS.items()])


@pytest.fixture
def actions(rules: Rules) -> list[int]:
    """The actions of a random game, equal in all tests."""
    random = np.random.default_rng([rules.rows, rules.columns])
    game = KernelGame(rules)
    chosen: list[int] = []
    while not game.ended and len(chosen) < LONGEST:
        points = sorted(game.legal_actions() - {rules.num_points}) or [rules.num_points]
        chosen.append(points[random.integers(len(points))])
        game.play(chosen[-1])
    return chosen


def walk(rules: Rules, actions: list[int]) -> Iterator[KernelGame]:
    """The game at some of its positions, including the first and the last."""
    game = KernelGame(rules)
    interval = 1 + len(actions) // NUM_CHECKS
    for t, action in enumerate(actions):
        if t % interval == 0:
            yield game
        game.play(action)
    yield game


@every_board
def test_the_slow_twin_agrees(rules, actions):
    twin = oracle_of(rules)
    for game in walk(rules, actions):
        for action in actions[len(twin.boards) - 1 : game.num_moves]:
            twin.play(action)
        assert game.board() == twin.board
        assert [game.past_board(t) for t in range(game.num_moves + 1)] == twin.boards
        assert (game.to_play, game.ended, game.margin()) == (twin.to_play, twin.ended, twin.margin())
        assert game.legal_actions() == twin.legal_actions()
        if game.ended:
            assert (game.outcome(), END_NAMES[game.position.state[ENDED]]) == (twin.outcome(), twin.end)
        np.testing.assert_array_equal(game.planes(), planes(rules.rows, rules.columns, twin.boards, twin.to_play))


@every_board
def test_each_legal_action_is_one_move(rules, actions):
    for game in walk(rules, actions):
        legal = sorted(game.legal_actions())
        for action in legal[:: 1 + len(legal) // NUM_CHECKS]:
            turn = game.copy().play(action)
            assert (turn.num_moves, turn.to_play) == (game.num_moves + 1, -game.to_play)
            assert turn.past_board(game.num_moves) == game.board()
            assert turn.past_board(turn.num_moves) == turn.board()
            assert turn.history.hashes[turn.num_moves] == turn.hash_of_board()


@every_board
def test_an_illegal_action_is_found_and_explained(rules, actions):
    buffers = new_position(rules), new_history(rules), np.zeros(rules.num_actions, np.bool_)
    for game in walk(rules, actions):
        legal = game.legal_actions()
        for action in (*range(0, rules.num_actions, 1 + rules.num_actions // NUM_CHECKS), rules.num_actions - 1):
            moves = np.array([*actions[: game.num_moves], action], np.int16)
            assert first_illegal_move(rules, *buffers, moves) == (NO_MOVE if action in legal else game.num_moves)
            tried = game.copy()
            reason = why_illegal(rules, tried.position, tried.history, action)
            assert (reason is None) == (action in legal)
            assert reason is None or reason.startswith(f"illegal move {action_to_name(rules, action)}: ")


@every_board
def test_a_game_has_no_legal_action_exactly_after_its_end(rules, actions):
    for game in walk(rules, actions):
        assert game.ended == (game.num_moves == len(actions) and len(actions) < LONGEST)
        assert (game.legal_actions() == set()) == game.ended
    assert len(actions) <= rules.max_moves


@every_board
def test_an_ended_game_does_not_change(rules):
    game = KernelGame(rules._replace(max_moves=6))
    while not game.ended:
        game.play(min(game.legal_actions()))
    before = game.copy()
    for action in range(rules.num_actions):
        play(game.rules, game.position, game.history, action)
    for array, old in zip((*game.position, *game.history), (*before.position, *before.history), strict=True):
        np.testing.assert_array_equal(array, old)
    assert game.outcome() == before.outcome()


@every_board
def test_a_sample_of_a_record_has_the_planes_of_the_game(rules, actions):
    position, history = new_position(rules), new_history(rules)
    record = np.array(actions, np.int16)
    for game in walk(rules, actions):
        for symmetry in range(len(rules.symmetries)):
            out = np.full((NUM_PLANES, rules.num_words), 2**64 - 1, np.uint64)
            write_sample(rules, position, history, record, game.num_moves, symmetry, out)
            np.testing.assert_array_equal(unpack(out, rules.num_points), game.planes(symmetry))


@every_board
def test_symmetries_are_those_of_the_board(rules):
    tables = {tuple(int(action) for action in row) for row in rules.symmetries}
    assert tables == symmetric_actions(rules.rows, rules.columns, rules.num_actions, oracle_of(rules).board)
    assert len(tables) == len(rules.symmetries)
    assert rules.symmetries[0].tolist() == list(range(rules.num_actions))


@every_board
def test_symmetries_commute_with_the_rules(rules, actions):
    for k, table in enumerate(rules.symmetries):
        image = KernelGame(rules)
        for game in walk(rules, actions):
            for action in actions[image.num_moves : game.num_moves]:
                image.play(int(table[action]))
            assert (image.to_play, image.ended) == (game.to_play, game.ended)
            assert (image.margin(), image.outcome()) == (game.margin(), game.outcome())
            np.testing.assert_array_equal(image.position.board[table[: rules.num_points]], game.position.board[:-1])
            np.testing.assert_array_equal(image.mask()[table], game.mask())
            np.testing.assert_array_equal(image.planes(), game.planes(k))


@every_board
def test_names_round_trip(rules):
    names = [action_to_name(rules, action) for action in range(rules.num_actions)]
    assert [name_to_action(rules, name) for name in names] == list(range(rules.num_actions))
    assert [name_to_action(rules, f" {name.lower()} ") for name in names] == list(range(rules.num_actions))


@every_board
def test_a_game_in_a_batch_equals_the_game_alone(rules, actions):
    positions, histories = new_position(rules, 3), new_history(rules, 3)
    position = new_position(rules)
    mask = np.zeros(rules.num_actions, np.bool_)
    others = actions[: len(actions) // 2]
    for t, action in enumerate(actions):
        for g, choice in enumerate((others[t] if t < len(others) else None, action, action)):
            if choice is not None:
                history = History(histories.hashes[g], histories.boards[g])
                load(positions, g, position)
                legal_mask(rules, position, history, mask)
                assert mask[choice]
                play(rules, position, history, choice)
                store(position, positions, g)
    for g, length in enumerate((len(others), len(actions), len(actions))):
        alone = KernelGame(rules)
        for action in actions[:length]:
            alone.play(action)
        for name in set(Position._fields) - {"scratch"}:
            np.testing.assert_array_equal(getattr(positions, name)[g], getattr(alone.position, name), name)
        for name in History._fields:
            np.testing.assert_array_equal(getattr(histories, name)[g], getattr(alone.history, name), name)


@every_board
def test_a_reset_position_equals_a_new_one(rules, actions):
    (*_, used), new = walk(rules, actions), KernelGame(rules)
    reset(rules, used.position, used.history)
    assert used.position.state.tolist() == new.position.state.tolist()
    for action in actions:
        assert used.past_board(used.num_moves) == new.board()
        np.testing.assert_array_equal(used.position.board, new.position.board)
        np.testing.assert_array_equal(used.mask(), new.mask())
        used.play(action)
        new.play(action)
