"""Plays the games of a shard to their ends: the loop between the game kernels and the networks.

The games are split into parts, one per search thread. With double buffering (`half_batches`) there are twice as many
parts, in two halves: the network evaluates one half on its device while the host searches the other. A half is sent to
the device before the results of the other are fetched, so that the device need not wait for the host. A part has slots
of its own and a fixed range of the games, and always fills the same rows of the network's batch. So the games do not
depend on timing.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from zero.games.position import END_LENGTH, END_PASSES, Rules
from zero.kernels import bound
from zero.play.lockstep_games import advance
from zero.play.slots import (
    END_NAMES,
    Batch,
    PlaySettings,
    Records,
    Slots,
    new_batch,
    new_records,
    new_slots,
)
from zero.search.evaluator import AsyncEvaluator, Evaluator
from zero.storage.manifests import GameRecord

SMALLEST_BATCH, SHAPES = 8, 8
"""The fewest rows of a batch, and the number of large batch shapes. As games end, a batch shrinks by eighths of the
slots, then by halves down to the smallest. Networks compile once per shape, so shapes are few."""


class PlayedGames(NamedTuple):
    """The games of a shard that have ended, in order, and the number of evaluations that they needed."""

    games: list[GameRecord]
    num_evaluations: int


class Part(NamedTuple):
    """A range of the shard's games, and the data that one search thread needs to play them."""

    settings: PlaySettings
    slots: Slots
    batch: Batch
    records: Records


