"""Losses: the loss of the paper, and the losses of the auxiliary heads.

Every loss is a mean over the batch. So the mean over the equal shares of several processes is the loss of the batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from zero.config.params import TrainingParams, ValueLoss
from zero.network.model import Predictions

SATURATED_VALUE = 0.99
"""A value at least this far from 0 counts as saturated: there tanh passes less than 2 % of a gradient."""


class Targets(NamedTuple):
    """Training targets of a batch, in the order of `SampleBatch` without its planes; for the player to move."""

    policy: Tensor  # [B, A], sums to 1
    value: Tensor  # [B], outcome
    ownership: Tensor  # [B, S*S], 1 player to move, -1 opponent
    score: Tensor  # [B], margin in points
    played_out: Tensor  # [B], 1 if ownership and score are known, else 0


class Losses(NamedTuple):
    """The losses on the data, scalars; 0 for a head that the network does not have."""

    policy: Tensor
    value: Tensor
    ownership: Tensor
    score: Tensor


class ValueStatistics(NamedTuple):
    """Statistics of a batch's value predictions, scalars; see the fields of `StepResult`."""

    squared_error: Tensor
    constant_loss: Tensor
    saturated: Tensor
    deviation: Tensor


def data_losses(predictions: Predictions, targets: Targets, value_loss: ValueLoss) -> Losses:
    """The losses of a batch: -pi^T log p, the value loss, and the squared errors of ownership and score.

    The value loss is (z - v)^2, or the cross-entropy of the winning probability (1 + v) / 2 against (1 + z) / 2. The
    gradient of the cross-entropy with respect to the logit x of v = tanh(x) is v - z. The gradient of the squared error
    has the additional factor 2 (1 - v^2), so it vanishes for v near 1 or -1, however wrong v is.

    The ownership error is a mean over the points. The score is divided by the number of points. Both errors are 0 for
    positions of a game that was not played out.
    """
    policy = -(targets.policy * functional.log_softmax(predictions.logits, dim=1)).sum(dim=1).mean()
    if value_loss == "cross_entropy":
        # sigmoid(2 x) = (1 + tanh(x)) / 2, so twice the value's logit is the logit of the winning probability.
        winning = (1.0 + targets.value) / 2.0
        value = functional.binary_cross_entropy_with_logits(2.0 * predictions.value_logit, winning)
    else:
        value = functional.mse_loss(predictions.value, targets.value)
    ownership = score = torch.zeros((), device=value.device)
    if predictions.ownership is not None:
        errors = (predictions.ownership - targets.ownership).square().mean(dim=1)
        ownership = (errors * targets.played_out).mean()
    if predictions.score is not None:
        # The target is in points; divided by S*S it has the size of the other targets.
        errors = (predictions.score - targets.score / targets.ownership.shape[1]).square()
        score = (errors * targets.played_out).mean()
    return Losses(policy, value, ownership, score)


def weighted_sum(losses: Losses, training: TrainingParams) -> Tensor:
    """The training loss without its L2 term, a scalar."""
    weights = (1.0, training.value_loss_weight, training.ownership_loss_weight, training.score_loss_weight)
    return torch.stack([weight * part for weight, part in zip(weights, losses, strict=True)]).sum()


def value_statistics(value: Tensor, target: Tensor) -> ValueStatistics:
    """Statistics of the values and targets of a batch, both [B]."""
    return ValueStatistics(
        squared_error=functional.mse_loss(value, target),
        constant_loss=target.var(correction=min(1, len(target) - 1)),  # unbiased: the expected loss on new samples
        saturated=(value.abs() >= SATURATED_VALUE).float().mean(),
        deviation=value.std(correction=0),
    )


def policy_accuracy(logits: Tensor, policy_target: Tensor) -> Tensor:
    """Share of the samples whose highest target has the highest logit, a scalar; both are [B, A]."""
    return (logits.argmax(dim=1) == policy_target.argmax(dim=1)).float().mean()


def policy_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the policies, nats, a scalar; logits are [B, A]."""
    log_policy = functional.log_softmax(logits, dim=1)
    return -(log_policy.exp() * log_policy).sum(dim=1).mean()


def kl_divergence(old_logits: Tensor, new_logits: Tensor) -> Tensor:
    """Mean over the batch of KL(old policy || new policy), nats, a scalar; logits are [B, A]."""
    old, new = functional.log_softmax(old_logits, dim=1), functional.log_softmax(new_logits, dim=1)
    return (old.exp() * (old - new)).sum(dim=1).mean()
