"""The search of Danihelka et al. 2022, 'Policy improvement by planning with Gumbel': few simulations, well spent.

At the root, sequential halving over the actions of greatest gumbel + logit, which is a draw without replacement from
the prior; below it, visits that follow the improved policy. Both rest on the completed Q-values of a node:

    sigma(q) = (c_visit + max_b N(s, b)) value_scale q,   logit = log P(s, a),

where an action without a visit has the node's mixed value v_mix for q (their Appendix D). With `rescale_values` q is
first brought to [0, 1] by the least and the greatest of the node's legal actions: then the best of them is pushed as
far where they differ by a hair as where they differ by the game. The improved policy is softmax(logit + sigma(q)); it
is the policy target. Schedule, names and selection are those of DeepMind's mctx.

In a tree kept from the move before, Q, N and v_mix are those of the whole tree, but the schedule and the choice of the
move count the visits of the search in hand alone (`base_visits`): with the older ones no action would have the visits
that the schedule asks for. The draw is then from the policy that the older visits improved, not from the bare prior.

If several simulations of one tree are in flight (`zero.search.virtual_loss`), their visits count as visits, and their
values, which nobody knows yet, not at all: at the root they go to different actions of the schedule, below it to those
that are furthest behind. Games in lock-step have none on their way.
Slow twin: tests/oracle/gumbel.py.
"""

import math
from typing import NamedTuple

import numpy as np

from zero.games.position import History, Position, Rules
from zero.kernels import inline_kernel, kernel
from zero.search.mcts import Path, follow_edge
from zero.search.streams import next_float
from zero.search.tree import NO_EDGE, Trees, index_root

C_VISIT = np.float32(50.0)
"""The paper's constant."""
LEAST_RANGE = np.float32(1e-8)
"""Below this the Q-values of a node count as equal."""
LEAST_PRIOR = np.float32(np.finfo(np.float32).tiny)
"""Stands for a prior of 0, whose logit would be infinite."""
LEAST_UNIFORM = 2.0**-54
"""Stands for a random number of 0, whose Gumbel number would be infinite."""
SMALL_REST = np.float32(1e-3)
"""What the visited edges leave of the prior is summed anew below this: 1 minus their sum would be mostly rounding."""
WHOLE_TARGET = 65535
"""Parts that a policy target is dealt out in: the most that a record can hold of one action."""


class GumbelRoots(NamedTuple):
    """What the search in hand knows about the root of each tree, by action."""

    gumbel: np.ndarray  # [T, A] float32, of legal actions alone
    logit: np.ndarray  # [T, A] float32    log P(root, a), of legal actions alone
    base_visits: np.ndarray  # [T, A] int32    N(root, a) before the search
    num_considered: np.ndarray  # [T] int32, actions that sequential halving begins with
    num_simulations: np.ndarray  # [T] int32, of the search
    on_way: np.ndarray  # [A] int32, simulations on their way through each visited edge of the node in hand
    num_on_way: np.ndarray  # [1] int32, their sum
    weight: np.ndarray  # [A] float32, scratch: an improved policy by edge, not normalised
    value_scale: np.ndarray  # [1] float32, the paper's c_scale
    rescale_values: np.ndarray  # [1] bool


def new_gumbel_roots(
    num_trees: int, num_actions: int, value_scale: float = 0.1, rescale_values: bool = True
) -> GumbelRoots:
    """Roots whose search has not begun; by default Q-values count as in mctx."""
    shape = (num_trees, num_actions)
    return GumbelRoots(
        gumbel=np.zeros(shape, np.float32),
        logit=np.zeros(shape, np.float32),
        base_visits=np.zeros(shape, np.int32),
        num_considered=np.zeros(num_trees, np.int32),
        num_simulations=np.zeros(num_trees, np.int32),
        on_way=np.zeros(num_actions, np.int32),
        num_on_way=np.zeros(1, np.int32),
        weight=np.zeros(num_actions, np.float32),
        value_scale=np.array([value_scale], np.float32),
        rescale_values=np.array([rescale_values], np.bool_),
    )


