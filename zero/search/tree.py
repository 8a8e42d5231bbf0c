"""Search trees as flat arrays: allocation, edges, root noise, and reuse of a subtree.

Nodes are numbered in the order of their creation, so a child has a higher number than its parent. `reroot` keeps this
order. It can therefore move rows in place, and drop the newest nodes of a subtree that is too large.
"""

from typing import NamedTuple

import numpy as np

from zero.kernels import kernel
from zero.search.streams import next_gamma

NO_CHILD = -1
NO_EDGE = -1


class Trees(NamedTuple):
    """T trees of N nodes with up to A edges each; edge (t, n, e) is the legal action `action[t, n, e]` at node n.

    The visited edges of a node come first, in the order of their first visits. Visit counts, value sums and children
    are undefined for the other edges. The first of those has the greatest prior (ties: the lowest action). So a
    selection reads the visited edges and one more, and a new node writes to few cache lines.
    """

    # Arrays of their own, so that a new node writes only its actions and priors (docs/decisions/0006).
    action: np.ndarray  # [T, N, A] int16
    prior: np.ndarray  # [T, N, A] float32    P(s, a)
    visit_count: np.ndarray  # [T, N, A] int32    N(s, a), visited edges only
    value_sum: np.ndarray  # [T, N, A] float32    W(s, a) for the player to move at n, visited edges only
    child: np.ndarray  # [T, N, A] int32    node that the edge leads to, or NO_CHILD; visited edges only
    num_edges: np.ndarray  # [T, N] int32    legal actions; 0 if the game has ended or is decided (`pass_wins`)
    num_visited: np.ndarray  # [T, N] int32    edges with a visit, backed up or in flight
    node_visits: np.ndarray  # [T, N] int32    sum of N(s, a) over the edges
    node_value_sum: np.ndarray  # [T, N] float32    sum of W(s, a) over the edges
    node_value: (
        np.ndarray
    )  # [T, N] float32    for the player to move: the network's, or the result at a node without edges
    num_nodes: np.ndarray  # [T] int32
    renumbering: np.ndarray  # [N] int32, scratch of `reroot`
    noise: np.ndarray  # [A] float32, scratch of `add_root_noise`
    edge_of: np.ndarray  # [A] int32, scratch: the root's edge for an action, or NO_EDGE
    pass_wins: np.ndarray  # [1] bool, True: below the root, a position that a second pass would win is a win (terminal)


def new_trees(num_trees: int, max_nodes: int, num_actions: int, pass_wins: bool = False) -> Trees:
    """Empty trees of at most `max_nodes` nodes each."""
    # The operating system provides zeros page by page, so a tree takes memory only as nodes are added.
    edges = (num_trees, max_nodes, num_actions)
    return Trees(
        action=np.zeros(edges, np.int16),
        prior=np.zeros(edges, np.float32),
        visit_count=np.zeros(edges, np.int32),
        value_sum=np.zeros(edges, np.float32),
        child=np.zeros(edges, np.int32),
        num_edges=np.zeros(edges[:2], np.int32),
        num_visited=np.zeros(edges[:2], np.int32),
        node_visits=np.zeros(edges[:2], np.int32),
        node_value_sum=np.zeros(edges[:2], np.float32),
        node_value=np.zeros(edges[:2], np.float32),
        num_nodes=np.zeros(num_trees, np.int32),
        renumbering=np.zeros(max_nodes, np.int32),
        noise=np.zeros(num_actions, np.float32),
        edge_of=np.zeros(num_actions, np.int32),
        pass_wins=np.array([pass_wins], np.bool_),
    )


@kernel
def clear(trees: Trees, tree: int) -> None:
    """Empties a tree. Writes into `trees`."""
    # The rows keep old data: `add_node`, `set_prior` and `visit_edge` initialise what is read, so this takes no time.
    trees.num_nodes[tree] = 0


@kernel
def add_node(trees: Trees, tree: int, legal_mask: np.ndarray, value: float) -> int:
    """Adds a node with one edge per legal action, without priors, and returns its number. Writes into `trees`.

    `value` is the result for the player to move if the game has ended, else 0.
    """
    node = int(trees.num_nodes[tree])
    trees.num_nodes[tree] = node + 1
    action = trees.action[tree, node]
    edges = 0
    for a in range(legal_mask.shape[0]):
        action[edges] = a  # no branch in this hot loop: the next action overwrites an illegal one
        edges += legal_mask[a]
    trees.num_edges[tree, node] = edges
    trees.num_visited[tree, node] = 0
    trees.node_visits[tree, node] = 0
    trees.node_value_sum[tree, node] = 0.0
    trees.node_value[tree, node] = value
    return node


@kernel
def set_prior(trees: Trees, tree: int, node: int, prior: np.ndarray, value: np.float32, symmetry: np.ndarray) -> None:
    """Stores the network's value of a node and its prior, normalised over the legal actions. Writes into `trees`.

    The network saw the position under a symmetry: its probability of action a is `prior[symmetry[a]]` (`prior` is [A]).
    If all legal actions have probability 0, the prior becomes uniform.
    """
    edges = trees.num_edges[tree, node]
    action, target = trees.action[tree, node], trees.prior[tree, node]
    total = np.float32(0.0)
    # A new node has its edges in the order of the actions, so the float32 sum is the same in every tree.
    for e in range(edges):
        target[e] = prior[symmetry[action[e]]]
        total += target[e]
    for e in range(edges):
        target[e] = target[e] / total if total > np.float32(0.0) else np.float32(1.0) / np.float32(edges)
    trees.node_value[tree, node] = value
    promote_best(trees, tree, node)


