"""Search trees as flat arrays, many side by side: allocation, root noise, and the move of the root to a child.

Nodes of a tree are numbered in the order they were made, so a child's number is above its parent's; `reroot` keeps
that order, which lets it move rows in place and cut a subtree that is too large at its newest nodes.
"""

from typing import NamedTuple

import numpy as np

from zero._jit import kernel
from zero.search.streams import next_gamma

NO_CHILD = -1


class Trees(NamedTuple):
    """Trees T, nodes N, edges E <= A a node; edge (t, n, e) is the legal action `action[t, n, e]` at node n."""

    action: np.ndarray  # [T, N, A] int16
    prior: np.ndarray  # [T, N, A] float32    P(s, a)
    visit_count: np.ndarray  # [T, N, A] int32    N(s, a)
    value_sum: np.ndarray  # [T, N, A] float32    W(s, a), seen by the player to move at n
    child: np.ndarray  # [T, N, A] int32    node the edge leads to, or NO_CHILD
    num_edges: np.ndarray  # [T, N] int32    legal actions; 0 where the game has ended
    node_visits: np.ndarray  # [T, N] int32    sum of N(s, a) over the edges
    node_value_sum: np.ndarray  # [T, N] float32    sum of W(s, a) over the edges
    end_value: np.ndarray  # [T, N] float32    value of an ended game for the player to move there
    num_nodes: np.ndarray  # [T] int32
    renumbering: np.ndarray  # [N] int32, scratch of `reroot`
    noise: np.ndarray  # [A] float32, scratch of `add_root_noise`


def new_trees(num_trees: int, max_nodes: int, num_actions: int) -> Trees:
    """Empty trees of at most `max_nodes` nodes each."""
    edges = (num_trees, max_nodes, num_actions)
    return Trees(
        action=np.zeros(edges, np.int16),
        prior=np.zeros(edges, np.float32),
        visit_count=np.zeros(edges, np.int32),
        value_sum=np.zeros(edges, np.float32),
        child=np.zeros(edges, np.int32),
        num_edges=np.zeros(edges[:2], np.int32),
        node_visits=np.zeros(edges[:2], np.int32),
        node_value_sum=np.zeros(edges[:2], np.float32),
        end_value=np.zeros(edges[:2], np.float32),
        num_nodes=np.zeros(num_trees, np.int32),
        renumbering=np.zeros(max_nodes, np.int32),
        noise=np.zeros(num_actions, np.float32),
    )


@kernel
def clear(trees: Trees, tree: int) -> None:
    """Empties a tree. Writes into `trees`."""
    trees.num_nodes[tree] = 0


@kernel
def add_node(trees: Trees, tree: int, legal_mask: np.ndarray, end_value: float) -> int:
    """Makes a node with an edge for each legal action and returns its number. Writes into `trees`."""
    node = int(trees.num_nodes[tree])
    trees.num_nodes[tree] = node + 1
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    visit_count, value_sum, child = trees.visit_count[tree, node], trees.value_sum[tree, node], trees.child[tree, node]
    edges = 0
    for a in range(legal_mask.shape[0]):
        if legal_mask[a]:
            action[edges] = a
            prior[edges] = 0.0
            visit_count[edges] = 0
            value_sum[edges] = 0.0
            child[edges] = NO_CHILD
            edges += 1
    trees.num_edges[tree, node] = edges
    trees.node_visits[tree, node] = 0
    trees.node_value_sum[tree, node] = 0.0
    trees.end_value[tree, node] = end_value
    return node


@kernel
def set_prior(trees: Trees, tree: int, node: int, prior: np.ndarray, symmetry: np.ndarray) -> None:
    """Gives the edges of a node their share of the network's prior. Writes into `trees`.

    `prior` ([A]) was judged under a symmetry: action a is its entry `symmetry[a]`. What it puts on illegal actions is
    dealt out in proportion; a prior of nothing becomes a uniform one.
    """
    edges = trees.num_edges[tree, node]
    action, target = trees.action[tree, node], trees.prior[tree, node]
    total = np.float32(0.0)
    for e in range(edges):
        target[e] = prior[symmetry[action[e]]]
        total += target[e]
    for e in range(edges):
        target[e] = target[e] / total if total > np.float32(0.0) else np.float32(1.0) / np.float32(edges)


@kernel
def add_root_noise(trees: Trees, tree: int, concentration: float, fraction: float, stream: np.ndarray) -> None:
    """Mixes Dirichlet(concentration / edges) noise into the root's prior. Writes into `trees` and `stream`.

    At 19x19 a concentration of 10.83 is the paper's alpha of 0.03.
    """
    edges = trees.num_edges[tree, 0]
    prior = trees.prior[tree, 0]
    noise = trees.noise
    total = np.float32(0.0)
    for e in range(edges):
        noise[e] = next_gamma(stream, concentration / edges)
        total += noise[e]
    if total > np.float32(0.0):
        for e in range(edges):
            prior[e] = (np.float32(1.0) - np.float32(fraction)) * prior[e] + np.float32(fraction) * noise[e] / total


@kernel
def reroot(trees: Trees, tree: int, played: int, max_kept: int) -> None:
    """Makes the child of `played` the root with `max_kept` nodes at most, or empties the tree. Writes into `trees`."""
    root = NO_CHILD
    if trees.num_nodes[tree] > 0:
        for e in range(trees.num_edges[tree, 0]):
            if trees.action[tree, 0, e] == played:
                root = trees.child[tree, 0, e]
    if root == NO_CHILD or trees.num_edges[tree, root] == 0:
        trees.num_nodes[tree] = 0
        return
    num_nodes = trees.num_nodes[tree]
    number = trees.renumbering
    for node in range(num_nodes):
        number[node] = NO_CHILD
    number[root] = 0
    kept = 0
    for node in range(root, num_nodes):
        if number[node] == NO_CHILD:
            continue
        if kept == max_kept:
            number[node] = NO_CHILD
            continue
        number[node] = kept
        kept += 1
        child = trees.child[tree, node]
        for e in range(trees.num_edges[tree, node]):
            if child[e] != NO_CHILD:
                number[child[e]] = 0
    for node in range(root, num_nodes):
        if number[node] != NO_CHILD:
            _move_row(trees, tree, node, number[node])
    trees.num_nodes[tree] = kept


@kernel
def _move_row(trees: Trees, tree: int, node: int, target: int) -> None:
    """Copies a node to row `target` <= `node`, its children renumbered. Writes into `trees`."""
    number = trees.renumbering
    edges = trees.num_edges[tree, node]
    for e in range(edges):
        trees.action[tree, target, e] = trees.action[tree, node, e]
        trees.prior[tree, target, e] = trees.prior[tree, node, e]
        trees.visit_count[tree, target, e] = trees.visit_count[tree, node, e]
        trees.value_sum[tree, target, e] = trees.value_sum[tree, node, e]
        child = trees.child[tree, node, e]
        trees.child[tree, target, e] = NO_CHILD if child == NO_CHILD else number[child]
    trees.num_edges[tree, target] = edges
    trees.node_visits[tree, target] = trees.node_visits[tree, node]
    trees.node_value_sum[tree, target] = trees.node_value_sum[tree, node]
    trees.end_value[tree, target] = trees.end_value[tree, node]
