"""Gumbel AlphaZero search, for few simulations (Danihelka et al. 2022, 'Policy improvement by planning with Gumbel').

The root runs sequential halving over the actions with the greatest gumbel + logit, a sample without replacement from
the prior. Below the root, visits follow the improved policy. Both use the completed Q-values of a node:

    sigma(q) = (c_visit + max_b N(s, b)) value_scale q,   logit = log P(s, a).

An unvisited action gets the node's mixed value v_mix as q (Appendix D). With `rescale_values`, q is first mapped to
[0, 1] by the minimum and maximum over the node's legal actions; then sigma no longer depends on how far the values are
apart. The policy target is the improved policy, softmax(logit + sigma(q)). Schedule, names and selection are those of
DeepMind's mctx; `considered_actions` is its max_num_considered_actions.

In a reused tree, Q, N and v_mix count all visits. The schedule and the choice of the move count only the visits of the
current search (`base_visits` holds the others), since the schedule compares visit counts with a plan that starts at 0.
The sample then comes from the policy that the older visits improved, not from the prior.

With several simulations in flight (`zero.search.virtual_loss`), a simulation in flight counts as a visit without a
value. The root then gives them different actions of the schedule, and lower nodes the actions furthest behind their
share. Games in lock-step have no simulations in flight.
Slow twin: tests/oracle/gumbel.py.
"""

import math
from typing import NamedTuple

import numpy as np

from zero.games.position import History, Position, Rules
from zero.kernels import kernel
from zero.search.mcts import Path, follow_edge
from zero.search.streams import next_float
from zero.search.tree import NO_EDGE, Trees, index_root

# `maxvisit_init` of mctx, in `qtransform_completed_by_mix_value`.
C_VISIT = np.float32(50.0)
"""c_visit, the constant of the paper."""
# `epsilon` of the same function of mctx.
MIN_RANGE = np.float32(1e-8)
"""Smallest range of Q-values that `rescale_values` divides by."""
# mctx applies the same minimum when it weights Q-values by the prior (`_compute_mixed_value`).
MIN_PRIOR = np.float32(np.finfo(np.float32).tiny)
"""Replaces a prior of 0, whose logit would be infinite."""
# Half of the smallest positive result of `next_float`, which is 2^-53.
MIN_UNIFORM = 2.0**-54
"""Replaces a random number of 0, whose Gumbel number would be infinite."""
MIN_REMAINDER = np.float32(1e-3)
"""Smallest prior of all unvisited edges that is computed as 1 minus the visited ones; below it rounding dominates."""
TARGET_SUM = 65535
"""Sum of a policy target in integer units: the maximum of a record's uint16."""


class GumbelRoots(NamedTuple):
    """State of the current Gumbel search of each tree, by root action, and scratch for one node."""

    gumbel: np.ndarray  # [T, A] float32, legal actions only
    logit: np.ndarray  # [T, A] float32    log P(root, a), legal actions only
    base_visits: np.ndarray  # [T, A] int32    N(root, a) before the search
    num_considered: np.ndarray  # [T] int32, actions that sequential halving starts with
    num_simulations: np.ndarray  # [T] int32, of the search
    in_flight: np.ndarray  # [A] int32, simulations in flight through each visited edge of the current node
    num_in_flight: np.ndarray  # [1] int32, their sum
    weight: np.ndarray  # [A] float32, scratch: the improved policy of the current node by edge, not normalised
    value_scale: np.ndarray  # [1] float32, the paper's c_scale
    rescale_values: np.ndarray  # [1] bool


def new_gumbel_roots(
    num_trees: int, num_actions: int, value_scale: float = 0.1, rescale_values: bool = True
) -> GumbelRoots:
    """Roots without a search; the defaults weigh Q-values as mctx does."""
    shape = (num_trees, num_actions)
    return GumbelRoots(
        gumbel=np.zeros(shape, np.float32),
        logit=np.zeros(shape, np.float32),
        base_visits=np.zeros(shape, np.int32),
        num_considered=np.zeros(num_trees, np.int32),
        num_simulations=np.zeros(num_trees, np.int32),
        in_flight=np.zeros(num_actions, np.int32),
        num_in_flight=np.zeros(1, np.int32),
        weight=np.zeros(num_actions, np.float32),
        value_scale=np.array([value_scale], np.float32),
        rescale_values=np.array([rescale_values], np.bool_),
    )


