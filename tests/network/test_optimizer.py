"""The learning rate, and the optimiser's state across generations."""

import subprocess
import sys

import pytest
import torch

from tests.network.networks import GO5, TINY, TRAINING, random_batch, randomized_network
from zero.config.params import LearningRateStep
from zero.errors import ParamsError, StorageError
from zero.network.learner import Learner
from zero.network.optimizer import adapted_factor, load_optimizer, new_optimizer, optimizer_bytes, scheduled_rate, step
from zero.network.weights import new_network


@pytest.mark.parametrize(
    ("factor", "kl", "adapted"),
    [
        (1.0, 0.041, 1 / 1.5),
        (1.0, 0.039, 1.0),
        (1.0, 0.011, 1.0),
        (1.0, 0.009, 1.5),
        (0.11, 1.0, 0.1),
        (0.1, 1.0, 0.1),
        (9.0, 0.0, 10.0),
        (10.0, 0.0, 10.0),
    ],
)
def test_the_factor_falls_if_the_policy_changes_too_much_and_rises_if_too_little(factor, kl, adapted):
    assert adapted_factor(factor, kl, kl_target=0.02) == pytest.approx(adapted)


def test_adam_decays_a_weight_without_a_gradient_in_proportion_to_it():
    """As a part of the gradient, the decay would be a step of the full learning rate, however small the weight."""
    model, rate = randomized_network(), 0.01
    training = TRAINING.model_copy(update={"optimizer": "adam", "weight_decay": 1e-4})
    optimizer = new_optimizer(training, model)
    optimizer.param_groups[0]["lr"] = rate
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, was in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), was * (1.0 - rate * 2e-4), rtol=1e-6, atol=0.0)


def test_the_empty_state_before_the_first_step_can_be_loaded():
    model = new_network(TINY, GO5, 1)
    optimizer = new_optimizer(TRAINING, model)
    data = optimizer_bytes(optimizer, model)
    load_optimizer(data, optimizer, model)
    assert optimizer_bytes(optimizer, model) == data
    assert len(data) < 100


def test_the_state_of_another_optimizer_is_rejected_after_the_first_step():
    learner = Learner(randomized_network(), TRAINING, "cpu")
    model = randomized_network()
    adam = new_optimizer(TRAINING.model_copy(update={"optimizer": "adam"}), model)
    load_optimizer(learner.optimizer_state(), adam, model)
    assert not adam.state
    list(learner.train([random_batch()]))
    with pytest.raises(ParamsError, match="trained with 'sgd'"):
        load_optimizer(learner.optimizer_state(), adam, model)


def test_momentum_can_be_switched_off_and_on():
    model = randomized_network()
    learner = Learner(model, TRAINING, "cpu")
    list(learner.train([random_batch()]))
    bare = new_optimizer(TRAINING.model_copy(update={"momentum": 0.0}), model)
    load_optimizer(learner.optimizer_state(), bare, model)
    assert not bare.state
    again = new_optimizer(TRAINING, model)
    load_optimizer(optimizer_bytes(bare, model), again, model)
    assert optimizer_bytes(again, model) == optimizer_bytes(bare, model)


def test_the_state_of_another_network_is_rejected():
    learner = Learner(randomized_network(), TRAINING, "cpu")
    list(learner.train([random_batch()]))
    other = new_network(TINY.model_copy(update={"num_channels": 5}), GO5, 1)
    with pytest.raises(StorageError, match="of the optimizer state"):
        load_optimizer(learner.optimizer_state(), new_optimizer(TRAINING, other), other)


def test_a_corrupt_state_is_rejected():
    model = new_network(TINY, GO5, 1)
    optimizer = new_optimizer(TRAINING, model)
    with pytest.raises(StorageError, match="optimizer state is corrupt"):
        load_optimizer(optimizer_bytes(optimizer, model)[:-5], optimizer, model)


def test_the_warm_up_rises_linearly_to_the_schedule():
    schedule = (LearningRateStep(from_step=0, learning_rate=0.05), LearningRateStep(from_step=6, learning_rate=0.01))
    rates = [scheduled_rate(schedule, step, warmup_steps=4) for step in range(8)]
    assert rates == pytest.approx([0.0125, 0.025, 0.0375, 0.05, 0.05, 0.05, 0.01, 0.01])
    assert scheduled_rate(schedule, 0) == 0.05


def test_a_training_does_not_import_the_compiler():
    program = """
import sys
from tests.network.networks import TRAINING, random_batch, randomized_network
from zero.network.learner import Learner

for optimizer in ("sgd", "adam"):
    training = TRAINING.model_copy(update={"optimizer": optimizer})
    learner = Learner(randomized_network(), training, "cpu")
    list(learner.train([random_batch(seed=1)]))
    assert learner.step == 1 and learner.optimizer_state()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_step_equals_that_of_torch(optimizer):
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1.0, 1.0, 7)) for _ in range(2))
    first, second = optimizer([ours], lr=0.1), optimizer([theirs], lr=0.1)
    for _ in range(3):
        for parameter in (ours, theirs):
            parameter.grad = parameter.detach() ** 2
        step(first)
        second.step()
    assert torch.equal(ours, theirs)