@kernel
def draw_gumbel(
    roots: GumbelRoots,
    trees: Trees,
    tree: int,
    num_considered: int,
    num_simulations: int,
    scale: float,
    stream: np.ndarray,
) -> None:
    """Begins a search of a judged root: notes what it has and draws its Gumbel numbers. Writes into all but `tree`.

    Numbers are drawn for the legal actions in their order, so that they do not depend on what was visited before. A
    `scale` of 0, for matches, draws none.
    """
    gumbel, logit, base_visits = roots.gumbel[tree], roots.logit[tree], roots.base_visits[tree]
    index_root(trees, tree)
    for a in range(trees.edge_of.shape[0]):
        e = trees.edge_of[a]
        gumbel[a] = 0.0
        base_visits[a] = 0
        if e == NO_EDGE:
            continue
        logit[a] = math.log(max(trees.prior[tree, 0, e], LEAST_PRIOR))
        if e < trees.num_visited[tree, 0]:
            base_visits[a] = trees.visit_count[tree, 0, e]
        if scale > 0.0:
            gumbel[a] = scale * gumbel_number(next_float(stream))
    roots.num_considered[tree] = min(num_considered, trees.num_edges[tree, 0])
    roots.num_simulations[tree] = num_simulations


@inline_kernel
def gumbel_number(uniform: float) -> float:
    """The Gumbel(0, 1) number of a random number in [0, 1)."""
    return -math.log(-math.log(max(uniform, LEAST_UNIFORM)))