@kernel
def promote_best(trees: Trees, tree: int, node: int) -> None:
    """Moves the edge with the greatest prior to the front of the unvisited edges. Writes into `trees`."""
    # One scan per new visit instead of sorting all edges: most nodes get few visits.
    first, edges = trees.num_visited[tree, node], trees.num_edges[tree, node]
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    best = first
    for e in range(first + 1, edges):
        if prior[e] > prior[best] or (prior[e] == prior[best] and action[e] < action[best]):
            best = e
    if best != first:
        action[first], action[best] = action[best], action[first]
        prior[first], prior[best] = prior[best], prior[first]


@kernel
def visit_edge(trees: Trees, tree: int, node: int, edge: int) -> int:
    """Turns an unvisited edge into the last visited one and returns its new index. Writes into `trees`."""
    index = trees.num_visited[tree, node]
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    # Swaps the edge with the first unvisited one; `promote_best` then restores the order of the rest.
    action[index], action[edge] = action[edge], action[index]
    prior[index], prior[edge] = prior[edge], prior[index]
    trees.visit_count[tree, node, index] = 0
    trees.value_sum[tree, node, index] = 0.0
    trees.child[tree, node, index] = NO_CHILD
    trees.num_visited[tree, node] = index + 1
    promote_best(trees, tree, node)
    return int(index)


@kernel
def index_root(trees: Trees, tree: int) -> None:
    """Finds the root's edge for each action. Writes into `trees.edge_of`."""
    edge_of = trees.edge_of
    edge_of[:] = NO_EDGE
    for e in range(trees.num_edges[tree, 0]):
        edge_of[trees.action[tree, 0, e]] = e


@kernel
def add_root_noise(trees: Trees, tree: int, concentration: float, fraction: float, stream: np.ndarray) -> None:
    """Mixes Dirichlet noise of alpha = concentration / edges into the root's prior. Writes into `trees` and `stream`.

    At 19x19 a concentration of 10.83 gives the paper's alpha of 0.03. Numbers are drawn in the order of the actions, so
    they do not depend on earlier visits.
    """
    edges = trees.num_edges[tree, 0]
    prior = trees.prior[tree, 0]
    noise = trees.noise
    index_root(trees, tree)
    total = np.float32(0.0)
    for a in range(trees.edge_of.shape[0]):
        e = trees.edge_of[a]
        if e != NO_EDGE:
            noise[e] = next_gamma(stream, concentration / edges)
            total += noise[e]
    # With a small alpha the numbers can underflow to 0 in float32; if all do, the prior stays without noise.
    if total > np.float32(0.0):
        for e in range(edges):
            prior[e] = (np.float32(1.0) - np.float32(fraction)) * prior[e] + np.float32(fraction) * noise[e] / total
        # The noise may have changed which unvisited edge has the greatest prior.
        promote_best(trees, tree, 0)


@kernel
def reroot(trees: Trees, tree: int, played: int, max_kept: int) -> None:
    """Makes the child of `played` the root and keeps at most `max_kept` nodes, with the root. Writes into `trees`.

    The tree becomes empty if the child does not exist or has no edges.
    """
    root = NO_CHILD
    if trees.num_nodes[tree] > 0:
        for e in range(trees.num_visited[tree, 0]):
            if trees.action[tree, 0, e] == played:
                root = trees.child[tree, 0, e]
    # A child without edges ended a simulation, by the rules or by `pass_wins`. The root needs edges, so it is made
    # again.
    if root == NO_CHILD or trees.num_edges[tree, root] == 0:
        trees.num_nodes[tree] = 0
        return
    num_nodes = trees.num_nodes[tree]
    number = trees.renumbering
    for node in range(num_nodes):
        number[node] = NO_CHILD
    number[root] = 0
    kept = 0
    # One pass in ascending order: a parent marks its children (0) before the loop reaches and numbers them.
    for node in range(root, num_nodes):
        if number[node] == NO_CHILD:
            continue
        # What is dropped here are the newest nodes. The edges to them keep counts and values, and lose only the child.
        if kept >= max_kept:
            number[node] = NO_CHILD
            continue
        number[node] = kept
        kept += 1
        child = trees.child[tree, node]
        for e in range(trees.num_visited[tree, node]):
            if child[e] != NO_CHILD:
                number[child[e]] = 0
    for node in range(root, num_nodes):
        if number[node] != NO_CHILD:
            # Targets never exceed their sources and both ascend, so no row is overwritten before it was read.
            _move_row(trees, tree, node, number[node])
    trees.num_nodes[tree] = kept


@kernel
def _move_row(trees: Trees, tree: int, node: int, target: int) -> None:
    """Copies a node to row `target` <= `node` with renumbered children. Writes into `trees`."""
    number = trees.renumbering
    edges, visited = trees.num_edges[tree, node], trees.num_visited[tree, node]
    for e in range(edges):
        trees.action[tree, target, e] = trees.action[tree, node, e]
        trees.prior[tree, target, e] = trees.prior[tree, node, e]
    for e in range(visited):
        trees.visit_count[tree, target, e] = trees.visit_count[tree, node, e]
        trees.value_sum[tree, target, e] = trees.value_sum[tree, node, e]
        child = trees.child[tree, node, e]
        trees.child[tree, target, e] = NO_CHILD if child == NO_CHILD else number[child]
    trees.num_edges[tree, target] = edges
    trees.num_visited[tree, target] = visited
    trees.node_visits[tree, target] = trees.node_visits[tree, node]
    trees.node_value_sum[tree, target] = trees.node_value_sum[tree, node]
    trees.node_value[tree, target] = trees.node_value[tree, node]