@kernel
def begin_gumbel_search(
    roots: GumbelRoots,
    trees: Trees,
    tree: int,
    num_considered: int,
    num_simulations: int,
    scale: float,
    stream: np.ndarray,
) -> None:
    """Begins a search of an evaluated root: draws its Gumbel numbers. Writes into `roots`, `trees.edge_of`, `stream`.

    Numbers are drawn in the order of the actions, so they do not depend on earlier visits. `scale` multiplies them; a
    scale of 0, for matches, draws none.
    """
    gumbel, logit, base_visits = roots.gumbel[tree], roots.logit[tree], roots.base_visits[tree]
    index_root(trees, tree)
    for a in range(trees.edge_of.shape[0]):
        e = trees.edge_of[a]
        gumbel[a] = 0.0
        base_visits[a] = 0
        if e == NO_EDGE:
            continue
        logit[a] = math.log(max(trees.prior[tree, 0, e], MIN_PRIOR))
        # Visit counts of unvisited edges are undefined, so these keep the 0 above.
        if e < trees.num_visited[tree, 0]:
            base_visits[a] = trees.visit_count[tree, 0, e]
        if scale > 0.0:
            gumbel[a] = scale * gumbel_number(next_float(stream))
    roots.num_considered[tree] = min(num_considered, trees.num_edges[tree, 0])
    roots.num_simulations[tree] = num_simulations


@kernel
def gumbel_number(uniform: float) -> float:
    """The Gumbel(0, 1) number for a uniform number in [0, 1)."""
    return -math.log(-math.log(max(uniform, MIN_UNIFORM)))


