"""One player's searches in many games in lock-step, with moves from outside: one side of a match.

The searches are those of `zero.play.lockstep_games`, so a batch has one row per game in which the player is to move. A
choice depends on the game's own random stream and moves, never on the other games.
"""

from typing import NamedTuple

import numpy as np

from zero.games.position import NUM_MOVES, Rules, history_of, load, reset, store
from zero.games.rules import play
from zero.kernels import kernel
from zero.play.lockstep_games import (
    DONE,
    NEEDS_EVALUATION,
    apply_evaluation,
    cache_evaluations,
    run_simulation,
)
from zero.play.moves import edge_value, most_visited, resigns
from zero.play.slots import NO_REQUEST, Batch, PlaySettings, Slots
from zero.search.gumbel import gumbel_choice
from zero.search.mcts import root_value
from zero.search.tree import clear, reroot


class Choice(NamedTuple):
    """Result of a search, for the player to move."""

    action: int
    root_value: float
    best_value: float  # mean value of the action
    resigns: bool  # True if both values are below the threshold


@kernel
def open_slot(rules: Rules, slots: Slots, slot: int, game: int) -> None:
    """Starts a game in a slot, with the empty board. Writes into `slots`."""
    slots.game[slot] = game
    slots.row[slot] = NO_REQUEST
    reset(rules, slots.position, history_of(slots.histories, slot))
    store(slots.position, slots.positions, slot)
    clear(slots.trees, slot)


@kernel
def advance_searches(
    rules: Rules, settings: PlaySettings, slots: Slots, batch: Batch, streams: np.ndarray, searching: np.ndarray
) -> int:
    """Applies the evaluations in `batch`, searches on, and returns the number of new requests; 0: all are done.

    Writes into everything except the rules and the settings. A search starts with `begin_search` of its slot and True
    in `searching` ([G] bool). `streams` ([G, 3] uint64) are the streams of the slots.
    """
    cache_evaluations(settings, slots, batch)
    batch.num_requests[:] = 0
    total = 0
    for slot in range(slots.game.shape[0]):
        if slots.row[slot] != NO_REQUEST:
            apply_evaluation(rules, settings, slots, slot, batch)
        while searching[slot]:
            step = run_simulation(rules, settings, slots, slot, batch, streams[slot])
            if step == NEEDS_EVALUATION:
                total += 1
                break
            if step == DONE:
                searching[slot] = False
    return total


@kernel
def play_in_slot(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, action: int) -> None:
    """Plays a legal action of either player and keeps the subtree below it. Writes into `slots`."""
    history = history_of(slots.histories, slot)
    load(slots.positions, slot, slots.position)
    play(rules, slots.position, history, action)
    store(slots.position, slots.positions, slot)
    if settings.tree_reuse:
        reroot(slots.trees, slot, action, slots.trees.action.shape[1] - settings.num_simulations - 1)
    else:
        clear(slots.trees, slot)


def read_choice(settings: PlaySettings, slots: Slots, slot: int) -> Choice:
    """Result of the finished search of a slot: the most visited action, or the choice of a Gumbel root."""
    trees = slots.trees
    edge = gumbel_choice(slots.roots, trees, slot) if settings.gumbel else most_visited(trees, slot)
    value, best = root_value(trees, slot), edge_value(trees, slot, edge)
    move = int(slots.positions.state[slot, NUM_MOVES])
    return Choice(
        action=int(trees.action[slot, 0, edge]),
        root_value=float(value),
        best_value=float(best),
        resigns=bool(resigns(move, value, best, settings.resign_threshold)),
    )
