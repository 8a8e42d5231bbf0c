"""Training samples: positions drawn from finished games, replayed and drawn as planes under a random symmetry.

A batch is a function of the games, the seed and its step alone: each draw is uniform over all positions and independent
of the others, as in the paper. (Passes over a permuted window would show each position equally often, but a window of
the paper's size is never seen once in full, and a batch could no longer be made without those before it.)
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from zero._jit import kernel
from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, TO_PLAY, History, Position, Rules, new_history, new_position
from zero.search.streams import next_below, stream_of

PHASE = "training"


class SampleGames(NamedTuple):
    """The games that samples are drawn from: G games with M moves and V visited edges in all."""

    outcome: np.ndarray  # [G] int8, +1, 0, -1 for Black
    move_offsets: np.ndarray  # [G + 1] int64, first move of each game
    actions: np.ndarray  # [M] int16
    visit_offsets: np.ndarray  # [M + 1] int64, first visited edge of each move; a move has one or more
    visit_actions: np.ndarray  # [V] int16
    visit_counts: np.ndarray  # [V] uint16


class SampleBatch(NamedTuple):
    """What the network learns from."""

    planes: np.ndarray  # [B, P, S*S] float32
    policy_target: np.ndarray  # [B, A] float32, visit counts over their sum
    value_target: np.ndarray  # [B] float32, outcome for the player to move


class Sampler:
    """Makes batches in a thread of its own, one ahead of the caller. Close it, or use it in a `with`."""

    def __init__(
        self, rules: Rules, games: SampleGames, seed: int, generation: int, batch_size: int, random_symmetry: bool
    ) -> None:
        self._rules, self._games = rules, games
        self._seed, self._generation, self._random_symmetry = seed, generation, random_symmetry
        self._position, self._history = new_position(rules), new_history(rules)
        self._buffers = [new_sample_batch(rules, batch_size) for _ in range(2)]
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")

    def __enter__(self) -> "Sampler":
        return self

    def __exit__(self, *exception: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def batches(self, first_step: int, num_steps: int) -> Iterator[SampleBatch]:
        """The batches of some steps; a batch holds until the next one is asked for."""
        steps = range(first_step, first_step + num_steps)
        coming = self._thread.submit(self._fill, first_step)
        for step in steps:
            batch = coming.result()
            if step + 1 in steps:
                coming = self._thread.submit(self._fill, step + 1)  # into the other buffer
            yield batch

    def _fill(self, step: int) -> SampleBatch:
        batch = self._buffers[step % 2]
        stream = stream_of(self._seed, self._generation, PHASE, step)
        write_batch(self._rules, self._position, self._history, self._games, self._random_symmetry, stream, batch)
        return batch


def new_sample_batch(rules: Rules, batch_size: int) -> SampleBatch:
    """Room for a batch."""
    return SampleBatch(
        planes=np.zeros((batch_size, NUM_PLANES, rules.num_points), np.float32),
        policy_target=np.zeros((batch_size, rules.num_actions), np.float32),
        value_target=np.zeros(batch_size, np.float32),
    )


@kernel
def write_batch(
    rules: Rules,
    position: Position,
    history: History,
    games: SampleGames,
    random_symmetry: bool,
    stream: np.ndarray,
    batch: SampleBatch,
) -> None:
    """Draws positions and symmetries from the stream. Writes into `position`, `history`, `stream` and `batch`."""
    num_symmetries = rules.symmetries.shape[0] if random_symmetry else 1
    for b in range(batch.value_target.shape[0]):
        index = next_below(stream, games.actions.shape[0])
        symmetry = next_below(stream, num_symmetries)
        game = np.searchsorted(games.move_offsets, index, side="right") - 1
        first = games.move_offsets[game]
        actions = games.actions[first:index]
        write_sample(rules, position, history, actions, index - first, symmetry, batch.planes[b])
        _write_policy(rules, games, index, symmetry, batch.policy_target[b])
        batch.value_target[b] = games.outcome[game] * position.state[TO_PLAY]


@kernel
def _write_policy(rules: Rules, games: SampleGames, index: int, symmetry: int, target: np.ndarray) -> None:
    """Visit counts of a move over their sum, moved by the symmetry. Writes into `target` ([A])."""
    target[:] = 0.0
    total = 0
    for edge in range(games.visit_offsets[index], games.visit_offsets[index + 1]):
        total += games.visit_counts[edge]
    for edge in range(games.visit_offsets[index], games.visit_offsets[index + 1]):
        action = rules.symmetries[symmetry, games.visit_actions[edge]]
        target[action] = games.visit_counts[edge] / total
