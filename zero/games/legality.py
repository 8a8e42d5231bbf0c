"""Illegal moves of whole games, and messages about them. Not for the search, which uses the fast `legal_mask`."""

import numpy as np

from zero.games.coordinates import action_to_name
from zero.games.go import is_legal_point
from zero.games.position import BLACK, EMPTY, GO, NUM_MOVES, WALL, History, Position, Rules, reset
from zero.games.rules import TRAITS, ended, legal_mask, play
from zero.kernels import kernel

NO_MOVE = -1
"""Result of `first_illegal_move` for a game without one."""
MAX_NAMES = 5
"""Number of legal moves that a message lists."""


def why_illegal(rules: Rules, position: Position, history: History, action: int) -> str | None:
    """The reason why an action of the player to move is illegal, with a remedy; None if it is legal.

    Writes into `position` (so pass a copy) and into the first unused row of `history`.
    """
    if not 0 <= action < rules.num_actions:
        last = rules.num_actions - 1
        return f"illegal move {action}: a {rules.rows}x{rules.columns} board has the actions 0 to {last}"
    action, num_moves = int(action), int(position.state[NUM_MOVES])
    start = f"illegal move {action_to_name(rules, action)}: "
    if ended(position):
        return f"{start}the game is over after {num_moves} moves; undo a move or start a new game"
    mask = np.zeros(rules.num_actions, np.bool_)
    legal_mask(rules, position, history, mask)
    if mask[action]:
        return None
    if (colour := position.board[action]) not in (EMPTY, WALL):  # WALL is the entry of the pass
        return f"{start}there is a {'black' if colour == BLACK else 'white'} stone; play on an empty point"
    if rules.game != GO:
        names = [action_to_name(rules, int(legal)) for legal in np.flatnonzero(mask)]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        title = TRAITS[rules.game].title
        return f"{start}the rules of {title} forbid it here; legal: {', '.join(names[:MAX_NAMES])}{more}"
    # The action is a suicide or a repetition: the board after it shows which.
    play(rules, position, history, action)
    if position.board[action] == EMPTY and not rules.allow_suicide:
        return f"{start}it would be suicide, which these rules forbid; play elsewhere"
    # `play` wrote the board after the move into row `num_moves + 1`.
    boards = history.boards
    past = next(t for t in range(num_moves + 1) if np.array_equal(boards[t], boards[num_moves + 1]))
    return f"{start}it would repeat the position after move {past} (positional superko); play elsewhere first"


@kernel
def first_illegal_move(
    rules: Rules, position: Position, history: History, mask: np.ndarray, actions: np.ndarray
) -> int:
    """Number (from 0) of the first illegal action of a game, or NO_MOVE. Writes into all arguments but the last.

    In Go it tests the played point only, not the whole board as adjudication does. An action after the end is illegal.
    The position is then the one in which the illegal action was played. Actions are within the range of the rules.
    """
    reset(rules, position, history)
    for move in range(actions.shape[0]):
        action = actions[move]
        if ended(position):
            return move
        if rules.game == GO:
            if action < rules.num_points and not (
                position.board[action] == EMPTY and is_legal_point(rules, position, history, action)
            ):
                return move
        else:
            legal_mask(rules, position, history, mask)
            if not mask[action]:
                return move
        play(rules, position, history, action)
    return NO_MOVE
