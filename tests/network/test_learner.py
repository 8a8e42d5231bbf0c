"""The losses and the optimiser steps."""

import numpy as np
import pytest
import torch

from tests.network.networks import (
    ARCHITECTURES,
    GO5,
    TINY,
    TRAINING,
    as_images,
    needs_cuda,
    random_batch,
    random_planes,
    randomized_network,
)
from tests.oracle.bitboards import unpack
from zero.config.params import LearningRateStep
from zero.errors import ParamsError
from zero.network.learner import Learner, StepResult, ema_decay_after
from zero.network.losses import Targets, data_losses, kl_divergence, value_statistics, weighted_sum
from zero.network.model import AlphaZeroNetwork, Predictions
from zero.network.spec import network_spec
from zero.network.weights import load_network, new_network

TINY_SPEC = network_spec(TINY, GO5)
EVERYTHING = ARCHITECTURES["residual joint with everything"]


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def images(batch: tuple[np.ndarray, ...]) -> torch.Tensor:
    return as_images(unpack(batch[0], 25).astype(np.float32))


def targets_of(batch: tuple[np.ndarray, ...]) -> Targets:
    return Targets(*map(torch.from_numpy, batch[1:]))


def predictions_of(logits: np.ndarray, value: np.ndarray) -> Predictions:
    """Predictions with these policy logits [B, A] and values [B]."""
    numbers = torch.from_numpy(value)
    return Predictions(torch.from_numpy(logits), numbers, torch.atanh(numbers), None, None)


def learn(learner: Learner, batches: list[tuple[np.ndarray, ...]]) -> list[StepResult]:
    assert list(learner.train(batches)) == list(range(learner.step - len(batches) + 1, learner.step + 1))
    return learner.results()


def test_the_losses_are_those_of_the_paper():
    draws = np.random.default_rng(0)
    logits, value = draws.normal(size=(5, 4)), draws.uniform(-1, 1, 5)
    policy_target, value_target = draws.dirichlet(np.ones(4), 5), np.array([1.0, -1.0, 0.0, 1.0, -1.0])
    none = torch.zeros(5, 9), torch.zeros(5), torch.zeros(5)
    losses = data_losses(
        predictions_of(logits, value),
        Targets(torch.from_numpy(policy_target), torch.from_numpy(value_target), *none),
        "squared_error",
    )
    assert float(losses.policy) == pytest.approx(-(policy_target * np.log(softmax(logits))).sum() / 5)
    assert float(losses.value) == pytest.approx(((value_target - value) ** 2).sum() / 5)
    assert float(losses.ownership) == float(losses.score) == 0.0
    assert float(weighted_sum(losses, TRAINING)) == pytest.approx(float(losses.policy) + 0.5 * float(losses.value))


def test_the_cross_entropy_compares_winning_probabilities():
    draws = np.random.default_rng(0)
    logits, value = draws.normal(size=(5, 4)), draws.uniform(-1, 1, 5)
    policy_target, value_target = draws.dirichlet(np.ones(4), 5), np.array([1.0, -1.0, 0.0, 0.5, -1.0])
    none = torch.zeros(5, 9), torch.zeros(5), torch.zeros(5)
    targets = Targets(torch.from_numpy(policy_target), torch.from_numpy(value_target), *none)
    found = data_losses(predictions_of(logits, value), targets, "cross_entropy")
    won, target = (1 + value) / 2, (1 + value_target) / 2
    assert float(found.value) == pytest.approx(-(target * np.log(won) + (1 - target) * np.log(1 - won)).sum() / 5)


def test_with_the_cross_entropy_a_saturated_wrong_value_has_a_gradient():
    gradients = {}
    for loss in ("squared_error", "cross_entropy"):
        logit = torch.tensor([9.0], requires_grad=True)
        predictions = Predictions(torch.zeros(1, 4), torch.tanh(logit), logit, None, None)
        targets = Targets(torch.full((1, 4), 0.25), torch.tensor([-1.0]), torch.zeros(1, 9), *torch.zeros(2, 1))
        data_losses(predictions, targets, loss).value.backward()
        assert logit.grad is not None
        gradients[loss] = float(logit.grad)
    assert gradients["squared_error"] < 1e-5
    assert gradients["cross_entropy"] == pytest.approx(2.0)


def test_the_statistics_of_the_value_are_those_of_the_batch():
    value, target = np.array([0.995, -0.99, 0.5, 0.0]), np.array([1.0, -1.0, -1.0, 1.0])
    found = value_statistics(torch.from_numpy(value), torch.from_numpy(target))
    assert float(found.squared_error) == pytest.approx(((value - target) ** 2).mean())
    assert float(found.constant_loss) == pytest.approx(target.var(ddof=1))
    assert float(found.saturated) == 0.5
    assert float(found.deviation) == pytest.approx(value.std())
    alone = value_statistics(torch.zeros(1), torch.ones(1))
    assert float(alone.constant_loss) == 0.0


