"""One simulation of the paper's search (Methods, 'Search algorithm'), cut where the network is asked.

`descend` selects to a leaf and makes its node; the caller has it judged; `set_prior` and `backup` finish. The PUCT rule

    argmax_a Q(s, a) + c_puct P(s, a) sqrt(sum_b N(s, b)) / (1 + N(s, a)),   Q(s, a) = W(s, a) / N(s, a)

is used with at least 1 under the root, so that the first choice at a node follows the prior. Before the first visit Q
is 0, as in the paper, or the mean value of the node (`parent_first_play`).
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
    """Edges from the root to the leaf of the simulation in hand, for each game."""

    node: np.ndarray  # [G, D] int32
    edge: np.ndarray  # [G, D] int32
    length: np.ndarray  # [G] int32


def new_path(num_games: int, max_depth: int) -> Path:
    """Empty paths."""
    shape = (num_games, max_depth)
    return Path(np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(num_games, np.int32))


@kernel
def select_edge(trees: Trees, tree: int, node: int, c_puct: np.float32, parent_first_play: bool) -> int:
    """The edge with the greatest PUCT score; of equals the lowest action. Without a visit only the first can be it."""
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    visit_count, value_sum = trees.visit_count[tree, node], trees.value_sum[tree, node]
    node_visits = max(1, trees.node_visits[tree, node])
    scale = c_puct * np.float32(math.sqrt(np.float32(node_visits)))
    first_play = trees.node_value_sum[tree, node] / np.float32(node_visits) if parent_first_play else np.float32(0.0)
    visited = trees.num_visited[tree, node]
    best, best_score = 0, np.float32(-np.inf)
    for e in range(visited):
        visits = np.float32(visit_count[e])
        q_value = value_sum[e] / visits if visits > np.float32(0.0) else first_play
        score = q_value + scale * prior[e] / (np.float32(1.0) + visits)
        if score > best_score or (score == best_score and action[e] < action[best]):
            best, best_score = e, score
    if visited < trees.num_edges[tree, node]:
        score = first_play + scale * prior[visited]
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
    parent_first_play: bool,
    position: Position,
    history: History,
    mask: np.ndarray,
    path: Path,
    game: int,
) -> int:
    """Selects down from the root to a leaf, which is made where it is new, and returns its node.

    `root_edge` is the first edge, or NO_EDGE for the one of the PUCT rule. The leaf is either new (judge it) or without
    edges, as the end of a game is (back up its `node_value`). On entry `position` is the root; writes into `position`,
    `history` (beyond the root), `mask`, `trees` and `path`.
    """
    node, edge = 0, root_edge
    num_nodes = trees.num_nodes[tree]
    path.length[game] = 0
    while node < num_nodes and trees.num_edges[tree, node] > 0:
        if edge == NO_EDGE:
            edge = select_edge(trees, tree, node, c_puct, parent_first_play)
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
    """Plays an edge and returns the node it leads to, which is made where it is new: its number is then the highest.

    Writes into `position`, `history`, `mask`, `trees` and `path`.
    """
    if edge >= trees.num_visited[tree, node]:
        edge = visit_edge(trees, tree, node, edge)
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
    """Makes the node of a position and returns its number. Writes into `trees` and `mask`."""
    legal_mask(rules, position, history, mask)
    value = 0.0
    if ended(position):
        value = float(outcome(rules, position) * position.state[TO_PLAY])
    return add_node(trees, tree, mask, value)


@kernel
def make_child(rules: Rules, trees: Trees, tree: int, position: Position, history: History, mask: np.ndarray) -> int:
    """As `make_node`, below the root. With `trees.pass_wins` a position that a pass would end and win is one without
    edges, worth a win: nobody need ask a network what the rules know. Uses the position's scratch.
    """
    asked = trees.pass_wins[0] and position.state[NUM_PASSES] == 1 and not ended(position)
    if asked and outcome(rules, position) * position.state[TO_PLAY] > 0:
        mask[:] = False
        return add_node(trees, tree, mask, 1.0)
    return make_node(rules, trees, tree, position, history, mask)


@kernel
def backup(trees: Trees, tree: int, value: np.float32, path: Path, game: int) -> None:
    """Counts a simulation along its path. `value` is seen by the player to move at the leaf. Writes into `trees`."""
    for depth in range(path.length[game] - 1, -1, -1):
        value = -value
        node, edge = path.node[game, depth], path.edge[game, depth]
        trees.visit_count[tree, node, edge] += 1
        trees.value_sum[tree, node, edge] += value
        trees.node_visits[tree, node] += 1
        trees.node_value_sum[tree, node] += value


@kernel
def root_value(trees: Trees, tree: int) -> np.float32:
    """Mean value of the root's simulations for the player to move; 0 before the first."""
    return np.float32(trees.node_value_sum[tree, 0] / np.float32(max(1, trees.node_visits[tree, 0])))
