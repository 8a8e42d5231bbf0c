"""Adjudication: replays recorded games by the rules, move by move, and derives their results again.

It trusts only the moves of a record and the claim that a player resigned. Checks that need no rules (visit counts and
values) are in `zero.data.validation`. Slow twin: tests/oracle/adjudication.py.
"""

from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns
from zero.games.coordinates import action_to_name
from zero.games.go import write_ownership
from zero.games.position import (
    END_LENGTH,
    END_PASSES,
    ENDED,
    GO,
    TO_PLAY,
    History,
    Position,
    Rules,
    new_history,
    new_position,
    reset,
)
from zero.games.rules import ended, legal_mask, margin, outcome, play
from zero.kernels import kernel
from zero.play.moves import FIRST_RESIGNATION
from zero.play.slots import END_NAMES, END_RESIGNATION

NO_VIOLATION = 0
ILLEGAL_MOVE, ILLEGAL_TARGET, MOVE_AFTER_END, UNFINISHED = 1, 2, 3, 4
RESIGNED_AFTER_END, EARLY_RESIGNATION = 5, 6
WRONG_END, WRONG_OUTCOME, WRONG_MARGIN, WRONG_OWNERSHIP = 7, 8, 9, 10
VIOLATION_TEXTS = (
    "follows the rules",
    "an illegal move",
    "a policy target on an illegal action",
    "a move after the end",
    "the game is not over and was not resigned",
    "resigned after the end of the game",
    f"resigned before move {FIRST_RESIGNATION}",
    "the recorded end is wrong",
    "the recorded outcome is wrong",
    "the recorded margin is wrong",
    "the recorded ownership is wrong",
)
"""Texts of the violation codes. The first violation of a game is reported."""
NO_MOVE = -1
"""`violation_move` of a game without a violation."""
UNKNOWN_END = -1
"""`end` of a game that was not replayed to its end."""


class GameArrays(NamedTuple):
    """`GameColumns` with fixed types, as the kernel needs it."""

    outcome: np.ndarray  # [G] int8
    margin: np.ndarray  # [G] float32
    end: np.ndarray  # [G] int8, index of END_NAMES, UNKNOWN_END for an unknown name
    ownership_offsets: np.ndarray  # [G + 1] int64
    ownership: np.ndarray  # [K] int8
    move_offsets: np.ndarray  # [G + 1] int64
    actions: np.ndarray  # [M] int16
    visit_offsets: np.ndarray  # [M + 1] int64
    visit_actions: np.ndarray  # [V] int16


class Adjudicated(NamedTuple):
    """Results of G games by the rules. If a game has a violation before its end, its result is not defined."""

    outcome: np.ndarray  # [G] int8, +1, 0, -1 for Black
    margin: np.ndarray  # [G] float32, Black's area less White's less komi; 0 if resigned or without a score
    end: np.ndarray  # [G] int8, index of END_NAMES, or UNKNOWN_END
    ownership: np.ndarray  # [G, S*S] int8, owner of each point of a game of Go that was played out, else zeros
    violation: np.ndarray  # [G] int8, index of VIOLATION_TEXTS; 0: none
    violation_move: np.ndarray  # [G] int32, move (from 0) of the violation; the game's length for its end; or NO_MOVE

    @property
    def violating_games(self) -> np.ndarray:
        """Indices of the games with a violation."""
        return np.flatnonzero(self.violation)


def adjudicate(rules: Rules, games: GameColumns) -> Adjudicated:
    """Replays all games and compares their results; one core does 20,000 games of 9x9 Go in about two seconds.

    The order of the checks is: each move is legal, is played before the end, and has policy targets on legal actions
    only; the game is over after its last move, or was resigned at `FIRST_RESIGNATION` or later; end, outcome, margin
    and ownership are those of the rules. The opponent of a player who resigned has won.
    """
    num_games = len(games.outcome)
    codes = {name: code for code, name in enumerate(END_NAMES)}
    found = Adjudicated(
        outcome=np.zeros(num_games, np.int8),
        margin=np.zeros(num_games, np.float32),
        end=np.full(num_games, UNKNOWN_END, np.int8),
        ownership=np.zeros((num_games, rules.num_points), np.int8),
        violation=np.zeros(num_games, np.int8),
        violation_move=np.full(num_games, NO_MOVE, np.int32),
    )
    plain = GameArrays(
        outcome=np.array(games.outcome, np.int8),  # a fresh array: one type for the kernel, writable or not
        margin=np.array(games.margin, np.float32),
        end=np.array([codes.get(name, UNKNOWN_END) for name in games.end], np.int8),
        ownership_offsets=np.array(games.ownership_offsets, np.int64),
        ownership=np.array(games.ownership, np.int8),
        move_offsets=np.array(games.move_offsets, np.int64),
        actions=np.array(games.actions, np.int16),
        visit_offsets=np.array(games.visit_offsets, np.int64),
        visit_actions=np.array(games.visit_actions, np.int16),
    )
    mask = np.zeros(rules.num_actions, np.bool_)
    adjudicate_games(rules, new_position(rules), new_history(rules), mask, plain, found)
    return found