def test_ownership_and_score_losses_count_only_games_that_were_played_out():
    batch = random_batch()
    draws = np.random.default_rng(0)
    ownership, score = draws.uniform(-1, 1, (8, 25)), draws.uniform(-1, 1, 8)
    predictions = predictions_of(np.zeros((8, 26)), np.zeros(8))
    predictions = predictions._replace(ownership=torch.from_numpy(ownership), score=torch.from_numpy(score))
    losses = data_losses(predictions, targets_of(batch), "squared_error")
    ownership_target, score_target, played_out = batch[3:]
    assert 0 < played_out.sum() < 8
    ownership_error = score_error = 0.0
    for b in range(8):
        if played_out[b]:
            ownership_error += np.mean([(ownership[b, p] - ownership_target[b, p]) ** 2 for p in range(25)])
            score_error += (score[b] - score_target[b] / 25) ** 2
    assert float(losses.ownership) == pytest.approx(ownership_error / 8)
    assert float(losses.score) == pytest.approx(score_error / 8)
    expected = losses.policy + 0.5 * losses.value + 0.3 * losses.ownership + 0.2 * losses.score
    assert float(weighted_sum(losses, TRAINING)) == pytest.approx(float(expected))


def test_kl_divergence_is_an_expectation_under_the_old_policy():
    draws = np.random.default_rng(1)
    old, new = draws.normal(size=(3, 4)), draws.normal(size=(3, 4))
    p, q = softmax(old), softmax(new)
    kl = float(kl_divergence(torch.from_numpy(old), torch.from_numpy(new)))
    assert kl == pytest.approx((p * np.log(p / q)).sum() / 3)
    assert float(kl_divergence(torch.from_numpy(old), torch.from_numpy(old))) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("network", [TINY, EVERYTHING], ids=["paper", "everything"])
def test_two_steps_are_momentum_sgd_on_the_total_loss(network):
    """Direct computation: g = gradient of data loss + c * |theta|^2; m = 0.9 m + g; theta -= rate * m."""
    batches = [random_batch(seed=seed) for seed in range(2)]
    model = randomized_network(network).train()
    parameters = list(model.parameters())
    momentum = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in batches:
        losses = data_losses(model.predict(images(batch)), targets_of(batch), "squared_error")
        decay = torch.cat([parameter.reshape(-1) for parameter in parameters]).square().sum()
        loss = losses.policy + 0.5 * losses.value + TRAINING.weight_decay * decay
        loss = loss + 0.3 * losses.ownership + 0.2 * losses.score
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for i, gradient in enumerate(gradients):
                momentum[i] = TRAINING.momentum * momentum[i] + gradient
                parameters[i].sub_(0.05 * momentum[i])
    learned = randomized_network(network)
    result = learn(Learner(learned, TRAINING, "cpu"), batches)[-1]
    assert result.loss == pytest.approx(float(loss.detach()), rel=1e-4)
    for name in ("policy", "value", "ownership", "score"):
        expected = pytest.approx(float(getattr(losses, name).detach()), rel=1e-4)
        assert getattr(result, f"{name}_loss") == expected
    for found, expected in zip(learned.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-5)


def test_accuracy_and_entropy_are_those_of_the_policy_before_the_step():
    batch = random_batch()
    model = randomized_network().train()
    with torch.no_grad():
        p = softmax(model(images(batch))[0].numpy().astype(np.float64))
    policy_target = batch[1]
    policy_target[:3] = np.eye(p.shape[1], dtype=np.float32)[p[:3].argmax(1)]
    policy_target[3:] = np.eye(p.shape[1], dtype=np.float32)[p[3:].argmin(1)]
    (result,) = learn(Learner(randomized_network(), TRAINING, "cpu"), [batch])
    assert result.policy_accuracy == pytest.approx(3 / 8)
    assert result.policy_entropy == pytest.approx(-(p * np.log(p)).sum() / 8, rel=1e-4)


@pytest.mark.parametrize("name", ["residual joint", "shallow with heads", "separate pooled heads with everything"])
def test_a_repeated_batch_is_learned(name):
    network, batch = ARCHITECTURES[name], random_batch()
    training = TRAINING.model_copy(update={"weight_decay": 0.0})
    results = learn(Learner(randomized_network(network), training, "cpu"), [batch] * 150)
    entropy_of_targets = -(batch[1] * np.log(np.maximum(batch[1], 1e-30))).sum() / 8
    assert results[0].policy_loss > entropy_of_targets + 1.0
    assert results[-1].policy_loss < entropy_of_targets + 0.3
    assert results[-1].value_loss < 0.1 * results[0].value_loss
    if network.ownership_head:
        assert 0 < results[-1].ownership_loss < 0.3 * results[0].ownership_loss
    if network.score_head:
        assert 0 < results[-1].score_loss < 0.3 * results[0].score_loss


