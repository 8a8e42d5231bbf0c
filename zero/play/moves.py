"""Decisions after a search: resignation, the move, the policy target, and its weight as a training sample."""

import math

import numpy as np

from zero.kernels import kernel
from zero.search.forced import write_pruned_visits
from zero.search.gumbel import MIN_PRIOR
from zero.search.streams import next_float
from zero.search.tree import NO_EDGE, Trees, index_root

MAX_VISITS = 65535
"""Maximum visit count of an edge in a record (uint16). In a reused tree an edge can have more visits than one search
makes."""
FIRST_RESIGNATION = 2
"""First move (from 0) at which a player may resign: each player has moved once."""
NOT_A_TARGET = np.float32(-1.0)
"""In place of the policy surprise of a move without policy target."""


@kernel
def most_visited(trees: Trees, tree: int) -> int:
    """The root's edge with the most visits. Ties go to the greater prior, then to the lowest action."""
    action, prior, visit_count = trees.action[tree, 0], trees.prior[tree, 0], trees.visit_count[tree, 0]
    best = 0
    for e in range(1, trees.num_visited[tree, 0]):
        # The tie rules make the move independent of the order of the edges, which depends on earlier searches.
        if visit_count[e] < visit_count[best]:
            continue
        better = visit_count[e] > visit_count[best] or prior[e] > prior[best]
        if better or (prior[e] == prior[best] and action[e] < action[best]):
            best = e
    return int(best)


@kernel
def draw_edge(trees: Trees, tree: int, stream: np.ndarray) -> int:
    """A random root edge, in proportion to the visits (temperature 1). Writes into `stream` and `trees.edge_of`."""
    # In the order of the actions: the order of the edges depends on the visits of earlier searches.
    index_root(trees, tree)
    # Counts are integers and exact in float64, so the loop below stops inside whenever the root has a visit.
    left = next_float(stream) * trees.node_visits[tree, 0]
    for a in range(trees.edge_of.shape[0]):
        edge = trees.edge_of[a]
        if NO_EDGE < edge < trees.num_visited[tree, 0]:
            left -= trees.visit_count[tree, 0, edge]
            if left < 0.0:
                return int(edge)
    return most_visited(trees, tree)  # only if the root has no visit


@kernel
def edge_value(trees: Trees, tree: int, edge: int) -> np.float32:
    """Mean value of a root edge for the player to move at the root; 0 without a visit."""
    return np.float32(trees.value_sum[tree, 0, edge] / np.float32(max(1, trees.visit_count[tree, 0, edge])))


@kernel
def resigns(move: int, root_value: np.float32, best_value: np.float32, threshold: float) -> bool:
    """True if the values of the root and the best child are below the threshold (paper, Methods, 'Self-play')."""
    return bool(move >= FIRST_RESIGNATION and root_value < threshold and best_value < threshold)


@kernel
def write_policy_target(trees: Trees, tree: int, c_puct: np.float32, forced_playouts: float, out: np.ndarray) -> None:
    """The root's visits by action, with forced playouts pruned. Writes into `out` ([A] uint16, zeros on entry)."""
    if forced_playouts > 0.0:
        write_pruned_visits(trees, tree, c_puct, forced_playouts, MAX_VISITS, out)
        return
    for e in range(trees.num_visited[tree, 0]):
        # Cut off instead of scaled, so that the other counts stay exact; `zero.data.validation` allows for it.
        out[trees.action[tree, 0, e]] = min(trees.visit_count[tree, 0, e], MAX_VISITS)


@kernel
def policy_surprise(trees: Trees, tree: int, target: np.ndarray) -> np.float32:
    """KL divergence of a policy target ([A] uint16) from the root's prior, with its noise. Writes into `trees.edge_of`.

    It is large where the search has found another move than the network expected.
    """
    # In float64 and in the order of the actions, so that it does not depend on the order of first visits.
    index_root(trees, tree)
    total, surprise = 0, 0.0
    for a in range(target.shape[0]):
        total += target[a]
    for a in range(target.shape[0]):
        if target[a] > 0:
            share = target[a] / total
            surprise += share * math.log(share / max(trees.prior[tree, 0, trees.edge_of[a]], MIN_PRIOR))
    # Priors and shares are rounded, so that equal distributions may give slightly less than 0.
    return np.float32(max(0.0, surprise))


@kernel
def write_sample_weights(weights: np.ndarray, surprise_weight: float) -> None:
    """Turns the policy surprise of a game's moves into weights. Writes into `weights` ([T] float32).

    Weights are 1 - surprise_weight, and for the rest in proportion to the surprise (Wu 2020, KataGo's "policy surprise
    weighting"). Their mean over the policy targets is 1, so that a game has as many samples as without weights.
    """
    total, count = 0.0, 0
    for move in range(weights.shape[0]):
        if weights[move] != NOT_A_TARGET:
            total += weights[move]
            count += 1
    for move in range(weights.shape[0]):
        if weights[move] == NOT_A_TARGET:
            weights[move] = 0.0
        else:
            # Without any surprise in the game, all of its targets weigh the same.
            share = weights[move] * count / total if total > 0.0 else 1.0
            weights[move] = (1.0 - surprise_weight) + surprise_weight * share
