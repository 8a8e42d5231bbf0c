"""Plays the games of a shard to their ends: the loop between the boards and the networks."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from zero.artifacts import GameRecord
from zero.games.position import Rules
from zero.play.boards import END_NAMES, PlaySettings, Records, advance, new_batch, new_records, new_slots
from zero.search.evaluator import Evaluator

SMALLEST_BATCH = 8
"""Batches shrink by halves to this as the last games of a shard end; few shapes keep a network's kernels few."""


class PlayedGames(NamedTuple):
    """The games of a shard in order, and the questions they took."""

    games: list[GameRecord]
    num_evaluations: int


def batch_shape(num_questions: int, num_slots: int) -> int:
    """Rows of the padded batch: `num_slots`, or a half, a quarter, ... of it that still holds the questions."""
    shape = num_slots
    while shape // 2 >= max(num_questions, SMALLEST_BATCH) and shape % 2 == 0:
        shape //= 2
    return shape


def play_games(
    rules: Rules,
    settings: PlaySettings,
    evaluators: Sequence[Evaluator],
    digests: Sequence[str],
    streams: np.ndarray,
    num_slots: int,
    max_nodes: int,
    progress: Callable[[int], None] | None = None,
) -> PlayedGames:
    """Plays one game a stream.

    Args:
      rules: the game.
      settings: how it is played.
      evaluators: the network of each player.
      digests: SHA-256 of each player's weights, for the record.
      streams: [M, 3] uint64, see `zero.search.streams`.
      num_slots: games in play at once.
      max_nodes: nodes a tree can hold.
      progress: called with the number of games done, each time some are.
    """
    num_slots = min(num_slots, len(streams))
    slots = new_slots(rules, num_slots, settings.num_players, max_nodes)
    batch = new_batch(rules, num_slots, settings.num_players)
    records = new_records(rules, streams)
    done = 0
    while advance(rules, settings, slots, batch, records):
        for player, evaluator in enumerate(evaluators):
            if questions := int(batch.num_questions[player]):
                shape = batch_shape(questions, num_slots)
                evaluator.evaluate(
                    batch.planes[player, :shape], batch.prior[player, :shape], batch.value[player, :shape]
                )
        if progress and done != int(records.num_done[0]):
            done = int(records.num_done[0])
            progress(done)
    if progress:
        progress(len(streams))
    games = [_record(records, settings, digests, game) for game in range(len(streams))]
    return PlayedGames(games, int(records.num_evaluations[0]))


def _record(records: Records, settings: PlaySettings, digests: Sequence[str], game: int) -> GameRecord:
    moves = int(records.num_moves[game])
    number = settings.first_game + game
    black = number % 2 if settings.num_players == 2 else 0
    return GameRecord(
        actions=records.actions[game, :moves].copy(),
        visit_counts=records.visit_counts[game, :moves].copy(),
        root_values=records.root_values[game, :moves].copy(),
        outcome=int(records.outcome[game]),
        margin=float(records.margin[game]),
        end=END_NAMES[int(records.end[game])],
        game=number,
        black=digests[black],
        white=digests[1 - black] if settings.num_players == 2 else digests[0],
    )
