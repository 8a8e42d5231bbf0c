"""One simulation of the paper's search (Methods, 'Search algorithm'), split at the network evaluation.

`descend` selects a leaf and adds its node. The caller evaluates it; `set_prior` and `backup` finish. The PUCT rule is

    argmax_a Q(s, a) + c_puct P(s, a) sqrt(sum_b N(s, b)) / (1 + N(s, a)),   Q(s, a) = W(s, a) / N(s, a).

The sum under the root counts as at least 1, so that the first selection at a node follows the prior. The first-play
urgency (FPU), Q before the first visit, is 0 as in the paper, or the mean value of the node (`fpu_from_parent`).
Slow twin: tests/oracle/mcts.py.
"""

import math
from typing import NamedTuple

import numpy as np

from zero.games.position import NUM_PASSES, TO_PLAY, History, Position, Rules
from zero.games.rules import ended, legal_mask, outcome, play
from zero.kernels import kernel
from zero.search.tree import NO_CHILD, NO_EDGE, Trees, add_node, visit_edge


class Path(NamedTuple):
    """Edges from the root to the leaf of the current simulation, for each game; D is the greatest depth."""

    node: np.ndarray  # [G, D] int32
    edge: np.ndarray  # [G, D] int32
    length: np.ndarray  # [G] int32, number of edges


def new_path(num_games: int, max_depth: int) -> Path:
    """Empty paths."""
    shape = (num_games, max_depth)
    return Path(np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(num_games, np.int32))


@kernel
def select_edge(trees: Trees, tree: int, node: int, c_puct: np.float32, fpu_from_parent: bool) -> int:
    """The edge with the greatest PUCT score. Ties go to the lowest action."""
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    visit_count, value_sum = trees.visit_count[tree, node], trees.value_sum[tree, node]
    node_visits = max(1, trees.node_visits[tree, node])
    scale = c_puct * np.float32(math.sqrt(np.float32(node_visits)))
    # W and this sum are both for the player to move at the node, so no sign changes.
    fpu = trees.node_value_sum[tree, node] / np.float32(node_visits) if fpu_from_parent else np.float32(0.0)
    visited = trees.num_visited[tree, node]
    best, best_score = 0, np.float32(-np.inf)
    # In float32 and in this order of operations, like the slow twin: equal trees depend on equal ties.
    for e in range(visited):
        visits = np.float32(visit_count[e])
        q_value = value_sum[e] / visits if visits > np.float32(0.0) else fpu
        score = q_value + scale * prior[e] / (np.float32(1.0) + visits)
        if score > best_score or (score == best_score and action[e] < action[best]):
            best, best_score = e, score
    # All unvisited edges have the same Q, so only the first of them, with the greatest prior, can win.
    if visited < trees.num_edges[tree, node]:
        score = fpu + scale * prior[visited]
        if score > best_score or (score == best_score and action[visited] < action[best]):
            best = visited
    return int(best)


@kernel
def descend(
    rules: Rules,
    trees: Trees,
    tree: int,
    root_edge: int,
    c_puct: np.float32,
    fpu_from_parent: bool,
    position: Position,
    history: History,
    mask: np.ndarray,
    path: Path,
    game: int,
) -> int:
    """Selects from the root down to a leaf, adds its node if it is new, and returns the node.

    Writes into `position`, `history` (beyond the root), `mask`, `trees` and `path`. On entry `position` is the root.
    `root_edge` is the first edge, or NO_EDGE to apply the PUCT rule. A new leaf needs an evaluation. A leaf without
    edges is terminal: back up its `node_value`.
    """
    node, edge = 0, root_edge
    # Nodes from this number on are added by this simulation: they have edges but no prior, so the descent ends there.
    num_nodes = trees.num_nodes[tree]
    path.length[game] = 0
    while node < num_nodes and trees.num_edges[tree, node] > 0:
        if edge == NO_EDGE:
            edge = select_edge(trees, tree, node, c_puct, fpu_from_parent)
        node = follow_edge(rules, trees, tree, node, edge, position, history, mask, path, game)
        edge = NO_EDGE
    return node


@kernel
def follow_edge(
    rules: Rules,
    trees: Trees,
    tree: int,
    node: int,
    edge: int,
    position: Position,
    history: History,
    mask: np.ndarray,
    path: Path,
    game: int,
) -> int:
    """Plays an edge, adds the child node if it is new, and returns it.

    Writes into `position`, `history`, `mask`, `trees` and `path`. A new node has the highest number of the tree.
    """
    if edge >= trees.num_visited[tree, node]:
        edge = visit_edge(trees, tree, node, edge)  # moves the edge to another index
    depth = path.length[game]
    path.node[game, depth] = node
    path.edge[game, depth] = edge
    path.length[game] = depth + 1
    play(rules, position, history, int(trees.action[tree, node, edge]))
    child = trees.child[tree, node, edge]
    if child == NO_CHILD:
        child = make_child(rules, trees, tree, position, history, mask)
        trees.child[tree, node, edge] = child
    return int(child)


@kernel
def make_node(rules: Rules, trees: Trees, tree: int, position: Position, history: History, mask: np.ndarray) -> int:
    """Adds the node of a position and returns its number. Writes into `trees` and `mask`."""
    legal_mask(rules, position, history, mask)
    value = 0.0
    if ended(position):
        # An outcome is for Black; times the player to move (+1 or -1) it is the value for that player.
        value = float(outcome(rules, position) * position.state[TO_PLAY])
    return add_node(trees, tree, mask, value)


@kernel
def make_child(rules: Rules, trees: Trees, tree: int, position: Position, history: History, mask: np.ndarray) -> int:
    """Adds a node below the root and returns its number. Writes into `trees`, `mask` and the position's scratch.

    With `trees.pass_wins`, a position that the player to move would win by a second pass is terminal and a win. The
    rules decide it, so it needs no evaluation.
    """
    # After one pass the player to move could end the game by a second one, and `outcome` scores the board as it would
    # be.
    can_end = trees.pass_wins[0] and position.state[NUM_PASSES] == 1 and not ended(position)
    if can_end and outcome(rules, position) * position.state[TO_PLAY] > 0:
        # No edges mark a node as terminal. The root is never made here, since it would have no move to choose.
        mask[:] = False
        return add_node(trees, tree, mask, 1.0)
    return make_node(rules, trees, tree, position, history, mask)


@kernel
def backup(trees: Trees, tree: int, value: np.float32, path: Path, game: int) -> None:
    """Adds a simulation to its path; `value` is for the player to move at the leaf. Writes into `trees`."""
    for depth in range(path.length[game] - 1, -1, -1):
        value = -value  # the players alternate
        node, edge = path.node[game, depth], path.edge[game, depth]
        trees.visit_count[tree, node, edge] += 1
        trees.value_sum[tree, node, edge] += value
        # Sums over the edges are stored, so that a selection does not have to add them up.
        trees.node_visits[tree, node] += 1
        trees.node_value_sum[tree, node] += value


@kernel
def root_value(trees: Trees, tree: int) -> np.float32:
    """Mean value of the root's simulations for the player to move; 0 before the first."""
    # The numerator is 0 before the first simulation; the maximum only avoids 0 / 0.
    return np.float32(trees.node_value_sum[tree, 0] / np.float32(max(1, trees.node_visits[tree, 0])))
