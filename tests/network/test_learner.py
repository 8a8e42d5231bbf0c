"""The loss and the steps of learning."""

import numpy as np
import pytest
import torch

from tests.network.networks import as_images, lived_in_network
from tests.network.test_optimizer import TRAINING, random_batch
from zero.errors import ParamsError
from zero.network.learner import Learner, data_losses, kl_divergence
from zero.params import LearningRateStep


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_the_losses_are_those_of_the_paper():
    draws = np.random.default_rng(0)
    logits, value = draws.normal(size=(5, 4)), draws.uniform(-1, 1, 5)
    policy_target, value_target = draws.dirichlet(np.ones(4), 5), np.array([1.0, -1.0, 0.0, 1.0, -1.0])
    losses = data_losses(*(torch.from_numpy(x) for x in (logits, value, policy_target, value_target)))
    assert float(losses.policy) == pytest.approx(-(policy_target * np.log(softmax(logits))).sum() / 5)
    assert float(losses.value) == pytest.approx(((value_target - value) ** 2).sum() / 5)


def test_kl_divergence_counts_from_the_old_policy():
    draws = np.random.default_rng(1)
    old, new = draws.normal(size=(3, 4)), draws.normal(size=(3, 4))
    p, q = softmax(old), softmax(new)
    assert kl_divergence(torch.from_numpy(old), torch.from_numpy(new)) == pytest.approx((p * np.log(p / q)).sum() / 3)
    assert kl_divergence(torch.from_numpy(old), torch.from_numpy(old)) == pytest.approx(0.0, abs=1e-12)


def test_two_steps_are_momentum_sgd_on_the_whole_loss():
    """By the book: g = gradient of data loss + c * |theta|^2; m = 0.9 m + g; theta -= rate * m."""
    batches = [random_batch(seed=seed) for seed in range(2)]
    model = lived_in_network().train()
    parameters = list(model.parameters())
    momentum = [torch.zeros_like(parameter) for parameter in parameters]
    for planes, policy_target, value_target in batches:
        logits, value = model(as_images(planes))
        losses = data_losses(logits, value, torch.from_numpy(policy_target), torch.from_numpy(value_target))
        decay = torch.cat([parameter.reshape(-1) for parameter in parameters]).square().sum()
        loss = losses.policy + TRAINING.value_loss_weight * losses.value + TRAINING.weight_decay * decay
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for i, gradient in enumerate(gradients):
                momentum[i] = TRAINING.momentum * momentum[i] + gradient
                parameters[i].sub_(0.05 * momentum[i])
    learned = lived_in_network()
    results = list(Learner(learned, TRAINING, "cpu").train(batches))
    assert results[-1].loss == pytest.approx(float(loss.detach()), rel=1e-4)
    assert results[-1].policy_loss == pytest.approx(float(losses.policy.detach()), rel=1e-4)
    for found, expected in zip(learned.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-5)


def test_accuracy_and_entropy_are_those_of_the_policy_before_the_step():
    planes, policy_target, value_target = random_batch()
    model = lived_in_network().train()
    with torch.no_grad():
        p = softmax(model(as_images(planes))[0].numpy().astype(np.float64))
    policy_target[:3] = np.eye(p.shape[1], dtype=np.float32)[p[:3].argmax(1)]
    policy_target[3:] = np.eye(p.shape[1], dtype=np.float32)[p[3:].argmin(1)]
    (result,) = Learner(lived_in_network(), TRAINING, "cpu").train([(planes, policy_target, value_target)])
    assert result.policy_accuracy == pytest.approx(3 / 8)
    assert result.policy_entropy == pytest.approx(-(p * np.log(p)).sum() / 8, rel=1e-4)


def test_a_batch_seen_again_and_again_is_learned():
    batch = random_batch()
    training = TRAINING.model_copy(update={"weight_decay": 0.0})
    results = list(Learner(lived_in_network(), training, "cpu").train([batch] * 150))
    entropy_of_targets = -(batch[1] * np.log(np.maximum(batch[1], 1e-30))).sum() / 8
    assert results[0].policy_loss > entropy_of_targets + 1.0
    assert results[-1].policy_loss < entropy_of_targets + 0.3
    assert results[-1].value_loss < 0.1 * results[0].value_loss


def test_the_rate_changes_at_its_step_and_steps_are_counted_on():
    schedule = tuple(LearningRateStep(from_step=s, learning_rate=r) for s, r in ((0, 0.01), (12, 0.001)))
    training = TRAINING.model_copy(update={"learning_rate": schedule})
    results = list(Learner(lived_in_network(), training, "cpu", step=10).train([random_batch()] * 4))
    assert [result.step for result in results] == [11, 12, 13, 14]
    assert [result.learning_rate for result in results] == [0.01, 0.01, 0.001, 0.001]


def test_the_rate_is_adapted_to_the_policy_it_moved():
    training = TRAINING.model_copy(update={"kl_target": 1e-9})
    learner = Learner(lived_in_network(), training, "cpu")
    first, second = learner.train([random_batch()] * 2)
    assert [first.learning_rate, second.learning_rate] == pytest.approx([0.05, 0.05 / 1.5])
    learner = Learner(lived_in_network(), TRAINING.model_copy(update={"kl_target": 100.0}), "cpu")
    first, second = learner.train([random_batch()] * 2)
    assert [first.learning_rate, second.learning_rate] == pytest.approx([0.05, 0.05 * 1.5])


def test_measuring_the_movement_changes_no_weight_and_no_statistic():
    plain, measured = (
        Learner(lived_in_network(), TRAINING.model_copy(update={"kl_target": target}), "cpu") for target in (0.0, 1.0)
    )
    for learner in (plain, measured):
        list(learner.train([random_batch()]))
    assert plain.weights() == measured.weights()


def test_divergence_is_an_error_with_the_remedy():
    wild = TRAINING.model_copy(update={"learning_rate": (LearningRateStep(from_step=0, learning_rate=10.0),)})
    planes, policy_target, value_target = random_batch()
    batch = (planes, policy_target, value_target * 1e20)
    with pytest.raises(
        ParamsError, match=r"diverged: the loss is (nan|inf) at step \d+ .* lower training\.learning_rate"
    ):
        list(Learner(lived_in_network(), wild, "cpu").train([batch] * 20))