def test_the_rate_follows_the_schedule_and_steps_are_counted_across_generations():
    schedule = tuple(LearningRateStep(from_step=s, learning_rate=r) for s, r in ((0, 0.01), (12, 0.001)))
    training = TRAINING.model_copy(update={"learning_rate": schedule})
    results = learn(Learner(randomized_network(), training, "cpu", step=10), [random_batch()] * 4)
    assert [result.step for result in results] == [11, 12, 13, 14]
    assert [result.learning_rate for result in results] == [0.01, 0.01, 0.001, 0.001]


def test_the_rate_is_adapted_to_the_change_of_the_policy():
    training = TRAINING.model_copy(update={"kl_target": 1e-9})
    learner = Learner(randomized_network(), training, "cpu")
    first, second = learn(learner, [random_batch()] * 2)
    assert [first.learning_rate, second.learning_rate] == pytest.approx([0.05, 0.05 / 1.5])
    learner = Learner(randomized_network(), TRAINING.model_copy(update={"kl_target": 100.0}), "cpu")
    first, second = learn(learner, [random_batch()] * 2)
    assert [first.learning_rate, second.learning_rate] == pytest.approx([0.05, 0.05 * 1.5])


def test_the_rate_is_not_adapted_during_the_warm_up():
    training = TRAINING.model_copy(update={"kl_target": 100.0, "warmup_steps": 2})
    results = learn(Learner(randomized_network(), training, "cpu"), [random_batch()] * 4)
    assert [result.learning_rate for result in results] == pytest.approx([0.025, 0.05, 0.05, 0.05 * 1.5])


def test_the_factor_of_earlier_generations_does_not_apply_without_a_target():
    learner = Learner(randomized_network(), TRAINING, "cpu")
    learner.learning_rate_factor = 10.0
    (result,) = learn(learner, [random_batch()])
    assert result.learning_rate == 0.05


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_value_and_a_wrong_owner_near_1_have_a_gradient(precision):
    """In bf16 a tanh of 3.5 is 1.0, and its gradient 0."""
    model = new_network(TINY.model_copy(update={"ownership_head": True}), GO5, 5)
    parameters = dict(model.named_parameters())
    biases = [parameters[f"{head}.output.bias"] for head in ("value_head", "ownership_head")]
    with torch.no_grad():
        for head, bias in zip(("value_head", "ownership_head"), biases, strict=True):
            parameters[f"{head}.output.weight"].zero_()
            bias.fill_(3.5)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        found = model.predict(as_images(random_planes(4)))
    assert found.ownership is not None
    (found.value.float().mean() + found.ownership.float().mean()).backward()
    for bias in biases:
        assert bias.grad is not None and 0.003 < float(bias.grad.abs()) < 0.004  # 1 - tanh(3.5)^2 = 0.0036


def test_measuring_the_kl_divergence_changes_no_weight_and_no_statistic():
    plain, measured = (
        Learner(randomized_network(), TRAINING.model_copy(update={"kl_target": target}), "cpu") for target in (0.0, 1.0)
    )
    for learner in (plain, measured):
        learn(learner, [random_batch()])
    assert plain.weights() == measured.weights()


def test_divergence_is_an_error_with_a_remedy():
    wild = TRAINING.model_copy(update={"learning_rate": (LearningRateStep(from_step=0, learning_rate=10.0),)})
    planes, policy_target, value_target, *rest = random_batch()
    learner = Learner(randomized_network(), wild, "cpu")
    list(learner.train([(planes, policy_target, value_target * 1e20, *rest)] * 20))
    with pytest.raises(
        ParamsError, match=r"diverged: the loss is (nan|inf) at step \d+ .* lower training\.learning_rate"
    ):
        learner.results()


def test_results_are_returned_once():
    learner = Learner(randomized_network(), TRAINING, "cpu")
    list(learner.train([random_batch()] * 3))
    assert [result.step for result in learner.results()] == [1, 2, 3]
    assert learner.results() == []


