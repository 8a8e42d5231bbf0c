"""Several leaves of one tree on their way at once, so that a single game fills a batch: for GTP and a web page.

While a simulation is on its way each edge of its path counts `virtual_loss` visits more, all lost for the player who
chose it, so that the next simulation looks elsewhere (Silver et al. 2016, 'Mastering the game of Go with deep neural
networks and tree search', Methods; Segal 2011, 'On the scalability of parallel UCT'). None of that is written into the
tree: a later simulation counts the extra visits of a node anew, from the paths on their way through it. So there is
nothing to take back, and one leaf at a time is the search of `mcts` or `gumbel`, bit for bit.

A Gumbel root halves its actions over the simulations of one call; visits on their way count there without a loss.

Not for games in lock-step (`zero.play.boards`): they fill a batch without looking at worse leaves. No root noise.
Slow twins: tests/oracle/mcts.py, tests/oracle/gumbel.py.
"""

import math
from typing import NamedTuple

import numpy as np

from zero.games.planes import write_planes
from zero.games.position import NUM_PLANES, History, Position, Rules, load, new_position
from zero.games.rules import play
from zero.kernels import kernel
from zero.search.gumbel import GumbelRoots, draw_gumbel, select_gumbel_edge, select_root_edge
from zero.search.mcts import Path, backup, make_child, make_node, new_path, select_edge
from zero.search.streams import next_below
from zero.search.tree import NO_CHILD, Trees, set_prior, visit_edge

NO_LEAF = -1
"""Where a simulation cannot go on: to a leaf that is on its way already, or to a new node of a full tree."""


class ParallelSettings(NamedTuple):
    """How one tree is searched; an argument of the kernels."""

    c_puct: float
    parent_first_play: bool
    random_symmetry: bool
    virtual_loss: int  # lost visits of an edge for each simulation on its way through it
    considered_actions: int  # of a Gumbel root; 0: PUCT


class Flight(NamedTuple):
    """Simulations of one tree on their way to their values: at most K, and one row of the batch each."""

    num_on_way: np.ndarray  # [1] int32, rows in use
    simulations_left: np.ndarray  # [1] int32, not begun yet
    path: Path  # K paths
    leaf: np.ndarray  # [K] int32, node that waits for an answer
    symmetry: np.ndarray  # [K] int32, under which it is shown
    planes: np.ndarray  # [K, P, W] uint64, see `zero.games.planes`
    prior: np.ndarray  # [K, A] float32, the answers
    value: np.ndarray  # [K] float32
    roots: GumbelRoots  # also counts the simulations on their way through each edge of one node
    is_new_root: np.ndarray  # [1] bool, a Gumbel search of the root has yet to begin
    position: Position  # scratch: the position a simulation walks
    mask: np.ndarray  # [A] bool, scratch