def violation_text(rules: Rules, games: GameColumns, found: Adjudicated, index: int) -> str:
    """The violation of a game as text: the recorded value, and the value by the rules."""
    violation, move = int(found.violation[index]), int(found.violation_move[index])
    text = VIOLATION_TEXTS[violation]
    first = int(games.move_offsets[index])
    if violation in (ILLEGAL_MOVE, MOVE_AFTER_END):
        return f"{text}: {_name(rules, int(games.actions[first + move]))}"
    if violation == ILLEGAL_TARGET:
        edges = slice(int(games.visit_offsets[first + move]), int(games.visit_offsets[first + move + 1]))
        names = ", ".join(_name(rules, int(action)) for action in games.visit_actions[edges])
        return f"{text}, one of {names}"
    if violation == WRONG_END:
        return f"{text}: recorded {games.end[index]!r}, by the rules {END_NAMES[found.end[index]]!r}"
    if violation == WRONG_OUTCOME:
        return f"{text}: recorded {games.outcome[index]:+d}, by the rules {found.outcome[index]:+d}"
    if violation == WRONG_MARGIN:
        return f"{text}: recorded {games.margin[index]:g}, by the rules {found.margin[index]:g}"
    return text


@kernel
def adjudicate_games(
    rules: Rules, position: Position, history: History, mask: np.ndarray, games: GameArrays, found: Adjudicated
) -> None:
    """Replays all games. Writes into `position`, `history`, `mask` ([A] bool) and `found`."""
    for game in range(games.outcome.shape[0]):
        moves = games.move_offsets[game + 1] - games.move_offsets[game]
        if not _replay(rules, position, history, mask, games, game, found):
            continue
        is_over = ended(position)
        resigned = games.end[game] == END_RESIGNATION
        if resigned and is_over:
            _note(found, game, RESIGNED_AFTER_END, moves)
        elif resigned and moves < FIRST_RESIGNATION:
            _note(found, game, EARLY_RESIGNATION, moves)
        elif not resigned and not is_over:
            _note(found, game, UNFINISHED, moves)
        else:
            _judge_end(rules, position, game, resigned, found)
            _compare(rules, games, game, moves, found)


@kernel
def _replay(
    rules: Rules,
    position: Position,
    history: History,
    mask: np.ndarray,
    games: GameArrays,
    game: int,
    found: Adjudicated,
) -> bool:
    """Replays a game; False if a move is a violation. Writes into `position`, `history`, `mask` and `found`."""
    reset(rules, position, history)
    first = games.move_offsets[game]
    for move in range(games.move_offsets[game + 1] - first):
        if ended(position):
            _note(found, game, MOVE_AFTER_END, move)
            return False
        legal_mask(rules, position, history, mask)
        action = games.actions[first + move]
        if not _is_legal(rules, mask, action):
            _note(found, game, ILLEGAL_MOVE, move)
            return False
        for edge in range(games.visit_offsets[first + move], games.visit_offsets[first + move + 1]):
            if not _is_legal(rules, mask, games.visit_actions[edge]):
                _note(found, game, ILLEGAL_TARGET, move)
                return False
        play(rules, position, history, action)
    return True


@kernel
def _is_legal(rules: Rules, mask: np.ndarray, action: int) -> bool:
    """True if a number is an action and the mask allows it."""
    # The range comes first, because kernels read without bounds checks.
    return bool(0 <= action < rules.num_actions and mask[action])


@kernel
def _judge_end(rules: Rules, position: Position, game: int, resigned: bool, found: Adjudicated) -> None:
    """Derives the result of a game from its last position. Writes into `found` and the position's buffers."""
    if resigned:
        found.end[game] = END_RESIGNATION
        # The player to move resigned, so the other colour has won.
        found.outcome[game] = -position.state[TO_PLAY]
        return
    found.outcome[game] = outcome(rules, position)
    found.margin[game] = margin(rules, position)
    found.end[game] = position.state[ENDED]
    if rules.game == GO:
        write_ownership(rules, position, found.ownership[game])


@kernel
def _compare(rules: Rules, games: GameArrays, game: int, moves: int, found: Adjudicated) -> None:
    """Compares the derived result with the recorded one. Writes into `found`."""
    first = games.ownership_offsets[game]
    num_owners = games.ownership_offsets[game + 1] - first
    has_area = found.end[game] == END_PASSES or found.end[game] == END_LENGTH
    if games.end[game] != found.end[game]:
        _note(found, game, WRONG_END, moves)
    elif games.outcome[game] != found.outcome[game]:
        _note(found, game, WRONG_OUTCOME, moves)
    # Both are float32 of the same computation, so they are equal to the bit.
    elif games.margin[game] != found.margin[game]:
        _note(found, game, WRONG_MARGIN, moves)
    elif num_owners != (rules.num_points if has_area else 0):
        _note(found, game, WRONG_OWNERSHIP, moves)
    else:
        for point in range(num_owners):
            if games.ownership[first + point] != found.ownership[game, point]:
                _note(found, game, WRONG_OWNERSHIP, moves)


@kernel
def _note(found: Adjudicated, game: int, violation: int, move: int) -> None:
    """Records a violation. Writes into `found`."""
    found.violation[game] = violation
    found.violation_move[game] = move


def _name(rules: Rules, action: int) -> str:
    """Name of an action, or its number if it is not an action of the game."""
    return action_to_name(rules, action) if 0 <= action < rules.num_actions else str(action)
