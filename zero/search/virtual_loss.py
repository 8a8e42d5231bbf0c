"""Several pending leaves of one tree, so that a single game fills a batch: for GTP and the web page.

While a simulation is in flight, each edge of its path counts `virtual_loss` extra visits, all lost for the player who
chose the edge. So the next simulation selects other leaves (Silver et al. 2016, 'Mastering the game of Go with deep
neural networks and tree search', Methods; Segal 2011, 'On the scalability of parallel UCT'). The extra visits are not
stored in the tree: each selection counts them from the paths in flight. So no loss has to be reverted, and one
leaf at a time equals the search of `mcts` or `gumbel`, bit for bit.

A Gumbel root halves its actions over the simulations of one call; there, visits in flight count without a loss.

Not for games in lock-step (`zero.play.lockstep_games`), which fill a batch without selecting worse leaves. No root
noise. Slow twins: tests/oracle/mcts.py, tests/oracle/gumbel.py.
"""

import math
from typing import NamedTuple

import numpy as np

from zero.games.planes import write_planes
from zero.games.position import NUM_PLANES, History, Position, Rules, load, new_position
from zero.games.rules import play
from zero.kernels import kernel
from zero.search.gumbel import GumbelRoots, begin_gumbel_search, select_gumbel_edge, select_root_edge
from zero.search.mcts import Path, backup, make_child, make_node, new_path, select_edge
from zero.search.streams import next_below
from zero.search.tree import NO_CHILD, Trees, set_prior, visit_edge

NO_LEAF = -1
"""Result of a selection that reaches a leaf that is already pending, or needs a new node in a full tree."""


class ParallelSettings(NamedTuple):
    """Search settings of one tree; an argument of the kernels."""

    c_puct: float
    fpu_from_parent: bool  # first-play urgency: the mean value of the node, else 0
    random_symmetry: bool
    virtual_loss: int  # lost visits that an edge counts per simulation in flight
    considered_actions: int  # of a Gumbel root; 0: PUCT


class PendingLeaves(NamedTuple):
    """Up to K simulations in flight of one tree, whose leaves wait for an evaluation; one row of the batch each."""

    num_pending: np.ndarray  # [1] int32, rows in use
    simulations_left: np.ndarray  # [1] int32, not started yet
    path: Path  # K paths
    leaf: np.ndarray  # [K] int32, node
    symmetry: np.ndarray  # [K] int32, symmetry that the network sees the leaf under
    planes: np.ndarray  # [K, P, W] uint64, see `zero.games.planes`
    prior: np.ndarray  # [K, A] float32, result of the evaluation
    value: np.ndarray  # [K] float32, result of the evaluation
    roots: GumbelRoots  # also counts the simulations in flight through each edge of one node
    is_new_root: np.ndarray  # [1] bool, True: the next simulation begins a Gumbel search of the root
    position: Position  # scratch: position of the current simulation
    mask: np.ndarray  # [A] bool, scratch


def new_pending_leaves(rules: Rules, num_leaves: int, max_nodes: int, roots: GumbelRoots) -> PendingLeaves:
    """Room for `num_leaves` simulations in flight in a tree of at most `max_nodes` nodes; none is in flight."""
    return PendingLeaves(
        num_pending=np.zeros(1, np.int32),
        simulations_left=np.zeros(1, np.int32),
        path=new_path(num_leaves, min(max_nodes, rules.max_moves) + 1),
        leaf=np.zeros(num_leaves, np.int32),
        symmetry=np.zeros(num_leaves, np.int32),
        planes=np.zeros((num_leaves, NUM_PLANES, rules.num_words), np.uint64),
        prior=np.zeros((num_leaves, rules.num_actions), np.float32),
        value=np.zeros(num_leaves, np.float32),
        roots=roots,
        is_new_root=np.ones(1, np.bool_),
        position=new_position(rules),
        mask=np.zeros(rules.num_actions, np.bool_),
    )


