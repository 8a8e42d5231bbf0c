"""What the games of a generation look like, without asking a network: length, score, openings, first moves."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from zero.data.records import GameColumns
from zero.storage.manifests import RESIGNATION, Manifest

OPENING_LENGTHS = (4, 8, 12)
"""Moves after which games are compared; a game that ended before counts as its own moves."""
NO_MOVE = -1


class Facts(NamedTuple):
    """What is kept of G games for their shape."""

    num_actions: int
    length: np.ndarray  # [G] int64, moves
    outcome: np.ndarray  # [G] int8, for Black
    margin: np.ndarray  # [G] float32, for Black
    resigned: np.ndarray  # [G] bool
    start_value: np.ndarray  # [G] float64, root value of the first position, for Black
    opening: np.ndarray  # [G, 12] int16, the first moves, NO_MOVE beyond the end
    entropy: np.ndarray  # [D] float64, nats, of each policy target


class Shape(Manifest):
    """The games of one generation in numbers."""

    num_games: int
    num_targets: int
    """Moves that are policy targets."""
    mean_length: float
    length_spread: float
    """Standard deviation of the length."""
    black_score: float
    """Share of the points that Black made; a draw is half a win."""
    start_value: float
    """What the search said of the first position for Black, -1 to 1, on average."""
    resigned: float
    """Share of the games."""
    score_spread: float | None
    """Standard deviation of the margin in points over the games played out; None without any, or without a score."""
    target_entropy: float
    """Mean entropy of the policy targets, nats."""
    unique_openings: dict[int, int]
    """Different first moves by their number."""
    first_moves: tuple[int, ...]
    """Games that began with each action, [A]."""


def facts_of(games: GameColumns) -> Facts:
    """The facts of a shard's games."""
    length = np.diff(games.move_offsets)
    longest = max(OPENING_LENGTHS)
    opening = np.full((games.num_games, longest), NO_MOVE, np.int16)
    for g, first in enumerate(games.move_offsets[:-1]):
        moves = games.actions[first : first + min(longest, length[g])]
        opening[g, : len(moves)] = moves
    return Facts(
        num_actions=games.num_actions,
        length=length,
        outcome=games.outcome,
        margin=games.margin,
        resigned=np.array([end == RESIGNATION for end in games.end]),
        start_value=games.root_values[games.move_offsets[:-1]].astype(np.float64),
        opening=opening,
        entropy=target_entropies(games),
    )


def join(parts: Iterable[Facts]) -> Facts:
    """The facts of several shards as one."""
    listed = list(parts)
    arrays = [np.concatenate(arrays) for arrays in zip(*(part[1:] for part in listed), strict=True)]
    return Facts(listed[0].num_actions, *arrays)


def shape_of(facts: Facts) -> Shape:
    """The numbers of games."""
    played_out = ~facts.resigned
    margins = facts.margin[played_out].astype(np.float64)
    openings = {moves: len({row[:moves].tobytes() for row in facts.opening}) for moves in OPENING_LENGTHS}
    first = Counter(int(move) for move in facts.opening[:, 0])
    return Shape(
        num_games=len(facts.length),
        num_targets=len(facts.entropy),
        mean_length=float(facts.length.mean()),
        length_spread=float(facts.length.std()),
        black_score=float((facts.outcome.astype(np.float64).mean() + 1) / 2),
        start_value=float(facts.start_value.mean()),
        resigned=float(facts.resigned.mean()),
        score_spread=float(margins.std()) if len(margins) and margins.any() else None,
        target_entropy=float(facts.entropy.mean()) if len(facts.entropy) else 0.0,
        unique_openings=openings,
        first_moves=tuple(first[action] for action in range(facts.num_actions)),
    )


def target_entropies(games: GameColumns) -> np.ndarray:
    """Entropy of each policy target, [D] float64, nats; moves without visits are none."""
    num_edges = np.diff(games.visit_offsets)
    counts = games.visit_counts.astype(np.float64)
    move = np.repeat(np.arange(len(num_edges)), num_edges)
    total = np.bincount(move, counts, len(num_edges))
    share = counts / total[move]
    entropy = np.bincount(move, -share * np.log(share), len(num_edges))
    return np.asarray(entropy[num_edges > 0])
