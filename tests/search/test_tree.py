"""Root noise, and reuse of a subtree."""

import math

import numpy as np
import pytest

from tests.search.evaluators import HashEvaluator
from tests.search.kernel_search import KernelSearch
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of
from zero.search.tree import clear, new_trees, reroot

GO3, GO5 = go_rules(3, 3, 0.5), go_rules(5, 5, 0.5)


def stream(number: int = 0) -> np.ndarray:
    return stream_of(1, 1, "test", number)


def noisy_priors(fraction: float, concentration: float = 10.83, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Priors of a root before and after its noise."""
    search = KernelSearch(GO5, HashEvaluator(GO5), 1.0, 4).start()
    before = np.array(list(search.priors().values()))
    search.mix_noise(concentration, fraction, stream(number))
    return before, np.array(list(search.priors().values()))


def test_a_fraction_of_0_keeps_the_prior():
    before, after = noisy_priors(0.0)
    assert np.array_equal(before, after)


@pytest.mark.parametrize("concentration", [0.78, 10.83, 200.0])
def test_the_noise_has_the_moments_of_a_dirichlet_distribution(concentration):
    # Each share has mean m = 1/k and variance m (1 - m) / (concentration + 1).
    edges, count = 26, 3_000
    shares = np.array([noisy_priors(1.0, concentration, number)[1] for number in range(count)])
    mean, variance = 1 / edges, (1 / edges) * (1 - 1 / edges) / (concentration + 1)
    assert np.abs(shares.mean(axis=0) - mean).max() < 4.5 * math.sqrt(variance / count)
    assert shares.var(axis=0).mean() == pytest.approx(variance, rel=0.06)


def test_fewer_moves_share_the_same_concentration():
    # alpha = concentration / edges: with two moves each share is uniform at a concentration of 2.
    shares = []
    for number in range(2_000):
        search = KernelSearch(gomoku_rules(1, 2, 2), UniformEvaluator(), 1.0, 4).start()
        search.mix_noise(2.0, 1.0, stream(number))
        shares.append(search.priors()[0])
    assert np.histogram(shares, 10, (0, 1))[0] == pytest.approx([200] * 10, abs=60)


def test_noise_that_underflows_keeps_the_prior():
    before, after = noisy_priors(0.5, concentration=1e-6)
    assert np.array_equal(before, after) or after.sum() == pytest.approx(1.0, abs=1e-6)
    assert np.isfinite(after).all()


def test_an_unvisited_move_empties_the_tree():
    search = KernelSearch(GO3, UniformEvaluator(), 1.0, 10).start().simulate(3)
    assert search.visits()[5] == 0
    search.play(5, 10)
    assert search.num_nodes == 0


def test_an_empty_tree_stays_empty():
    trees = new_trees(2, 4, 10)
    trees.action[:] = 3
    trees.child[:] = 1
    trees.num_edges[:] = trees.num_visited[:] = 10
    clear(trees, 1)
    reroot(trees, 1, 3, 4)
    assert trees.num_nodes.tolist() == [0, 0]
