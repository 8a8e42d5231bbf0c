"""Forced playouts at the root, and the policy target without those that did not pay.

Root noise only helps where it is looked at: an edge c that was tried gets n(c) = sqrt(k P(c) N) or more of the root's
N visits. They are taken out of the target again as long as the edge would not have been chosen on its merits, so that
exploration does not blur what is learned. Source: Wu 2019, 'Accelerating self-play learning in Go', section 3.2.
Slow twin: tests/oracle/forced.py.
"""

import math

import numpy as np

from zero.kernels import kernel
from zero.search.tree import NO_EDGE, Trees


@kernel
def forced_visits(trees: Trees, tree: int, edge: int, factor: float) -> int:
    """n(c): visits that a tried root edge is owed; `factor` is k."""
    owed = math.sqrt(factor * np.float64(trees.prior[tree, 0, edge]) * np.float64(trees.node_visits[tree, 0]))
    return int(owed)


@kernel
def select_forced_edge(trees: Trees, tree: int, factor: float) -> int:
    """The root edge that is owed the most visits; of equals the lowest action; NO_EDGE where none is owed any."""
    action, visit_count = trees.action[tree, 0], trees.visit_count[tree, 0]
    best, most = NO_EDGE, 0
    for e in range(trees.num_visited[tree, 0]):
        owed = forced_visits(trees, tree, e, factor) - visit_count[e]
        if owed > most or (owed == most and best != NO_EDGE and action[e] < action[best]):
            best, most = e, owed
    return int(best)


@kernel
def write_pruned_visits(trees: Trees, tree: int, c_puct: np.float32, factor: float, most: int, out: np.ndarray) -> None:
    """Root visits by action without the forced ones that did not pay. Writes into `out` ([A], zeros before).

    At most `most` are told of an action.

    From each edge but the most visited one up to n(c) visits are taken while its PUCT score, with Q held, stays at or
    below that of the most visited; an edge left with a single visit loses it too.
    """
    action, prior = trees.action[tree, 0], trees.prior[tree, 0]
    visit_count, value_sum = trees.visit_count[tree, 0], trees.value_sum[tree, 0]
    visited = trees.num_visited[tree, 0]
    best = 0
    for e in range(1, visited):
        if visit_count[e] > visit_count[best] or (visit_count[e] == visit_count[best] and prior[e] > prior[best]):
            best = e
    scale = np.float64(c_puct) * math.sqrt(np.float64(trees.node_visits[tree, 0]))
    ceiling = _score(value_sum[best], visit_count[best], visit_count[best], prior[best], scale)
    for e in range(visited):
        left = visit_count[e]
        if e != best and left > 0:
            for _ in range(forced_visits(trees, tree, e, factor)):
                if left == 0 or _score(value_sum[e], visit_count[e], left - 1, prior[e], scale) > ceiling:
                    break
                left -= 1
            if left == 1:
                left = 0
        out[action[e]] = min(left, most)


@kernel
def _score(value_sum: np.float32, visits: int, counted: int, prior: np.float32, scale: float) -> float:
    """PUCT score of an edge with Q from all its visits and the exploration term of `counted` of them."""
    return np.float64(value_sum) / visits + scale * np.float64(prior) / (1.0 + counted)
