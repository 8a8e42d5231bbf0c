"""Forced playouts at the root, and policy target pruning.

Root noise has no effect on actions that the search abandons after one visit. So each visited edge c of the root gets at
least n(c) = sqrt(k P(c) N) of the root's N visits. Pruning then removes from the policy target the forced visits that
PUCT would not have made, so that the network does not learn the exploration.
Source: Wu 2019, 'Accelerating self-play learning in Go', section 3.2. Slow twin: tests/oracle/forced.py.
"""

import math

import numpy as np

from zero.kernels import kernel
from zero.search.tree import NO_EDGE, Trees


@kernel
def forced_visits(trees: Trees, tree: int, edge: int, factor: float) -> int:
    """Minimum number of visits n(c) of a visited root edge; `factor` is k."""
    # In float64, like the slow twin: rounding in float32 could move a root across a whole number.
    minimum = math.sqrt(factor * np.float64(trees.prior[tree, 0, edge]) * np.float64(trees.node_visits[tree, 0]))
    return int(minimum)


@kernel
def select_forced_edge(trees: Trees, tree: int, factor: float) -> int:
    """The root edge that lacks the most forced visits, or NO_EDGE if none lacks any. Ties go to the lowest action."""
    action, visit_count = trees.action[tree, 0], trees.visit_count[tree, 0]
    best, most = NO_EDGE, 0
    for e in range(trees.num_visited[tree, 0]):
        missing = forced_visits(trees, tree, e, factor) - visit_count[e]
        if missing > most or (missing == most and best != NO_EDGE and action[e] < action[best]):
            best, most = e, missing
    return int(best)


@kernel
def write_pruned_visits(
    trees: Trees, tree: int, c_puct: np.float32, factor: float, limit: int, out: np.ndarray
) -> None:
    """Root visits by action, pruned, at most `limit` per action. Writes into `out` ([A], zeros on entry).

    Each edge except the most visited one loses up to n(c) visits, as long as its PUCT score with fixed Q does not
    exceed the score of the most visited edge. An edge with one visit left loses that visit too.
    """
    action, prior = trees.action[tree, 0], trees.prior[tree, 0]
    visit_count, value_sum = trees.visit_count[tree, 0], trees.value_sum[tree, 0]
    visited = trees.num_visited[tree, 0]
    best = 0
    for e in range(1, visited):
        if visit_count[e] > visit_count[best] or (visit_count[e] == visit_count[best] and prior[e] > prior[best]):
            best = e
    scale = np.float64(c_puct) * math.sqrt(np.float64(trees.node_visits[tree, 0]))
    best_score = _score(value_sum[best], visit_count[best], visit_count[best], prior[best], scale)
    for e in range(visited):
        left = visit_count[e]
        if e != best and left > 0:
            for _ in range(forced_visits(trees, tree, e, factor)):
                if left == 0 or _score(value_sum[e], visit_count[e], left - 1, prior[e], scale) > best_score:
                    break
                left -= 1
            # As in Wu 2019: a child that is reduced to a single playout is pruned outright.
            if left == 1:
                left = 0
        out[action[e]] = min(left, limit)


@kernel
def _score(value_sum: np.float32, visits: int, counted: int, prior: np.float32, scale: float) -> float:
    """PUCT score of an edge, with Q from all its visits and the exploration term from `counted` of them."""
    return np.float64(value_sum) / visits + scale * np.float64(prior) / (1.0 + counted)
