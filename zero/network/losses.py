"""What training minimises: the loss of the paper, and those of the heads that are for training alone.

Every part is a mean over the batch, so that the parts of a batch that several processes share add up to the whole.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from zero.network.tower import Predictions
from zero.params import TrainingParams


class Targets(NamedTuple):
    """What became of the positions of a batch, for the player to move; see `zero.play.samples.SampleBatch`."""

    policy: Tensor  # [B, A], sums to 1
    value: Tensor  # [B], outcome
    ownership: Tensor  # [B, S*S], 1 the player to move, -1 the opponent
    score: Tensor  # [B], margin in points
    played_out: Tensor  # [B], 1 where ownership and score are known, else 0


class Losses(NamedTuple):
    """The parts of the loss that come from the data, scalars; 0 for a head that the network does not have."""

    policy: Tensor
    value: Tensor
    ownership: Tensor
    score: Tensor


def data_losses(predictions: Predictions, targets: Targets) -> Losses:
    """Means over the batch of -pi^T log p, (z - v)^2, and the squared errors of ownership and score.

    The error of ownership is a mean over the points, the score is counted in boards (margin over number of points);
    both are 0 for the positions of a game that was not played out.
    """
    policy = -(targets.policy * functional.log_softmax(predictions.logits, dim=1)).sum(dim=1).mean()
    value = functional.mse_loss(predictions.value, targets.value)
    ownership = score = torch.zeros((), device=value.device)
    if predictions.ownership is not None:
        errors = (predictions.ownership - targets.ownership).square().mean(dim=1)
        ownership = (errors * targets.played_out).mean()
    if predictions.score is not None:
        errors = (predictions.score - targets.score / targets.ownership.shape[1]).square()
        score = (errors * targets.played_out).mean()
    return Losses(policy, value, ownership, score)


def weighted_sum(losses: Losses, training: TrainingParams) -> Tensor:
    """The loss without its L2 term."""
    weights = (1.0, training.value_loss_weight, training.ownership_loss_weight, training.score_loss_weight)
    return torch.stack([weight * part for weight, part in zip(weights, losses, strict=True)]).sum()


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