@kernel
def select_leaves(
    rules: Rules,
    settings: ParallelSettings,
    trees: Trees,
    tree: int,
    roots: Position,
    history: History,
    pending: PendingLeaves,
    stream: np.ndarray,
) -> int:
    """Starts simulations and returns the number of pending leaves; 0 means that the search has ended.

    Writes into `history` (beyond the root), `trees`, `pending` and `stream`. On entry no leaf is pending.

    It stops at K leaves, when no simulation is left, or before a simulation that has no leaf (`NO_LEAF`). A simulation
    that reaches the end of a game is backed up at once. The root of an empty tree is evaluated alone and is not a
    simulation. So 0 while `simulations_left` is above 0 means that the tree is full. If `is_new_root` is set, a Gumbel
    search over all `simulations_left` begins.

    `roots` (leading axis 1) is the position at the root, of a game that has not ended, and `history` is the history of
    that game.
    """
    position = pending.position
    if settings.considered_actions > 0 and pending.is_new_root[0] and trees.num_nodes[tree] > 0:
        pending.is_new_root[0] = False
        considered, simulations = settings.considered_actions, pending.simulations_left[0]
        # A scale of 0, as in a match: this player chooses the best move, and the stream is only for symmetries.
        begin_gumbel_search(pending.roots, trees, tree, considered, simulations, 0.0, stream)
    while pending.num_pending[0] < pending.leaf.shape[0]:
        row = pending.num_pending[0]
        load(roots, 0, position)
        if trees.num_nodes[tree] == 0:
            # The evaluation of the root has an empty path: it is backed up nowhere and is not a simulation.
            pending.path.length[row] = 0
            leaf = make_node(rules, trees, tree, position, history, pending.mask)
        elif pending.simulations_left[0] == 0:
            break
        else:
            leaf = _descend(rules, settings, trees, tree, position, history, pending)
            # Going on would select the same leaf again, because the tree does not change before the evaluations arrive.
            if leaf == NO_LEAF:
                break
            pending.simulations_left[0] -= 1
            if trees.num_edges[tree, leaf] == 0:
                # A terminal leaf needs no network; the row is used again for the next simulation.
                backup(trees, tree, trees.node_value[tree, leaf], pending.path, row)
                continue
        symmetry = next_below(stream, rules.symmetries.shape[0]) if settings.random_symmetry else 0
        write_planes(rules, position, history, symmetry, pending.planes[row])
        pending.leaf[row] = leaf
        pending.symmetry[row] = symmetry
        pending.num_pending[0] = row + 1
    return int(pending.num_pending[0])


@kernel
def backup_leaves(rules: Rules, trees: Trees, tree: int, pending: PendingLeaves) -> None:
    """Backs up the evaluations of all pending leaves, in order of selection. Writes into `trees` and `pending`."""
    for row in range(pending.num_pending[0]):
        value = pending.value[row]
        symmetry = rules.symmetries[pending.symmetry[row]]
        set_prior(trees, tree, pending.leaf[row], pending.prior[row], value, symmetry)
        backup(trees, tree, value, pending.path, row)
    pending.num_pending[0] = 0
    # `gumbel_choice` reads these counts too, after the search.
    pending.roots.in_flight[:] = 0
    pending.roots.num_in_flight[0] = 0


@kernel
def _descend(
    rules: Rules,
    settings: ParallelSettings,
    trees: Trees,
    tree: int,
    position: Position,
    history: History,
    pending: PendingLeaves,
) -> int:
    """Selects from the root down to a leaf, adds its node if it is new, and returns the node or `NO_LEAF`.

    Writes into everything except the rules; `NO_LEAF` leaves the tree unchanged. On entry `position` is the root.
    """
    row = pending.num_pending[0]
    node, depth = 0, 0
    while trees.num_edges[tree, node] > 0:
        if _is_pending(pending, node):
            return NO_LEAF
        edge = _select_edge(settings, trees, tree, node, pending, depth)
        # The child of an unvisited edge is undefined, not NO_CHILD.
        child = trees.child[tree, node, edge] if edge < trees.num_visited[tree, node] else NO_CHILD
        # Before the tree changes: a selection without a leaf must leave no trace.
        if child == NO_CHILD and trees.num_nodes[tree] == trees.action.shape[1]:
            return NO_LEAF
        if edge >= trees.num_visited[tree, node]:
            edge = visit_edge(trees, tree, node, edge)
        pending.path.node[row, depth] = node
        pending.path.edge[row, depth] = edge
        depth += 1
        play(rules, position, history, int(trees.action[tree, node, edge]))
        if child == NO_CHILD:
            child = make_child(rules, trees, tree, position, history, pending.mask)
            trees.child[tree, node, edge] = child
            node = child
            break
        node = child
    pending.path.length[row] = depth
    return int(node)