def test_the_average_follows_the_weights_and_the_running_statistics():
    """Direct computation: a = d a + (1 - d) theta after each step, starting from the initial weights."""
    training = TRAINING.model_copy(update={"ema_decay": 0.9})
    batches = [random_batch(seed=seed) for seed in range(3)]
    learner = Learner(randomized_network(EVERYTHING), training, "cpu")
    expected = {name: tensor.clone() for name, tensor in randomized_network(EVERYTHING).state_dict().items()}
    for step in learner.train(batches):
        latest = load_network(learner.weights()).state_dict()
        d = {1: 2 / 11, 2: 3 / 12, 3: 4 / 13}[step]
        expected = {name: d * tensor + (1 - d) * latest[name] for name, tensor in expected.items()}
    found = load_network(learner.player_weights()).state_dict()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
        assert not torch.equal(tensor, latest[name]), name


def test_the_decay_of_the_average_rises_to_its_parameter():
    assert ema_decay_after(0.99, 1) == pytest.approx(2 / 11)
    assert ema_decay_after(0.99, 889) < 0.99
    assert [ema_decay_after(0.99, step) for step in (890, 891, 10**6)] == [pytest.approx(0.99), 0.99, 0.99]
    assert ema_decay_after(0.1, 1) == 0.1


@pytest.mark.parametrize("network", [TINY, EVERYTHING], ids=["paper", "everything"])
def test_bf16_learns_nearly_the_same_and_keeps_weights_in_fp32(network):
    batches = [random_batch(seed=seed) for seed in range(3)]
    learners = [
        Learner(randomized_network(network), TRAINING, "cpu", precision=name) for name in ("fp32", "bf16", "bf16")
    ]
    full, low, again = (learn(learner, batches) for learner in learners)
    assert low == again and learners[1].weights() == learners[2].weights()
    assert low != full
    for one, other in zip(low, full, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=0.03)
    for name, tensor in load_network(learners[1].weights()).state_dict().items():
        assert tensor.dtype == torch.float32, name


class SmallMemory(AlphaZeroNetwork):
    """Simulates a GPU with too little memory."""

    def predict(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_batch_too_large_for_the_gpu_is_reported():
    with pytest.raises(ParamsError, match=r"too small for training\.batch_size = 8; lower it"):
        list(Learner(SmallMemory(TINY_SPEC), TRAINING, "cpu").train([random_batch()]))


@needs_cuda
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 3e-2)])
def test_a_gpu_learns_like_the_cpu_and_gives_the_same_bits_each_time(precision, tolerance):
    batches = [random_batch(seed=seed) for seed in range(3)]
    expected = learn(Learner(randomized_network(EVERYTHING), TRAINING, "cpu"), batches)
    first, again = (Learner(randomized_network(EVERYTHING), TRAINING, "cuda", precision=precision) for _ in range(2))
    found = learn(first, batches)
    assert found == learn(again, batches) and first.weights() == again.weights()
    for one, other in zip(found, expected, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=tolerance)


@needs_cuda
@pytest.mark.parametrize("changes", [{}, {"optimizer": "adam"}, {"momentum": 0.0}, {"kl_target": 0.01}], ids=str)
def test_a_training_continued_on_a_gpu_gives_the_same_bits(changes):
    training = TRAINING.model_copy(update={"ema_decay": 0.9, **changes})
    batches = [random_batch(seed=seed) for seed in range(4)]
    whole = Learner(randomized_network(EVERYTHING), training, "cuda", precision="bf16")
    expected = learn(whole, batches)
    first = Learner(randomized_network(EVERYTHING), training, "cuda", precision="bf16")
    found = learn(first, batches[:2])
    second = Learner(
        load_network(first.weights()),
        training,
        "cuda",
        first.step,
        first.learning_rate_factor,
        first.optimizer_state(),
        load_network(first.player_weights()),
        "bf16",
    )
    assert found + learn(second, batches[2:]) == expected
    assert second.weights() == whole.weights() and second.player_weights() == whole.player_weights()
    assert second.optimizer_state() == whole.optimizer_state()
    on_cpu = learn(Learner(randomized_network(EVERYTHING), training, "cpu"), batches)
    assert [each.loss for each in expected] == pytest.approx([each.loss for each in on_cpu], rel=3e-2)


@needs_cuda
def test_a_captured_step_is_the_step(monkeypatch):
    training = TRAINING.model_copy(update={"ema_decay": 0.9})
    batches = [random_batch(seed=seed) for seed in range(3)] + [random_batch(4, seed=3)]
    captured, launched = (Learner(randomized_network(EVERYTHING), training, "cuda") for _ in range(2))
    found = learn(captured, batches)
    monkeypatch.setattr(Learner, "_compute_on_gpu", lambda self, batch: self._compute_bits(self._inputs(batch)))
    assert found == learn(launched, batches)
    assert captured.weights() == launched.weights() and captured.player_weights() == launched.player_weights()
