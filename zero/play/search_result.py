"""The result of a search, read from its tree for GTP, the web page and analysis."""

from typing import NamedTuple

import numpy as np

from zero.search.mcts import root_value
from zero.search.tree import NO_CHILD, Trees


class SearchResult(NamedTuple):
    """Result of a search at a position. Values are in [-1, 1] for the player to move."""

    visit_counts: np.ndarray
    """[A] int32, includes visits of earlier searches in a reused tree."""
    q_values: np.ndarray
    """[A] float32, mean value of each action's simulations; 0 without a visit."""
    prior: np.ndarray
    """[A] float32, the network's prior, normalised over the legal actions."""
    legal_mask: np.ndarray
    """[A] bool, True for the legal actions."""
    root_value: float
    """Mean value of all simulations; without simulations the network's value."""
    num_simulations: int
    """Of this search; below the requested number if time ran out or the tree was full."""
    choice: int | None = None
    """Action that a Gumbel search selected; None without one."""

    def ranking(self) -> list[int]:
        """Legal actions, best first: the choice of a Gumbel search, then by visits, prior and action number."""
        actions = np.flatnonzero(self.legal_mask)
        # `lexsort` compares the last key first.
        order = np.lexsort((actions, -self.prior[actions], -self.visit_counts[actions], actions != self.choice))
        return [int(action) for action in actions[order]]

    @property
    def best_value(self) -> float:
        """Mean value of the best action; without a visit the root's value."""
        best = self.ranking()[0]
        return float(self.q_values[best]) if self.visit_counts[best] else self.root_value


def read_tree(trees: Trees, tree: int, num_simulations: int, choice: int | None = None) -> SearchResult:
    """The result of a search without pending leaves; `choice` is the action that a Gumbel search selected."""
    num_actions = trees.action.shape[2]
    edges, visited = int(trees.num_edges[tree, 0]), int(trees.num_visited[tree, 0])
    action = trees.action[tree, 0]
    counts, q_values = np.zeros(num_actions, np.int32), np.zeros(num_actions, np.float32)
    prior, legal_mask = np.zeros(num_actions, np.float32), np.zeros(num_actions, np.bool_)
    # Arrays by edge become arrays by action; only visited edges have defined counts and value sums.
    prior[action[:edges]] = trees.prior[tree, 0, :edges]
    legal_mask[action[:edges]] = True
    counts[action[:visited]] = trees.visit_count[tree, 0, :visited]
    q_values[action[:visited]] = trees.value_sum[tree, 0, :visited] / trees.visit_count[tree, 0, :visited]
    return SearchResult(
        visit_counts=counts,
        q_values=q_values,
        prior=prior,
        legal_mask=legal_mask,
        root_value=float(root_value(trees, tree) if visited else trees.node_value[tree, 0]),
        num_simulations=num_simulations,
        choice=choice,
    )


def principal_variation(trees: Trees, tree: int, action: int) -> tuple[int, ...]:
    """An action of the root, the most visited reply, and so on; only the action if it has no visit."""
    visited = int(trees.num_visited[tree, 0]) if trees.num_nodes[tree] else 0
    edges = np.flatnonzero(trees.action[tree, 0, :visited] == action)
    child = int(trees.child[tree, 0, edges[0]]) if len(edges) else NO_CHILD
    return (action, *_most_visited_line(trees, tree, child))


def _most_visited_line(trees: Trees, tree: int, node: int) -> list[int]:
    actions = []
    while node != NO_CHILD and (visited := int(trees.num_visited[tree, node])):
        action, prior = trees.action[tree, node, :visited], trees.prior[tree, node, :visited]
        best = int(np.lexsort((action, -prior, -trees.visit_count[tree, node, :visited]))[0])
        actions.append(int(action[best]))
        node = int(trees.child[tree, node, best])
    return actions