def new_flight(rules: Rules, num_leaves: int, max_nodes: int, roots: GumbelRoots) -> Flight:
    """Room for `num_leaves` simulations in a tree of at most `max_nodes` nodes; none is on its way."""
    return Flight(
        num_on_way=np.zeros(1, np.int32),
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
def gather(
    rules: Rules,
    settings: ParallelSettings,
    trees: Trees,
    tree: int,
    roots: Position,
    history: History,
    flight: Flight,
    stream: np.ndarray,
) -> int:
    """Sends simulations on their way and returns how many wait for an answer; 0: the search has ended.

    It stops at K leaves, where no simulation is left, and before one that has nowhere to go (`NO_LEAF`). A simulation
    that comes to the end of a game is counted at once. The root of an empty tree is asked for alone, and is no
    simulation. So 0 with `simulations_left` means a full tree. On entry none is on its way (`scatter`). A Gumbel search
    over all of `simulations_left` begins where `is_new_root` says so.

    `roots` (leading axis 1) is the position at the root, in a game that has not ended, and `history` that game's.
    Writes into `history` (beyond the root), `trees`, `flight` and `stream`.
    """
    position = flight.position
    if settings.considered_actions > 0 and flight.is_new_root[0] and trees.num_nodes[tree] > 0:
        flight.is_new_root[0] = False
        considered, simulations = settings.considered_actions, flight.simulations_left[0]
        draw_gumbel(flight.roots, trees, tree, considered, simulations, 0.0, stream)
    while flight.num_on_way[0] < flight.leaf.shape[0]:
        row = flight.num_on_way[0]
        load(roots, 0, position)
        if trees.num_nodes[tree] == 0:
            flight.path.length[row] = 0
            leaf = make_node(rules, trees, tree, position, history, flight.mask)
        elif flight.simulations_left[0] == 0:
            break
        else:
            leaf = _descend(rules, settings, trees, tree, position, history, flight)
            if leaf == NO_LEAF:
                break
            flight.simulations_left[0] -= 1
            if trees.num_edges[tree, leaf] == 0:
                backup(trees, tree, trees.node_value[tree, leaf], flight.path, row)
                continue
        symmetry = next_below(stream, rules.symmetries.shape[0]) if settings.random_symmetry else 0
        write_planes(rules, position, history, symmetry, flight.planes[row])
        flight.leaf[row] = leaf
        flight.symmetry[row] = symmetry
        flight.num_on_way[0] = row + 1
    return int(flight.num_on_way[0])


@kernel
def scatter(rules: Rules, trees: Trees, tree: int, flight: Flight) -> None:
    """Takes the answers of all leaves on their way, in the order they were sent. Writes into `trees` and `flight`."""
    for row in range(flight.num_on_way[0]):
        value = flight.value[row]
        symmetry = rules.symmetries[flight.symmetry[row]]
        set_prior(trees, tree, flight.leaf[row], flight.prior[row], value, symmetry)
        backup(trees, tree, value, flight.path, row)
    flight.num_on_way[0] = 0
    flight.roots.on_way[:] = 0
    flight.roots.num_on_way[0] = 0


@kernel
def _descend(
    rules: Rules,
    settings: ParallelSettings,
    trees: Trees,
    tree: int,
    position: Position,
    history: History,
    flight: Flight,
) -> int:
    """Selects down from the root to a leaf, which is made where it is new, and returns its node or `NO_LEAF`.

    With `NO_LEAF` the tree is as it was. On entry `position` is the root; writes into everything but the rules.
    """
    row = flight.num_on_way[0]
    node, depth = 0, 0
    while trees.num_edges[tree, node] > 0:
        if _waits(flight, node):
            return NO_LEAF
        edge = _select_edge(settings, trees, tree, node, flight, depth)
        child = trees.child[tree, node, edge] if edge < trees.num_visited[tree, node] else NO_CHILD
        if child == NO_CHILD and trees.num_nodes[tree] == trees.action.shape[1]:
            return NO_LEAF
        if edge >= trees.num_visited[tree, node]:
            edge = visit_edge(trees, tree, node, edge)
        flight.path.node[row, depth] = node
        flight.path.edge[row, depth] = edge
        depth += 1
        play(rules, position, history, int(trees.action[tree, node, edge]))
        if child == NO_CHILD:
            child = make_child(rules, trees, tree, position, history, flight.mask)
            trees.child[tree, node, edge] = child
            node = child
            break
        node = child
    flight.path.length[row] = depth
    return int(node)


@kernel
def _waits(flight: Flight, node: int) -> bool:
    """True where a node waits for its answer: it has no prior yet."""
    waits = False
    for row in range(flight.num_on_way[0]):
        waits |= flight.leaf[row] == node
    return waits


@kernel
def _select_edge(settings: ParallelSettings, trees: Trees, tree: int, node: int, flight: Flight, depth: int) -> int:
    """The edge with the greatest PUCT score, extra visits included; of equals the lowest action. Uses the scratch.

    With a Gumbel root that of its schedule, and below it that of the improved policy.

    Before its first visit, on its way or not, an edge is worth what it is in `mcts`: virtual losses tell nothing of it.
    """
    c_puct = np.float32(settings.c_puct)
    num_on_way = _count_on_way(trees, tree, node, flight, depth)
    if settings.considered_actions > 0:
        roots = flight.roots
        if node == 0:
            return select_root_edge(roots, trees, tree, roots.num_simulations[tree] - flight.simulations_left[0])
        return select_gumbel_edge(roots, trees, tree, node)
    if num_on_way == 0:
        return select_edge(trees, tree, node, c_puct, settings.parent_first_play)
    action, prior = trees.action[tree, node], trees.prior[tree, node]
    visit_count, value_sum = trees.visit_count[tree, node], trees.value_sum[tree, node]
    judged = np.float32(max(1, trees.node_visits[tree, node]))
    first_play = trees.node_value_sum[tree, node] / judged if settings.parent_first_play else np.float32(0.0)
    node_visits = np.float32(trees.node_visits[tree, node] + settings.virtual_loss * num_on_way)
    scale = c_puct * np.float32(math.sqrt(node_visits))
    visited = trees.num_visited[tree, node]
    best, best_score = 0, np.float32(-np.inf)
    for e in range(visited):
        extra = settings.virtual_loss * flight.roots.on_way[e]
        visits = np.float32(visit_count[e] + extra)
        q_value = (value_sum[e] - np.float32(extra)) / visits if visits > np.float32(0.0) else first_play
        score = q_value + scale * prior[e] / (np.float32(1.0) + visits)
        if score > best_score or (score == best_score and action[e] < action[best]):
            best, best_score = e, score
    if visited < trees.num_edges[tree, node]:
        score = first_play + scale * prior[visited]
        if score > best_score or (score == best_score and action[visited] < action[best]):
            best = visited
    return int(best)


@kernel
def _count_on_way(trees: Trees, tree: int, node: int, flight: Flight, depth: int) -> int:
    """Number of simulations on their way through a node at `depth`. Writes those of its edges into the scratch.

    Each node has one path from the root, so a simulation passes through it at this depth or not at all.
    """
    on_way = flight.roots.on_way
    for e in range(trees.num_visited[tree, node]):
        on_way[e] = 0
    total = 0
    for row in range(flight.num_on_way[0]):
        if depth < flight.path.length[row] and flight.path.node[row, depth] == node:
            on_way[flight.path.edge[row, depth]] += 1
            total += 1
    flight.roots.num_on_way[0] = total
    return total
