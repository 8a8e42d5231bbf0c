"""Forced playouts and pruned targets, slow and obvious, from Wu 2019 (section 3.2). Twin of zero/search/forced.py.

A root edge is (action, prior, visits, value sum); prior and sum are float32 as in the trees.
"""

import math
from typing import NamedTuple


class RootEdge(NamedTuple):
    """An edge of the root."""

    action: int
    prior: float
    visits: int
    value_sum: float


def minimum_visits(edge: RootEdge, factor: float, root_visits: int) -> int:
    """Minimum number of visits of the edge."""
    return math.floor(math.sqrt(factor * edge.prior * root_visits))


def forced_action(edges: list[RootEdge], factor: float) -> int | None:
    """The visited action that lacks the most forced visits, or None; ties go to the lowest action."""
    root_visits = sum(edge.visits for edge in edges)
    lacking = {e.action: minimum_visits(e, factor, root_visits) - e.visits for e in edges if e.visits}
    candidates = [action for action, lack in lacking.items() if lack > 0]
    return min(candidates, key=lambda action: (-lacking[action], action), default=None)


def pruned_visits(edges: list[RootEdge], c_puct: float, factor: float) -> dict[int, int]:
    """Visits by action, without forced visits that PUCT would not have made."""
    root_visits = sum(edge.visits for edge in edges)
    tried = [edge for edge in edges if edge.visits]
    best = max(tried, key=lambda edge: (edge.visits, edge.prior, -edge.action))

    def score(edge: RootEdge, counted: int) -> float:
        return edge.value_sum / edge.visits + c_puct * math.sqrt(root_visits) * edge.prior / (1 + counted)

    target = {}
    for edge in tried:
        left = edge.visits
        if edge is not best:
            for _ in range(minimum_visits(edge, factor, root_visits)):
                if left and score(edge, left - 1) <= score(best, best.visits):
                    left -= 1
                else:
                    break
        if left > 1 or edge is best:
            target[edge.action] = left
    return {action: visits for action, visits in target.items() if visits}
