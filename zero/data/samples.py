"""Training samples: positions drawn from finished games, replayed and encoded as planes under a random symmetry.

A batch is a function of the games, the seed and its step only. Each draw is independent of the others. It is uniform
over all positions with a policy target, as in the paper, or in proportion to the weights in the records
(`selfplay.surprise_weight`). (Epochs over a permuted window would show each position equally often. But training never
sees all of a window of the paper's size, and each batch would depend on those before it.)
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns
from zero.errors import StorageError
from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, TO_PLAY, History, Position, Rules, new_history, new_position
from zero.kernels import kernel
from zero.search.streams import next_below, next_float, stream_of

PHASE = "training"


class SampleGames(NamedTuple):
    """The games that samples are drawn from: G games with M moves and V visited edges in all.

    A 9x9 game of 80 moves with 26 visited edges each takes 9 kB, so 500,000 of them 4.5 GB; a 19x19 game of 220 moves
    with 100 edges each takes 90 kB, so 500,000 of them 45 GB.
    """

    outcome: np.ndarray  # [G] int8, +1, 0, -1 for Black
    margin: np.ndarray  # [G] float32, points for Black
    ownership_offsets: np.ndarray  # [G + 1] int64; a game has S*S owners, or none if it was not played out
    ownership: np.ndarray  # [K] int8, +1, 0, -1 for Black
    move_offsets: np.ndarray  # [G + 1] int64, first move of each game
    actions: np.ndarray  # [M] int16
    best_values: np.ndarray  # [M] float32, of the search's best action, seen by the player to move
    visit_offsets: np.ndarray  # [M + 1] int64, first visited edge of each move; a move without full search has none
    visit_actions: np.ndarray  # [V] int16
    visit_counts: np.ndarray  # [V] uint16
    targets: np.ndarray  # [D] int64, the moves with visits; empty if all M have some
    cumulative_weights: np.ndarray  # [M] float64, a move without visits adds nothing; empty if all M weights are 1


class SampleBatch(NamedTuple):
    """What the network learns from, seen by the player to move."""

    planes: np.ndarray  # [B, P, W] uint64, see `zero.games.planes`
    policy_target: np.ndarray  # [B, A] float32, visit counts over their sum
    value_target: np.ndarray  # [B] float32, outcome, mixed with the value of the search
    ownership_target: np.ndarray  # [B, S*S] float32, at the end: 1 the player to move, -1 the opponent, 0 neither
    score_target: np.ndarray  # [B] float32, margin in points
    played_out: np.ndarray  # [B] float32, 1 if ownership and score are known, else 0 (and both are 0)


class _Buffers(NamedTuple):
    """Buffers for one batch."""

    position: Position
    history: History
    batch: SampleBatch


class Sampler:
    """Makes batches in background threads, ahead of the caller; a context manager.

    On a Sapphire Rapids core a batch of 256 takes 2 ms at 9x9, and a step of a 4x32 trunk 90 ms: one thread is enough
    on a CPU. A step on a GPU may take less time than making its batch; then several threads are needed.
    """

    def __init__(
        self,
        rules: Rules,
        games: SampleGames,
        seed: int,
        generation: int,
        batch_size: int,
        random_symmetry: bool,
        num_threads: int = 1,
        search_value_weight: float = 0.0,
    ) -> None:
        self._rules, self._games = rules, games
        self._seed, self._generation = seed, generation
        self._random_symmetry, self._search_value_weight = random_symmetry, np.float32(search_value_weight)
        self._buffers = [
            _Buffers(new_position(rules), new_history(rules), new_sample_batch(rules, batch_size))
            for _ in range(num_threads + 1)  # one more than threads: the caller still reads the last batch
        ]
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="sampler")

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def batches(self, first_step: int, num_steps: int) -> Iterator[SampleBatch]:
        """The batches of `num_steps` steps from step `first_step`, counted from 0. One is valid until the next."""
        steps = iter(range(first_step, first_step + num_steps))
        coming: deque[Future[SampleBatch]] = deque()
        for step in steps:
            coming.append(self._threads.submit(self._fill, step))
            if len(coming) == len(self._buffers) - 1:
                break
        while coming:
            # In the order of the steps, whichever thread is ready first.
            batch = coming.popleft().result()
            if (step := next(steps, -1)) >= 0:
                coming.append(self._threads.submit(self._fill, step))  # reuses the buffers of the batch yielded last
            yield batch

    def _fill(self, step: int) -> SampleBatch:
        buffers = self._buffers[step % len(self._buffers)]
        # Keyed by the step, so that a resumed training draws the same batches as one without interruption.
        stream = stream_of(self._seed, self._generation, PHASE, step)
        write_batch(
            self._rules,
            buffers.position,
            buffers.history,
            self._games,
            self._random_symmetry,
            self._search_value_weight,
            stream,
            buffers.batch,
        )
        return buffers.batch


def sample_games(columns: GameColumns) -> SampleGames:
    """Columns of the games from which the sampler makes training samples.

    Raises:
      StorageError: the games have no policy target.
    """
    weights = _cumulative_weights(columns.sample_weights, columns.visit_offsets)
    if not len(columns.visit_counts) or (len(weights) and not weights[-1] > 0.0):
        raise StorageError(
            f"none of the {columns.num_positions} moves of the window had a full search, so there is no policy target; "
            "raise selfplay.full_search_fraction or selfplay.num_games"
        )
    return SampleGames(
        outcome=columns.outcome,
        margin=columns.margin,
        ownership_offsets=columns.ownership_offsets,
        ownership=columns.ownership,
        move_offsets=columns.move_offsets,
        actions=columns.actions,
        best_values=columns.best_values,
        visit_offsets=columns.visit_offsets,
        visit_actions=columns.visit_actions,
        visit_counts=columns.visit_counts,
        targets=_target_moves(columns.visit_offsets),
        cumulative_weights=weights,
    )


def _target_moves(visit_offsets: np.ndarray) -> np.ndarray:
    """The moves with a policy target, [D] int64, for `SampleGames`; empty if all moves have one."""
    searched = visit_offsets[1:] > visit_offsets[:-1]
    return np.zeros(0, np.int64) if searched.all() else np.flatnonzero(searched)


def _cumulative_weights(sample_weights: np.ndarray, visit_offsets: np.ndarray) -> np.ndarray:
    """Cumulative weights of the moves, [M] float64, for `SampleGames`; empty if all weights are 1."""
    if (sample_weights == 1.0).all():
        return np.zeros(0, np.float64)
    return np.cumsum(np.where(visit_offsets[1:] > visit_offsets[:-1], sample_weights, 0.0), dtype=np.float64)


def new_sample_batch(rules: Rules, batch_size: int) -> SampleBatch:
    """A batch of zeros."""
    return SampleBatch(
        planes=np.zeros((batch_size, NUM_PLANES, rules.num_words), np.uint64),
        policy_target=np.zeros((batch_size, rules.num_actions), np.float32),
        value_target=np.zeros(batch_size, np.float32),
        ownership_target=np.zeros((batch_size, rules.num_points), np.float32),
        score_target=np.zeros(batch_size, np.float32),
        played_out=np.zeros(batch_size, np.float32),
    )


@kernel
def write_batch(
    rules: Rules,
    position: Position,
    history: History,
    games: SampleGames,
    random_symmetry: bool,
    search_value_weight: np.float32,
    stream: np.ndarray,
    batch: SampleBatch,
) -> None:
    """Draws positions and symmetries from the stream. Writes into `position`, `history`, `stream` and `batch`."""
    num_symmetries = rules.symmetries.shape[0] if random_symmetry else 1
    for b in range(batch.value_target.shape[0]):
        index = _draw_move(games, stream)
        symmetry = next_below(stream, num_symmetries)
        game = int(np.searchsorted(games.move_offsets, index, side="right")) - 1
        first = games.move_offsets[game]
        actions = games.actions[first:index]
        write_sample(rules, position, history, actions, index - first, symmetry, batch.planes[b])
        _write_policy(rules, games, index, symmetry, batch.policy_target[b])
        # `write_sample` leaves the sampled position in `position`, before the move that is the target.
        to_play = position.state[TO_PLAY]
        value = np.float32(games.outcome[game] * to_play)
        # Both values are for the player to move.
        if search_value_weight > 0.0:
            value += search_value_weight * (games.best_values[index] - value)
        batch.value_target[b] = value
        _write_end(rules, games, game, to_play, symmetry, batch, b)


@kernel
def _draw_move(games: SampleGames, stream: np.ndarray) -> int:
    """A random move with a policy target. Writes into `stream`."""
    weights, num_targets = games.cumulative_weights, games.targets.shape[0]
    if weights.shape[0] > 0:
        # The first move whose cumulative weight is above the number, so that no move of weight 0 is drawn.
        return int(np.searchsorted(weights, next_float(stream) * weights[-1], side="right"))
    if num_targets > 0:
        return int(games.targets[next_below(stream, num_targets)])
    return next_below(stream, games.actions.shape[0])


@kernel
def _write_policy(rules: Rules, games: SampleGames, index: int, symmetry: int, target: np.ndarray) -> None:
    """Visit counts of a move over their sum, under the symmetry. Writes into `target` ([A])."""
    target[:] = 0.0
    # Computed from the counts in the record: their sum differs between moves because of reused trees and pruning.
    total = 0
    for edge in range(games.visit_offsets[index], games.visit_offsets[index + 1]):
        total += games.visit_counts[edge]
    for edge in range(games.visit_offsets[index], games.visit_offsets[index + 1]):
        action = rules.symmetries[symmetry, games.visit_actions[edge]]
        target[action] = games.visit_counts[edge] / total


@kernel
def _write_end(
    rules: Rules, games: SampleGames, game: int, to_play: int, symmetry: int, batch: SampleBatch, b: int
) -> None:
    """Ownership and score for the player to move, under the symmetry. Writes into row `b` of `batch`."""
    first = games.ownership_offsets[game]
    known = games.ownership_offsets[game + 1] > first
    batch.played_out[b] = np.float32(1.0 if known else 0.0)
    batch.score_target[b] = np.float32(games.margin[game] * to_play if known else 0.0)
    for point in range(rules.num_points):
        # Owners are +1 for Black; times the player to move, +1 is that player.
        owner = games.ownership[first + point] * to_play if known else 0
        batch.ownership_target[b, rules.symmetries[symmetry, point]] = np.float32(owner)
