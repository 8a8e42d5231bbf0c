"""The evaluator of search."""

import numpy as np
import pytest
import torch

from tests.network.networks import CPU, NUM_ACTIONS, as_images, lived_in_network, random_planes
from zero.errors import StorageError
from zero.network.inference import TorchEvaluator
from zero.network.weights import weights_bytes

DATA = weights_bytes(lived_in_network())


def evaluate(evaluator: TorchEvaluator, planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    prior = np.full((len(planes), NUM_ACTIONS), np.nan, np.float32)
    value = np.full(len(planes), np.nan, np.float32)
    evaluator.evaluate(planes, prior, value)
    return prior, value


def test_priors_and_values_are_those_of_the_network():
    planes = random_planes(8)
    prior, value = evaluate(TorchEvaluator(DATA, CPU), planes)
    with torch.no_grad():
        logits, values = lived_in_network()(as_images(planes))
    np.testing.assert_allclose(prior, torch.softmax(logits, 1).numpy(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(value, values.numpy(), atol=1e-5)
    np.testing.assert_allclose(prior.sum(1), 1.0, atol=1e-5)


def test_a_smaller_batch_does_not_see_the_one_before():
    planes = random_planes(8, seed=1)
    fresh = evaluate(TorchEvaluator(DATA, CPU), planes[:4])
    used = TorchEvaluator(DATA, CPU)
    evaluate(used, random_planes(16, seed=2))
    again = evaluate(used, planes[:4])
    assert np.array_equal(fresh[0], again[0]) and np.array_equal(fresh[1], again[1])


def test_two_evaluators_give_the_same_bits():
    planes = random_planes(16)
    one, other = (evaluate(TorchEvaluator(DATA, CPU), planes) for _ in range(2))
    assert one[0].tobytes() == other[0].tobytes() and one[1].tobytes() == other[1].tobytes()


def test_bf16_is_near_fp32_and_not_the_same():
    planes = random_planes(8)
    prior, value = evaluate(TorchEvaluator(DATA, CPU), planes)
    low_prior, low_value = evaluate(TorchEvaluator(DATA, CPU.model_copy(update={"precision": "bf16"})), planes)
    np.testing.assert_allclose(low_value, value, atol=0.1)
    assert np.abs(low_prior - prior).sum(1).max() < 0.2
    assert not np.array_equal(low_value, value)


def test_broken_weights_are_refused():
    with pytest.raises(StorageError):
        TorchEvaluator(DATA[:100], CPU)