@kernel
def considered_visit(num_considered: int, num_simulations: int, simulation: int) -> int:
    """Visits that the action of this simulation (from 0) has had, by sequential halving.

    Each phase visits the actions left, `extra` times in turn, and leaves the better half of them; at least two.
    """
    if num_considered <= 1:
        return simulation
    phases = 1
    while 1 << phases < num_considered:
        phases += 1
    visits = 0
    while True:
        extra = max(1, num_simulations // (phases * num_considered))
        if simulation < extra * num_considered:
            return visits + simulation // num_considered
        simulation -= extra * num_considered
        visits += extra
        num_considered = max(2, num_considered // 2)


@kernel
def select_root_edge(roots: GumbelRoots, trees: Trees, tree: int, simulation: int) -> int:
    """The root's edge for this simulation of the search (from 0); any of those without a visit may be it."""
    considered = considered_visit(roots.num_considered[tree], roots.num_simulations[tree], simulation)
    return int(_best_of_visits(roots, trees, tree, considered))


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
    """As `zero.search.mcts.descend`, for this simulation of the search (from 0). Writes into all but the rules."""
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
    """The root's edge to play: of those most visited in this search that of greatest gumbel + logit + sigma(q)."""
    most = 0
    for e in range(trees.num_visited[tree, 0]):
        most = max(most, trees.visit_count[tree, 0, e] - roots.base_visits[tree, trees.action[tree, 0, e]])
    return int(_best_of_visits(roots, trees, tree, most))


@kernel
def _best_of_visits(roots: GumbelRoots, trees: Trees, tree: int, visits: int) -> int:
    """Of the root's edges with so many visits in this search that with the greatest gumbel + logit + sigma(q).

    Of equals the lowest action. Visits on their way are among them.
    """
    gumbel, logit, base_visits = roots.gumbel[tree], roots.logit[tree], roots.base_visits[tree]
    action, visit_count, value_sum = trees.action[tree, 0], trees.visit_count[tree, 0], trees.value_sum[tree, 0]
    visited = trees.num_visited[tree, 0]
    mixed, high, slope = _complete(roots, trees, tree, 0)
    best, best_score = 0, np.float32(-np.inf)
    for e in range(trees.num_edges[tree, 0] if visits == 0 else visited):
        a = action[e]
        q_value = mixed
        if e < visited:
            if visit_count[e] + roots.on_way[e] - base_visits[a] != visits:
                continue
            if visit_count[e] > 0:
                q_value = value_sum[e] / np.float32(visit_count[e])
        score = gumbel[a] + logit[a] + slope * (q_value - high)
        if score > best_score or (score == best_score and a < action[best]):
            best, best_score = e, score
    return best


@kernel
def select_gumbel_edge(roots: GumbelRoots, trees: Trees, tree: int, node: int) -> int:
    """The edge of a node below the root that is furthest behind the improved policy. Writes into `roots.weight`.

    It has the greatest policy(a) - N(s, a) / (1 + sum_b N(s, b)), where N counts visits on their way too; of equals the
    lowest action. Those without a visit have one Q-value, so only the first of them, which has the greatest prior, can
    be it.
    """
    visited = trees.num_visited[tree, node]
    if visited == 0:
        return 0
    action, visit_count, weight = trees.action[tree, node], trees.visit_count[tree, node], roots.weight
    total, factor = _weigh(roots, trees, tree, node)
    share = np.float32(1.0) / total
    step = np.float32(1.0) / np.float32(1 + trees.node_visits[tree, node] + roots.num_on_way[0])
    best, best_score = 0, np.float32(-np.inf)
    for e in range(visited):
        score = weight[e] * share - np.float32(visit_count[e] + roots.on_way[e]) * step
        if score > best_score or (score == best_score and action[e] < action[best]):
            best, best_score = e, score
    if visited < trees.num_edges[tree, node]:
        score = max(trees.prior[tree, node, visited], LEAST_PRIOR) * factor * share
        if score > best_score or (score == best_score and action[visited] < action[best]):
            best = visited
    return int(best)


@kernel
def improved_policy(roots: GumbelRoots, trees: Trees, tree: int, out: np.ndarray) -> None:
    """The root's improved policy in whole parts of 65,535, which they add up to. Writes into `out` and scratch.

    `out` ([A] uint16) is by action. Where the shares, laid end to end, meet is rounded, so that none is off by a part.
    """
    _, factor = _weigh(roots, trees, tree, 0)
    weight = roots.weight
    for e in range(trees.num_visited[tree, 0], trees.num_edges[tree, 0]):
        weight[e] = max(trees.prior[tree, 0, e], LEAST_PRIOR) * factor
    total = 0.0
    index_root(trees, tree)
    for a in range(trees.edge_of.shape[0]):
        if trees.edge_of[a] != NO_EDGE:
            total += weight[trees.edge_of[a]]
    end, dealt = 0.0, 0
    for a in range(trees.edge_of.shape[0]):
        out[a] = 0
        if trees.edge_of[a] != NO_EDGE:
            end += weight[trees.edge_of[a]]
            mark = int(end / total * WHOLE_TARGET + 0.5)
            out[a] = mark - dealt
            dealt = mark


@inline_kernel
def _weigh(roots: GumbelRoots, trees: Trees, tree: int, node: int) -> tuple[np.float32, np.float32]:
    """Writes P exp(sigma(q) - max sigma) of the visited edges into `roots.weight`.

    Returns the sum over all edges, and what to multiply the prior of an edge without a visit with.
    """
    visited, edges = trees.num_visited[tree, node], trees.num_edges[tree, node]
    prior, visit_count, value_sum = trees.prior[tree, node], trees.visit_count[tree, node], trees.value_sum[tree, node]
    weight = roots.weight
    mixed, high, slope = _complete(roots, trees, tree, node)
    for e in range(visited):
        q_value = value_sum[e] / np.float32(visit_count[e]) if visit_count[e] > 0 else mixed
        weight[e] = max(prior[e], LEAST_PRIOR) * np.float32(math.exp(slope * (q_value - high)))
    factor = np.float32(math.exp(slope * (mixed - high)))
    total, rest = np.float32(0.0), np.float32(1.0)
    for e in range(visited):
        total += weight[e]
        rest -= prior[e]
    if visited < edges:
        if rest < SMALL_REST:
            rest = np.float32(0.0)
            for e in range(visited, edges):
                rest += max(prior[e], LEAST_PRIOR)
        total += rest * factor
    return total, factor


@inline_kernel
def _complete(roots: GumbelRoots, trees: Trees, tree: int, node: int) -> tuple[np.float32, np.float32, np.float32]:
    """The mixed value of a node, its greatest completed Q-value, and the slope of sigma."""
    visited = trees.num_visited[tree, node]
    prior, visit_count, value_sum = trees.prior[tree, node], trees.visit_count[tree, node], trees.value_sum[tree, node]
    low, high, most = np.float32(np.inf), np.float32(-np.inf), 0
    prior_sum, weighted = np.float32(0.0), np.float32(0.0)
    counted = 0
    for e in range(visited):
        if visit_count[e] > 0:
            q_value = value_sum[e] / np.float32(visit_count[e])
            low, high, most = min(low, q_value), max(high, q_value), max(most, visit_count[e])
            share = max(prior[e], LEAST_PRIOR)
            prior_sum += share
            weighted += share * q_value
            counted += 1
    mixed = trees.node_value[tree, node]
    if counted > 0:
        visits = np.float32(trees.node_visits[tree, node])
        mixed = (mixed + visits * (weighted / prior_sum)) / (np.float32(1.0) + visits)
    if counted < trees.num_edges[tree, node]:
        low, high = min(low, mixed), max(high, mixed)
    slope = (C_VISIT + np.float32(most)) * roots.value_scale[0]
    if roots.rescale_values[0]:
        slope /= max(high - low, LEAST_RANGE)
    return mixed, high, slope