@kernel
def considered_visit(num_considered: int, num_simulations: int, simulation: int) -> int:
    """Visit count, in this search, of the action that sequential halving visits in this simulation (from 0).

    Each phase visits the remaining actions `extra` times in turn, then keeps the better half, but at least two.
    """
    if num_considered <= 1:
        return simulation
    # ceil(log2(num_considered)) in integers: a rounded logarithm could be off by one at a power of two.
    phases = 1
    while 1 << phases < num_considered:
        phases += 1
    visits = 0
    # mctx's `get_sequence_of_considered_visits`, evaluated for one simulation: a kernel cannot allocate the table.
    while True:
        extra = max(1, num_simulations // (phases * num_considered))
        if simulation < extra * num_considered:
            return visits + simulation // num_considered
        simulation -= extra * num_considered
        visits += extra
        num_considered = max(2, num_considered // 2)


@kernel
def select_root_edge(roots: GumbelRoots, trees: Trees, tree: int, simulation: int) -> int:
    """The root's edge for this simulation of the search (from 0); may be any unvisited edge."""
    considered = considered_visit(roots.num_considered[tree], roots.num_simulations[tree], simulation)
    return int(_best_edge_with_visits(roots, trees, tree, considered))


@kernel
def descend_gumbel(
    rules: Rules,
    roots: GumbelRoots,
    trees: Trees,
    tree: int,
    simulation: int,
    position: Position,
    history: History,
    mask: np.ndarray,
    path: Path,
    game: int,
) -> int:
    """Selects to a leaf like `zero.search.mcts.descend`, for simulation number `simulation` (from 0) of the search.

    Writes into everything except the rules.
    """
    # A node with this number or above is added by this simulation: it has edges but no prior yet, so it is the leaf.
    num_nodes = trees.num_nodes[tree]
    path.length[game] = 0
    edge = select_root_edge(roots, trees, tree, simulation)
    node = follow_edge(rules, trees, tree, 0, edge, position, history, mask, path, game)
    while node < num_nodes and trees.num_edges[tree, node] > 0:
        edge = select_gumbel_edge(roots, trees, tree, node)
        node = follow_edge(rules, trees, tree, node, edge, position, history, mask, path, game)
    return node


@kernel
def gumbel_choice(roots: GumbelRoots, trees: Trees, tree: int) -> int:
    """The root's edge to play: the greatest gumbel + logit + sigma(q) among the most visited edges of this search."""
    most = 0
    for e in range(trees.num_visited[tree, 0]):
        most = max(most, trees.visit_count[tree, 0, e] - roots.base_visits[tree, trees.action[tree, 0, e]])
    return int(_best_edge_with_visits(roots, trees, tree, most))


@kernel
def _best_edge_with_visits(roots: GumbelRoots, trees: Trees, tree: int, visits: int) -> int:
    """The root's edge with the greatest gumbel + logit + sigma(q) among those with `visits` visits in this search.

    Visits in flight count. Ties go to the lowest action.
    """
    gumbel, logit, base_visits = roots.gumbel[tree], roots.logit[tree], roots.base_visits[tree]
    action, visit_count, value_sum = trees.action[tree, 0], trees.visit_count[tree, 0], trees.value_sum[tree, 0]
    visited = trees.num_visited[tree, 0]
    mixed, high, slope = _completed_q_values(roots, trees, tree, 0)
    # Unvisited edges all have 0 visits, so they take part only if the schedule asks for 0.
    best, best_score = 0, np.float32(-np.inf)
    for e in range(trees.num_edges[tree, 0] if visits == 0 else visited):
        a = action[e]
        q_value = mixed
        if e < visited:
            if visit_count[e] + roots.in_flight[e] - base_visits[a] != visits:
                continue
            if visit_count[e] > 0:
                q_value = value_sum[e] / np.float32(visit_count[e])
        # sigma(q) less the node's greatest sigma, a constant that does not change the order of the edges.
        score = gumbel[a] + logit[a] + slope * (q_value - high)
        if score > best_score or (score == best_score and a < action[best]):
            best, best_score = e, score
    return best


@kernel
def select_gumbel_edge(roots: GumbelRoots, trees: Trees, tree: int, node: int) -> int:
    """The edge below the root whose visits are furthest behind the improved policy. Writes into `roots.weight`.

    It has the greatest policy(a) - N(s, a) / (1 + sum_b N(s, b)), where N includes visits in flight. Ties go to the
    lowest action.
    """
    visited = trees.num_visited[tree, node]
    if visited == 0:
        # The improved policy is the prior as long as no edge has a value, and `promote_best` keeps its greatest entry
        # at 0.
        return 0
    action, visit_count, weight = trees.action[tree, node], trees.visit_count[tree, node], roots.weight
    total, factor = _write_policy_weights(roots, trees, tree, node)
    share = np.float32(1.0) / total
    step = np.float32(1.0) / np.float32(1 + trees.node_visits[tree, node] + roots.num_in_flight[0])
    best, best_score = 0, np.float32(-np.inf)
    for e in range(visited):
        # Danihelka et al. 2022, section 5: this visit brings the shares of the visits closest to the policy (squared
        # error).
        score = weight[e] * share - np.float32(visit_count[e] + roots.in_flight[e]) * step
        if score > best_score or (score == best_score and action[e] < action[best]):
            best, best_score = e, score
    # All unvisited edges have the same Q, so only the first of them, with the greatest prior, can win.
    if visited < trees.num_edges[tree, node]:
        score = max(trees.prior[tree, node, visited], MIN_PRIOR) * factor * share
        if score > best_score or (score == best_score and action[visited] < action[best]):
            best = visited
    return int(best)


@kernel
def write_improved_policy(roots: GumbelRoots, trees: Trees, tree: int, out: np.ndarray) -> None:
    """The root's improved policy by action, in integers that sum to TARGET_SUM. Writes into `out` ([A] uint16).

    The cumulative sums are rounded, not the probabilities, so the total is exact and each entry is off by less than 1.
    """
    _, factor = _write_policy_weights(roots, trees, tree, 0)
    weight = roots.weight
    # A selection needs only the sum of these weights and the first of them, so they are computed here, once per move.
    for e in range(trees.num_visited[tree, 0], trees.num_edges[tree, 0]):
        weight[e] = max(trees.prior[tree, 0, e], MIN_PRIOR) * factor
    # In float64 and in the order of the actions, so that the target does not depend on the order of first visits.
    total = 0.0
    index_root(trees, tree)
    for a in range(trees.edge_of.shape[0]):
        if trees.edge_of[a] != NO_EDGE:
            total += weight[trees.edge_of[a]]
    end, written = 0.0, 0
    for a in range(trees.edge_of.shape[0]):
        out[a] = 0
        if trees.edge_of[a] != NO_EDGE:
            end += weight[trees.edge_of[a]]
            # At the last action `end` is the same sum in the same order as `total`, so the last boundary is TARGET_SUM
            # exactly.
            boundary = int(end / total * TARGET_SUM + 0.5)
            out[a] = boundary - written
            written = boundary


@kernel
def _write_policy_weights(roots: GumbelRoots, trees: Trees, tree: int, node: int) -> tuple[np.float32, np.float32]:
    """Computes P exp(sigma(q) - max sigma) of the visited edges. Writes into `roots.weight`.

    Returns the sum over all edges, visited or not, and the factor for the prior of an unvisited edge.
    """
    visited, edges = trees.num_visited[tree, node], trees.num_edges[tree, node]
    prior, visit_count, value_sum = trees.prior[tree, node], trees.visit_count[tree, node], trees.value_sum[tree, node]
    weight = roots.weight
    mixed, high, slope = _completed_q_values(roots, trees, tree, node)
    for e in range(visited):
        q_value = value_sum[e] / np.float32(visit_count[e]) if visit_count[e] > 0 else mixed
        # softmax(log P + sigma) written as P exp(sigma): no logarithm per edge and selection.
        weight[e] = max(prior[e], MIN_PRIOR) * np.float32(math.exp(slope * (q_value - high)))
    # Minus the greatest sigma, so that exp does not overflow; the constant cancels in the normalisation.
    factor = np.float32(math.exp(slope * (mixed - high)))
    total, rest = np.float32(0.0), np.float32(1.0)
    for e in range(visited):
        total += weight[e]
        # The priors of a node sum to 1, so the unvisited ones need no loop over all A edges.
        rest -= prior[e]
    if visited < edges:
        if rest < MIN_REMAINDER:
            rest = np.float32(0.0)
            for e in range(visited, edges):
                rest += max(prior[e], MIN_PRIOR)
        total += rest * factor
    return total, factor


@kernel
def _completed_q_values(
    roots: GumbelRoots, trees: Trees, tree: int, node: int
) -> tuple[np.float32, np.float32, np.float32]:
    """The mixed value v_mix of a node, its greatest completed Q-value, and the slope of sigma."""
    visited = trees.num_visited[tree, node]
    prior, visit_count, value_sum = trees.prior[tree, node], trees.visit_count[tree, node], trees.value_sum[tree, node]
    low, high, most = np.float32(np.inf), np.float32(-np.inf), 0
    prior_sum, weighted = np.float32(0.0), np.float32(0.0)
    counted = 0
    for e in range(visited):
        # An edge may have only simulations in flight: it is visited, but has no value yet.
        if visit_count[e] > 0:
            q_value = value_sum[e] / np.float32(visit_count[e])
            low, high, most = min(low, q_value), max(high, q_value), max(most, visit_count[e])
            # The minimum keeps `prior_sum` above 0, so that the mean below is finite.
            share = max(prior[e], MIN_PRIOR)
            prior_sum += share
            weighted += share * q_value
            counted += 1
    # v_mix: the network's value and the prior-weighted mean of the visited Q-values, weighted 1 to sum_b N(s, b).
    mixed = trees.node_value[tree, node]
    if counted > 0:
        visits = np.float32(trees.node_visits[tree, node])
        mixed = (mixed + visits * (weighted / prior_sum)) / (np.float32(1.0) + visits)
    if counted < trees.num_edges[tree, node]:
        # Edges without a value have v_mix as their Q, so it belongs to the range exactly if there is such an edge.
        low, high = min(low, mixed), max(high, mixed)
    slope = (C_VISIT + np.float32(most)) * roots.value_scale[0]
    if roots.rescale_values[0]:
        # Callers use only differences sigma(q) - sigma(high), in which the minimum of the rescaling cancels.
        slope /= max(high - low, MIN_RANGE)
    return mixed, high, slope