class HalfBatch:
    """Parts whose requests go to the networks in one batch; part k fills the k-th section of the rows."""

    def __init__(self, rules: Rules, parts: Sequence[Part], evaluators: Sequence[Evaluator]) -> None:
        """Makes the common batch; all parts have the same number of slots."""
        self._parts, self._evaluators = parts, evaluators
        self._asynchronous = [
            e if isinstance(e, AsyncEvaluator) else None for e in evaluators
        ]  # isinstance of a Protocol is slow
        self._num_slots = len(parts[0].slots.game)
        self._batch = new_batch(rules, self._num_slots * len(parts), len(evaluators))
        self._sections = [0] * len(evaluators)  # rows of a part in the current batch, by player; 0: no request
        self._waits: list[Callable[[], None]] = []  # of the networks that have a batch of this half
        self._advance = [bound(advance, rules, *part) for part in parts]

    def search(self, pool: Executor) -> bool:
        """Applies the last evaluations, searches to the next requests, and collects them.

        The first part is searched in this thread, the others in the pool. False: there are no requests, and all games
        are done.
        """
        others = [pool.submit(self._search, number) for number in range(1, len(self._parts))]
        self._search(0)
        for other in others:
            other.result()  # also raises what the search raised in its thread
        # Sections of a batch have equal sizes, that of the fullest part, so that its shape depends on counts alone.
        smallest = -(-SMALLEST_BATCH // len(self._parts))
        for player in range(len(self._evaluators)):
            most = max(int(part.batch.num_requests[player]) for part in self._parts)
            rows = self._sections[player] = batch_shape(most, self._num_slots, smallest) if most else 0
            for number, part in enumerate(self._parts):
                # Padding rows keep old planes; their results are never read.
                requests = part.batch.num_requests[player]
                self._batch.planes[player, number * rows :][:requests] = part.batch.planes[player, :requests]
        return any(self._sections)

    def submit(self) -> None:
        """Sends the requests to the asynchronous networks, and runs the others; `wait` must follow."""
        for player, evaluator in enumerate(self._evaluators):
            if self._sections[player]:
                if asynchronous := self._asynchronous[player]:
                    asynchronous.submit(*self._rows(player))
                    self._waits.append(asynchronous.wait)
                else:
                    evaluator.evaluate(*self._rows(player))

    def wait(self) -> None:
        """Waits for the results of the asynchronous networks, if any were sent a batch."""
        while self._waits:
            self._waits.pop(0)()

    def abandon(self) -> None:
        """As `wait`, but drops errors: nothing reads the results, and an earlier error must be seen."""
        while self._waits:
            with contextlib.suppress(Exception):
                self._waits.pop(0)()

    def num_done(self) -> int:
        """Number of games that have ended."""
        return sum(int(part.records.num_done[0]) for part in self._parts)

    def _rows(self, player: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = self._sections[player] * len(self._parts)
        return self._batch.planes[player, :size], self._batch.prior[player, :size], self._batch.value[player, :size]

    def _search(self, number: int) -> None:
        part = self._parts[number]
        for player, rows in enumerate(self._sections):
            requests = part.batch.num_requests[player]
            # Back to the part's own rows: the section's offset changes with the batch shape, and the kernel does not
            # know it.
            part.batch.prior[player, :requests] = self._batch.prior[player, number * rows :][:requests]
            part.batch.value[player, :requests] = self._batch.value[player, number * rows :][:requests]
        self._advance[number]()


def batch_shape(num_requests: int, num_slots: int, smallest: int = SMALLEST_BATCH) -> int:
    """Rows of the padded batch: a multiple of an eighth of `num_slots`, or below that an eighth halved repeatedly."""
    eighth = max(-(-num_slots // SHAPES), smallest)
    rows = -(-num_requests // eighth) * eighth
    while rows // 2 >= max(num_requests, smallest):
        rows = -(-rows // 2)
    return min(rows, num_slots)


def play_games(
    rules: Rules,
    settings: PlaySettings,
    evaluators: Sequence[Evaluator],
    digests: Sequence[str],
    streams: np.ndarray,
    num_slots: int,
    max_nodes: int,
    progress: Callable[[int], None] | None = None,
    search_threads: int = 1,
    half_batches: bool = False,
    stop_after: int = 0,
) -> PlayedGames:
    """Plays one game per stream.

    `stop_after` does not change the games: those that ended before the stop are equal to the last bit.

    Args:
      rules: the rules of the game.
      settings: settings of search and play.
      evaluators: the network of each player.
      digests: SHA-256 of each player's weights, for the record.
      streams: [M, 3] uint64, see `zero.search.streams`.
      num_slots: number of games in play at once, rounded up to a multiple of the number of parts.
      max_nodes: capacity of a tree.
      progress: called with the number of ended games after each batch.
      search_threads: number of parts that are searched at once, in addition to the network's own threads.
      half_batches: True: double buffering, one half of the games is searched while the network evaluates the other.
      stop_after: number of ended games to stop at; 0: play all.
    """
    stop_after = min(stop_after, len(streams)) or len(streams)
    parts = new_parts(rules, settings, streams, num_slots, max_nodes, search_threads * (2 if half_batches else 1))
    # Two parts per search thread with double buffering; a shard of very few games has fewer parts.
    per_half = -(-len(parts) // 2) if half_batches else len(parts)
    with new_pool(search_threads) as pool:
        halves = [HalfBatch(rules, parts[i : i + per_half], evaluators) for i in range(0, len(parts), per_half)]
        play_half_batches(halves, pool, progress, stop_after)
    if progress:
        progress(sum(half.num_done() for half in halves))
    return PlayedGames(
        games=[
            _record(part.records, part.settings, digests, int(i))
            for part in parts
            for i in np.flatnonzero(part.records.num_moves)  # 0 until the game ends
        ],
        num_evaluations=sum(int(part.records.num_evaluations[0]) for part in parts),
    )


def new_pool(search_threads: int) -> ThreadPoolExecutor:
    """The search threads beside the calling one. Kernels release the GIL (`nogil`), so threads are enough."""
    return ThreadPoolExecutor(max(search_threads - 1, 1), "search")


def new_parts(
    rules: Rules, settings: PlaySettings, streams: np.ndarray, num_slots: int, max_nodes: int, num_parts: int
) -> list[Part]:
    """Splits the games into contiguous ranges whose lengths differ by at most 1; no more parts than games."""
    num_slots = min(num_slots, len(streams))
    num_parts = min(num_parts, num_slots)
    # Fixed ranges instead of a common queue: with a queue, timing would decide which part has how many requests, and
    # with that the batch shapes, on which the bits of an evaluation depend.
    bounds = [len(streams) * i // num_parts for i in range(num_parts + 1)]
    slots_each = -(-num_slots // num_parts)
    return [
        Part(
            settings=settings._replace(first_game=settings.first_game + first),
            slots=new_slots(rules, settings, slots_each, max_nodes),
            batch=new_batch(rules, slots_each, settings.num_players),
            records=new_records(rules, streams[first:end]),
        )
        for first, end in itertools.pairwise(bounds)
    ]


def play_half_batches(
    halves: Sequence[HalfBatch], pool: Executor, progress: Callable[[int], None] | None, stop_after: int
) -> None:
    """Searches and evaluates each half in turn until `stop_after` games have ended, or no game is left.

    With two halves, one is searched while the other is evaluated, if the evaluators are asynchronous.
    """
    num_idle = 0
    turns = itertools.cycle(halves)
    half = next(turns)
    try:
        while num_idle < len(halves):
            num_idle = 0 if half.search(pool) else num_idle + 1
            done = sum(each.num_done() for each in halves)
            # No search runs at this point, so the count does not depend on timing.
            if done >= stop_after:
                return
            half.submit()
            half = next(turns)
            half.wait()
            if progress:
                progress(done)
    finally:
        for each in halves:  # one may be on the device
            each.abandon()


def _record(records: Records, settings: PlaySettings, digests: Sequence[str], game: int) -> GameRecord:
    moves, end = int(records.num_moves[game]), int(records.end[game])
    has_area = end in (END_PASSES, END_LENGTH)
    number = settings.first_game + game
    # As in `player_of`: player 0 has Black in games of even number.
    black = number % 2 if settings.num_players == 2 else 0
    # Copies: a view of one game would keep the arrays of all games of the shard in memory.
    return GameRecord(
        actions=records.actions[game, :moves].copy(),
        visit_counts=records.visit_counts[game, :moves].copy(),
        root_values=records.root_values[game, :moves].copy(),
        best_values=records.best_values[game, :moves].copy(),
        sample_weights=records.sample_weights[game, :moves].copy(),
        ownership=records.ownership[game].copy() if has_area else np.zeros(0, np.int8),
        outcome=int(records.outcome[game]),
        margin=float(records.margin[game]),
        end=END_NAMES[end],
        never_resigns=bool(records.never_resigns[game]),
        game=number,
        black=digests[black],
        white=digests[1 - black] if settings.num_players == 2 else digests[0],
    )
