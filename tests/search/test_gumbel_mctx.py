"""The Gumbel search against DeepMind's mctx, an independent oracle: complete trees of many models at once.

A model is a hash of the actions that lead to a position. Its games do not end, because mctx searches beyond an end with
a discount of 0. No node has both all legal actions visited and some illegal: there mctx includes the mixed value of the
illegal actions when it rescales Q-values, and the paper does not.
"""

import importlib.util
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from zero.search.gumbel import (
    GumbelRoots,
    begin_gumbel_search,
    considered_visit,
    gumbel_choice,
    new_gumbel_roots,
    select_gumbel_edge,
    select_root_edge,
    write_improved_policy,
)
from zero.search.mcts import backup, new_path
from zero.search.streams import stream_of
from zero.search.tree import NO_CHILD, Trees, add_node, new_trees, set_prior, visit_edge

MISSING = "the Python package mctx is not installed, so the comparison with it is left out"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mctx") is None, reason=MISSING)

NUM_MODELS = 24
WIDE, NARROW = 24, 5
"""Numbers of actions: more than are considered, and few enough that all are considered."""
SHARPNESS = np.float32(6.0)
"""Range of the logits."""
LEGAL_CHANCE = 0.75
NO_LOGIT = np.float32(-1e9)
"""Makes an action illegal below the root, where mctx has no mask."""
VALUE_TOLERANCE, TARGET_TOLERANCE = 2e-5, 1e-3
"""Tolerance: both sides sum in float32, in different orders."""
QUICK_COMPILATION = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Searched(NamedTuple):
    """Trees of B models; simulation i adds node i + 1."""

    visits: np.ndarray  # [B, N, A]
    q_values: np.ndarray  # [B, N, A], zeros without a visit
    child: np.ndarray  # [B, N, A]
    choice: np.ndarray  # [B]
    target: np.ndarray  # [B, A], sums to 1


def mix(word: Any) -> Any:
    """A hash of uint32, equal in NumPy and JAX."""
    word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
    return word ^ (word >> 16)


def key_after(key: Any, action: Any) -> Any:
    """Key of the position after an action; the lowest bit does not change."""
    word = mix(key * np.uint32(0x9E3779B1) + action + np.uint32(1))
    return (word & np.uint32(0xFFFFFFFE)) | (key & np.uint32(1))


def fractions(key: Any, actions: np.ndarray, salt: int) -> Any:
    """Numbers in [0, 1), exact in float32: [B, A]."""
    words = mix(mix(key[:, None] + np.uint32(salt)) ^ (actions * np.uint32(0x85EBCA6B)))
    return (words >> 8).astype(np.float32) * np.float32(2.0**-24)


def judge(key: Any, num_actions: int) -> tuple[Any, Any, Any]:
    """Logits [B, A], legal actions [B, A] and values [B] of positions; all actions are legal if the key is even."""
    actions = np.arange(num_actions, dtype=np.uint32)
    logits = SHARPNESS * fractions(key, actions, 1)
    all_legal = (key & np.uint32(1))[:, None] == 0
    legal = all_legal | (fractions(key, actions, 2) < LEGAL_CHANCE)
    value = fractions(key, actions[:1], 3)[:, 0] * np.float32(1.8) - np.float32(0.9)
    return logits, legal, value


def search_by_mctx(
    keys: np.ndarray, num_actions: int, num_considered: int, num_simulations: int, value_scale: float, rescale: bool
) -> tuple[Searched, np.ndarray]:
    """The trees of mctx, and the Gumbel numbers [B, A] that it drew."""
    import jax
    import jax.numpy as jnp
    import mctx

    jax.config.update("jax_platforms", "cpu")

    def go_on(_: Any, __: Any, action: Any, key: Any) -> Any:
        key = key_after(key, action.astype(jnp.uint32))
        logits, legal, value = judge(key, num_actions)
        logits = jnp.where(legal, logits, NO_LOGIT)
        even = jnp.zeros_like(value)
        return mctx.RecurrentFnOutput(reward=even, discount=even - 1, prior_logits=logits, value=value), key

    def policy(key: Any) -> Any:
        logits, legal, value = judge(key, num_actions)
        return mctx.gumbel_muzero_policy(
            params=(),
            rng_key=jax.random.key(num_simulations),
            root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=key),
            recurrent_fn=go_on,
            num_simulations=num_simulations,
            invalid_actions=~legal,
            max_num_considered_actions=num_considered,
            qtransform=partial(mctx.qtransform_completed_by_mix_value, value_scale=value_scale, rescale_values=rescale),
        )

    output = jax.jit(policy).lower(keys).compile(QUICK_COMPILATION)(keys)
    tree = output.search_tree
    visits = np.asarray(tree.children_visits)
    return Searched(
        visits=visits,
        q_values=np.where(visits > 0, -np.asarray(tree.children_values), 0.0),
        child=np.asarray(tree.children_index),
        choice=np.asarray(output.action),
        target=np.asarray(output.action_weights),
    ), np.asarray(tree.extra_data.root_gumbel)