@kernel
def _is_pending(pending: PendingLeaves, node: int) -> bool:
    """True if a node is a pending leaf: it has no prior yet."""
    found = False
    for row in range(pending.num_pending[0]):
        found |= pending.leaf[row] == node
    return found


@kernel
def _select_edge(
    settings: ParallelSettings, trees: Trees, tree: int, node: int, pending: PendingLeaves, depth: int
) -> int:
    """The edge with the greatest PUCT score, virtual losses included. Writes into the scratch of `pending.roots`.

    Ties go to the lowest action. A Gumbel root follows its schedule instead, the nodes below it the improved policy. An
    edge without any visit, backed up or in flight, has the first-play urgency of `mcts`.
    """
    c_puct = np.float32(settings.c_puct)
    num_in_flight = _count_in_flight(trees, tree, node, pending, depth)
    if settings.considered_actions > 0:
        roots = pending.roots
        if node == 0:
            return select_root_edge(roots, trees, tree, roots.num_simulations[tree] - pending.simulations_left[0])
        return select_gumbel_edge(roots, trees, tree, node)
    # The same kernel as in lock-step games, so that one leaf at a time gives the same tree to the last bit.
    if num_in_flight == 0:
        return select_edge(trees, tree, node, c_puct, settings.fpu_from_parent)
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    visit_count, value_sum = trees.visit_count[tree, node], trees.value_sum[tree, node]
    backed_up = np.float32(max(1, trees.node_visits[tree, node]))
    # Without the virtual losses: they say nothing about the value of an unvisited edge.
    fpu = trees.node_value_sum[tree, node] / backed_up if settings.fpu_from_parent else np.float32(0.0)
    node_visits = np.float32(trees.node_visits[tree, node] + settings.virtual_loss * num_in_flight)
    scale = c_puct * np.float32(math.sqrt(node_visits))
    visited = trees.num_visited[tree, node]
    best, best_score = 0, np.float32(-np.inf)
    for e in range(visited):
        extra = settings.virtual_loss * pending.roots.in_flight[e]
        # With a virtual loss of 0, an edge that has only simulations in flight has no visits here.
        visits = np.float32(visit_count[e] + extra)
        # Each virtual loss is a visit of value -1 for the player to move at the node.
        q_value = (value_sum[e] - np.float32(extra)) / visits if visits > np.float32(0.0) else fpu
        score = q_value + scale * prior[e] / (np.float32(1.0) + visits)
        if score > best_score or (score == best_score and action[e] < action[best]):
            best, best_score = e, score
    if visited < trees.num_edges[tree, node]:
        score = fpu + scale * prior[visited]
        if score > best_score or (score == best_score and action[visited] < action[best]):
            best = visited
    return int(best)


@kernel
def _count_in_flight(trees: Trees, tree: int, node: int, pending: PendingLeaves, depth: int) -> int:
    """Number of simulations in flight through a node at `depth`. Writes the numbers of its edges into `pending.roots`.

    Each node has one path from the root, so a simulation passes through it at this depth or not at all.
    """
    in_flight = pending.roots.in_flight
    for e in range(trees.num_visited[tree, node]):
        in_flight[e] = 0
    total = 0
    for row in range(pending.num_pending[0]):
        if depth < pending.path.length[row] and pending.path.node[row, depth] == node:
            in_flight[pending.path.edge[row, depth]] += 1
            total += 1
    pending.roots.num_in_flight[0] = total
    return total
