"""One player's searches in many games at once, whose moves come from outside: its side of a match.

The searches are those of `boards`, question by question, so a batch is as full as there are games to move in. What is
chosen in a game depends on its own stream and its moves, never on its neighbours.
"""

from typing import NamedTuple

import numpy as np

from zero.games.position import NUM_MOVES, Rules, history_of, load, reset, store
from zero.games.rules import play
from zero.kernels import kernel
from zero.play.boards import ASKED, SEARCHED, begin_search, next_question, remember_answers, take_answer
from zero.play.moves import edge_value, most_visited, resigns
from zero.play.slots import NO_QUESTION, Batch, PlaySettings, Slots
from zero.search.gumbel import gumbel_choice
from zero.search.mcts import root_value
from zero.search.tree import clear, reroot


class Choice(NamedTuple):
    """What a search came to, seen by the player to move."""

    action: int
    root_value: float
    best_value: float  # of the action
    resigns: bool  # both values are below the threshold


@kernel
def open_slot(rules: Rules, slots: Slots, slot: int, game: int) -> None:
    """Sets up the empty board of a game. Writes into `slots`."""
    slots.game[slot] = game
    slots.row[slot] = NO_QUESTION
    reset(rules, slots.position, history_of(slots.histories, slot))
    store(slots.position, slots.positions, slot)
    clear(slots.trees, slot)


@kernel
def start_search(settings: PlaySettings, slots: Slots, slot: int, stream: np.ndarray, searching: np.ndarray) -> None:
    """Begins the search for a move. Writes into `slots`, `stream` and `searching` ([G] bool)."""
    begin_search(settings, slots, slot, stream)
    searching[slot] = True


@kernel
def advance_searches(
    rules: Rules, settings: PlaySettings, slots: Slots, batch: Batch, streams: np.ndarray, searching: np.ndarray
) -> int:
    """Takes the answers in `batch`, searches on, and returns the number of new questions; 0: all searches are done.

    `streams` ([G, 3] uint64) are those of the slots. Writes into everything but the rules and the settings.
    """
    if slots.cache.player.shape[0] > 0:
        remember_answers(settings, slots, batch)
    batch.num_questions[:] = 0
    total = 0
    for slot in range(slots.game.shape[0]):
        if slots.row[slot] != NO_QUESTION:
            take_answer(rules, settings, slots, slot, batch)
        while searching[slot]:
            step = next_question(rules, settings, slots, slot, batch, streams[slot])
            if step == ASKED:
                total += 1
                break
            if step == SEARCHED:
                searching[slot] = False
    return total


@kernel
def play_in_slot(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, action: int) -> None:
    """Plays a legal action of whoever is to move, and keeps the part of the tree below it. Writes into `slots`."""
    history = history_of(slots.histories, slot)
    load(slots.positions, slot, slots.position)
    play(rules, slots.position, history, action)
    store(slots.position, slots.positions, slot)
    if settings.tree_reuse:
        reroot(slots.trees, slot, action, slots.trees.action.shape[1] - settings.num_simulations - 1)
    else:
        clear(slots.trees, slot)


def choice_of(settings: PlaySettings, slots: Slots, slot: int) -> Choice:
    """What the finished search of a slot came to: the most visited action, or at a Gumbel root the best of those."""
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