def search_by_kernels(
    keys: np.ndarray, num_considered: int, num_simulations: int, gumbel: np.ndarray, value_scale: float, rescale: bool
) -> Searched:
    """The same search through the kernels."""
    (num_models, num_actions), num_nodes = gumbel.shape, num_simulations + 1
    trees = new_trees(num_models, num_nodes, num_actions)
    roots = new_gumbel_roots(num_models, num_actions, value_scale, rescale)
    path = new_path(1, num_nodes)
    choice, target = np.zeros(num_models, np.int64), np.zeros((num_models, num_actions), np.uint16)
    for tree in range(num_models):
        node_keys = [keys[tree : tree + 1]]
        expand(trees, tree, node_keys[0])
        begin_gumbel_search(roots, trees, tree, num_considered, num_simulations, 0.0, stream_of(0, 0, "test", 0))
        roots.gumbel[tree] = gumbel[tree]
        for simulation in range(num_simulations):
            steps = walk(roots, trees, tree, simulation)
            for depth, (node, edge) in enumerate(steps):
                path.node[0, depth], path.edge[0, depth] = node, edge
            path.length[0] = len(steps)
            trees.child[tree, node, edge] = len(node_keys)
            node_keys.append(key_after(node_keys[node], trees.action[tree, node, edge : edge + 1].astype(np.uint32)))
            backup(trees, tree, expand(trees, tree, node_keys[-1]), path, 0)
        choice[tree] = trees.action[tree, 0, gumbel_choice(roots, trees, tree)]
        write_improved_policy(roots, trees, tree, target[tree])
    return searched(trees, choice, target)


def walk(roots: GumbelRoots, trees: Trees, tree: int, simulation: int) -> list[tuple[int, int]]:
    """Selects from the root down to an edge without a child; returns the (node, edge) steps."""
    node, steps = 0, []
    while node != NO_CHILD:
        if node == 0:
            edge = select_root_edge(roots, trees, tree, simulation)
        else:
            edge = select_gumbel_edge(roots, trees, tree, node)
        if edge >= trees.num_visited[tree, node]:
            edge = visit_edge(trees, tree, node, edge)
        steps.append((node, edge))
        node = int(trees.child[tree, node, edge])
    return steps


def expand(trees: Trees, tree: int, key: np.ndarray) -> np.float32:
    """Adds the next node, evaluates it and returns its value."""
    logits, legal, value = judge(key, trees.action.shape[2])
    node = add_node(trees, tree, legal[0], 0.0)
    prior = np.exp(logits[0].astype(np.float64))
    set_prior(trees, tree, node, (prior / prior.sum()).astype(np.float32), value[0], np.arange(len(prior)))
    return np.float32(value[0])


def searched(trees: Trees, choice: np.ndarray, target: np.ndarray) -> Searched:
    visits, q_values = np.zeros(trees.action.shape, np.int32), np.zeros(trees.action.shape, np.float32)
    child = np.full(trees.action.shape, NO_CHILD)
    for tree, node in np.ndindex(trees.num_visited.shape):
        visited = trees.num_visited[tree, node]
        action = trees.action[tree, node, :visited]
        visits[tree, node, action] = trees.visit_count[tree, node, :visited]
        q_values[tree, node, action] = trees.value_sum[tree, node, :visited] / visits[tree, node, action]
        child[tree, node, action] = trees.child[tree, node, :visited]
    return Searched(visits, q_values, child, choice, target / target.sum(axis=1, keepdims=True))


def model_keys(num_actions: int) -> np.ndarray:
    """Keys of the models' roots. Every other model has illegal actions if there are more actions than considered."""
    keys: np.ndarray = mix(np.arange(NUM_MODELS, dtype=np.uint32) + np.uint32(99)) & np.uint32(0xFFFFFFFE)
    if num_actions == WIDE:
        keys |= np.arange(NUM_MODELS, dtype=np.uint32) % np.uint32(2)
    return keys


SIGMA, RAW_SIGMA = (0.1, True), (0.5, False)
"""(value_scale, rescale_values) of mctx, and of the paper for Go."""
CASES = [
    *((WIDE, considered, simulations, *SIGMA) for considered in (16, 4) for simulations in (1, 2, 8, 16, 50)),
    (NARROW, 16, 50, *SIGMA),
    (WIDE, 16, 50, *RAW_SIGMA),
    (NARROW, 16, 50, *RAW_SIGMA),
]


@pytest.mark.parametrize(("num_actions", "num_considered", "num_simulations", "value_scale", "rescale"), CASES)
def test_trees_moves_and_targets_equal_those_of_mctx(
    num_actions, num_considered, num_simulations, value_scale, rescale
):
    keys = model_keys(num_actions)
    theirs, gumbel = search_by_mctx(keys, num_actions, num_considered, num_simulations, value_scale, rescale)
    ours = search_by_kernels(keys, num_considered, num_simulations, gumbel, value_scale, rescale)
    assert (ours.visits[:, 0].sum(axis=1) == num_simulations).all()
    if num_simulations == 50:  # with fewer simulations most nodes have one or two visits
        assert (ours.visits[:, 1:] > 0).sum(axis=2).max() >= 4
    np.testing.assert_array_equal(ours.visits, theirs.visits)
    np.testing.assert_array_equal(ours.child, theirs.child)
    np.testing.assert_allclose(ours.q_values, theirs.q_values, rtol=0, atol=VALUE_TOLERANCE)
    np.testing.assert_array_equal(ours.choice, theirs.choice)
    np.testing.assert_allclose(ours.target, theirs.target, rtol=0, atol=TARGET_TOLERANCE)


def test_the_schedule_equals_that_of_mctx():
    from mctx._src.seq_halving import get_sequence_of_considered_visits

    for num_considered in range(1, 40):
        for num_simulations in (1, 2, 3, 7, 8, 16, 31, 50, 64, 200, 801):
            ours = [considered_visit(num_considered, num_simulations, i) for i in range(num_simulations)]
            assert tuple(ours) == get_sequence_of_considered_visits(num_considered, num_simulations)
