"""Sections of the parameters about learning: the network, the window of games, the optimisation."""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zero.config.section import PositiveInt, Section


class NetworkParams(Section):
    """The network of the paper (Methods, 'Neural network architecture') at any size."""

    tower: Literal["residual", "plain", "shallow"]
    """`residual`: one convolution and `num_blocks` residual blocks; `plain`: the same layers without the skips;
    `shallow`: `num_blocks` single convolutions."""
    heads: Literal["joint", "separate"]
    """`joint`: one tower with both heads ('dual' in the paper); `separate`: a tower a head."""
    num_blocks: Annotated[int, Field(ge=1, le=80)]
    """Blocks of the tower: 19 or 39 in the paper."""
    num_channels: Annotated[int, Field(ge=1, le=1024)]
    """Channels of every convolution of the tower: 256 in the paper."""
    value_hidden: PositiveInt
    """Units of the hidden layer of the value head: 256 in the paper."""
    global_pooling: bool
    """True: the second half of the blocks also see means and maxima over the whole board (KataGo; not in the paper)."""
    ownership_head: bool
    """True: training also predicts who owns each point at the end of the game (KataGo; not in the paper)."""
    score_head: bool
    """True: training also predicts the margin at the end of the game (KataGo; not in the paper)."""
    pooled_heads: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: the policy head judges every point by the same weights and by what it pools over the whole board, the value
    head by that alone (KataGo; not in the paper). False, or not written: the paper's heads. Not in digests where it is
    false."""


class ReplayParams(Section):
    """The window of games that the network is trained on."""

    window_games: PositiveInt
    """Most recent self-play games to sample from: 500,000 in the paper."""
    window_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of the lineage's games in the window until it is full, but never less than the newest generation: with 0.5
    it forgets the first, nearly random players soon. 1 as in the paper: all, until there are `window_games`."""


class LearningRateStep(Section):
    """From `from_step` on the learning rate is `learning_rate`."""

    from_step: Annotated[int, Field(ge=0)]
    """First optimiser step (counted from generation 1) that it holds for."""
    learning_rate: Annotated[float, Field(gt=0.0, le=10.0)]
    """The rate."""


ValueLoss = Literal["squared_error", "cross_entropy"]


class TrainingParams(Section):
    """Optimisation of the trainee on the window."""

    num_steps: PositiveInt
    """Optimiser steps a generation."""
    batch_size: PositiveInt
    """Samples a step: 2,048 in the paper."""
    optimizer: Literal["sgd", "adam"]
    """SGD with momentum, as in the paper, or Adam."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)]
    """Momentum of SGD, first-moment decay of Adam: 0.9 in the paper."""
    weight_decay: Annotated[float, Field(ge=0.0)]
    """c of the L2 term c * |theta|^2 in the loss (so its gradient is 2 * c * theta): 1e-4 in the paper. Adam subtracts
    that gradient times the learning rate from the weights beside its step (AdamW)."""
    search_value_weight: Annotated[float, Field(ge=0.0, le=1.0, exclude_if=not_)] = 0.0
    """Share of the value that the search found in the value target; the rest is the outcome. 0, or not written:
    the outcome alone, as in the paper. Not in digests where it is 0."""
    value_loss: Annotated[ValueLoss, Field(exclude_if=lambda loss: loss == "squared_error")] = "squared_error"
    """What training minimises for the value v and its target z: (z - v)^2 as in the paper, which is also the default,
    or the cross-entropy of the winning probability (1 + v) / 2, whose gradient does not vanish where v is near 1 or -1.
    Not in digests where it is the default."""
    value_loss_weight: Annotated[float, Field(gt=0.0)]
    """Weight of the value loss: 1 in the paper for self-play, 0.01 for supervised learning."""
    ownership_loss_weight: Annotated[float, Field(ge=0.0)]
    """Weight of the ownership loss, where the network has that head."""
    score_loss_weight: Annotated[float, Field(ge=0.0)]
    """Weight of the score loss, where the network has that head."""
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)]
    """Decay of the moving average of the weights that becomes the challenger, min(ema_decay, (1 + n) / (10 + n)) after
    n steps; 0: the last weights, as in the paper."""
    learning_rate: Annotated[tuple[LearningRateStep, ...], Field(min_length=1)]
    """The schedule; the first entry starts at step 0."""
    warmup_steps: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """Optimiser steps, counted from generation 1, over which the learning rate rises linearly to that of the schedule.
    0, or not written: none, as in the paper. Not in digests where it is 0."""
    kl_target: Annotated[float, Field(ge=0.0)]
    """KL divergence of the policy over a step that the learning rate is adapted to; 0: no adaptation."""
    random_symmetry: bool
    """True: each sample is shown under a symmetry of the board drawn at random."""
    checkpoint_interval: PositiveInt
    """Steps between the checkpoints that an interrupted training goes on from: 1,000 in the paper."""
    log_interval: PositiveInt
    """Steps a line of the training curve is the mean of."""

    @model_validator(mode="after")
    def _schedule_is_ordered(self) -> Self:
        steps = [entry.from_step for entry in self.learning_rate]
        if steps[0] != 0 or sorted(set(steps)) != steps:
            raise ValueError(f"learning_rate must start at step 0 and rise, got steps {steps}")
        if self.warmup_steps > self.num_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} is longer than the first training, num_steps {self.num_steps}; "
                "lower it"
            )
        return self
