"""Sections of the parameters about learning: the network, the window of games, the optimisation.

Defaults are the values of the paper (Silver et al. 2017, Methods), or off for what the paper does not have.
"""

from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zero.config.section import PositiveInt, Section


class NetworkParams(Section):
    """The network of the paper (Methods, 'Neural network architecture') at any size."""

    tower: Literal["residual", "plain", "shallow"] = "residual"
    """Trunk. `residual`: one convolution and `num_blocks` residual blocks; `plain`: the same layers without the skips;
    `shallow`: `num_blocks` single convolutions."""
    heads: Literal["joint", "separate"] = "joint"
    """`joint`: one trunk with both heads ('dual' in the paper); `separate`: a trunk per head."""
    num_blocks: Annotated[int, Field(ge=1, le=80)] = 19
    """Blocks of the trunk: 19 or 39 in the paper."""
    num_channels: Annotated[int, Field(ge=1, le=1024)] = 256
    """Channels of every convolution of the trunk: 256 in the paper."""
    value_hidden: PositiveInt = 256
    """Units of the hidden layer of the value head: 256 in the paper."""
    global_pooling: bool = False
    """True: the second half of the blocks also gets means and maxima over the board (KataGo; not in the paper)."""
    ownership_head: bool = False
    """True: training also predicts the owner of each point at the end of the game (KataGo; not in the paper)."""
    score_head: bool = False
    """True: training also predicts the margin at the end of the game (KataGo; not in the paper)."""
    pooled_heads: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: the policy head has the same weights at every point and adds features pooled over the board; the value head
    has the pooled features only (KataGo; not in the paper). False: the heads of the paper."""


class ReplayParams(Section):
    """The window of games that the network is trained on."""

    window_games: PositiveInt = 500_000
    """Most recent self-play games to sample from: 500,000 in the paper."""
    window_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the lineage's games in the window until it is full, but at least the newest generation. With 0.5 the
    window soon drops the games of the first, nearly random players. 1 as in the paper: all games up to
    `window_games`."""


class LearningRateStep(Section):
    """One entry of the schedule: from `from_step` on the learning rate is `learning_rate`."""

    from_step: Annotated[int, Field(ge=0)]
    """First optimiser step (counted from generation 1) of this entry."""
    learning_rate: Annotated[float, Field(gt=0.0, le=10.0)]
    """The learning rate."""


ValueLoss = Literal["squared_error", "cross_entropy"]
PAPER_SCHEDULE = (
    LearningRateStep(from_step=0, learning_rate=0.01),
    LearningRateStep(from_step=400_000, learning_rate=0.001),
    LearningRateStep(from_step=600_000, learning_rate=0.0001),
)
"""Extended Data Table 3 of the paper, the rates of reinforcement learning."""


class TrainingParams(Section):
    """Optimisation of the trainee on the window."""

    num_steps: PositiveInt = 1000
    """Optimiser steps per generation."""
    batch_size: PositiveInt = 2048
    """Samples per step: 2,048 in the paper."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum, as in the paper, or Adam."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Momentum of SGD, first-moment decay of Adam: 0.9 in the paper."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    """c of the L2 term c * |theta|^2 in the loss (so its gradient is 2 * c * theta): 1e-4 in the paper. Adam subtracts
    the learning rate times that gradient from the weights, apart from its step (AdamW)."""
    search_value_weight: Annotated[float, Field(ge=0.0, le=1.0, exclude_if=not_)] = 0.0
    """Share of the search's value in the value target; the rest is the outcome. 0: the outcome alone, as in the
    paper."""
    value_loss: Annotated[ValueLoss, Field(exclude_if=lambda loss: loss == "squared_error")] = "squared_error"
    """Loss of the value v against its target z: (z - v)^2 as in the paper, or the cross-entropy of the winning
    probability (1 + v) / 2, whose gradient does not vanish for v near 1 or -1."""
    value_loss_weight: Annotated[float, Field(gt=0.0)] = 1.0
    """Weight of the value loss: 1 in the paper for self-play, 0.01 for supervised learning."""
    ownership_loss_weight: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the ownership loss, if the network has that head."""
    score_loss_weight: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the score loss, if the network has that head."""
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Decay of the moving average of the weights that becomes the challenger, min(ema_decay, (1 + n) / (10 + n)) after
    n steps; 0: the last weights, as in the paper."""
    learning_rate: Annotated[tuple[LearningRateStep, ...], Field(min_length=1)] = PAPER_SCHEDULE
    """The schedule; the first entry starts at step 0."""
    warmup_steps: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """Optimiser steps, counted from generation 1, over which the learning rate rises linearly to the schedule. 0: no
    warm-up, as in the paper."""
    kl_target: Annotated[float, Field(ge=0.0)] = 0.0
    """KL divergence of the policy over one step, to which the learning rate is adapted; 0: no adaptation."""
    random_symmetry: bool = True
    """True: each sample is transformed by a random symmetry of the board."""
    checkpoint_interval: PositiveInt = 1000
    """Steps between the checkpoints from which an interrupted training continues: 1,000 in the paper."""
    log_interval: PositiveInt = 10
    """Steps that a line of the training curve averages."""

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
