"""The optimiser, its state as bytes, and the learning rate: schedule by step, and adaptation to a KL target.

The adaptation is that of junxiaosong/AlphaZero_Gomoku (`policy_update`): a factor on the schedule that falls where the
policy moved more than twice the target, and rises where it moved less than half of it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from zero.config.params import LearningRateStep, TrainingParams
from zero.errors import ParamsError
from zero.network.model import AlphaZeroNetwork
from zero.network.weights import copy_tensors, parse_tensors, tensors_bytes

ADAM_SECOND_MOMENT_DECAY = 0.999
KL_FACTOR_STEP = 1.5
KL_FACTOR_RANGE = (0.1, 10.0)
KL_TOLERANCE = 2.0


def new_optimizer(training: TrainingParams, model: AlphaZeroNetwork) -> Optimizer:
    """The optimiser of the parameters, without state; the learning rate is set at each step.

    The gradient of c * |theta|^2 is 2 * c * theta, which is what torch calls a weight decay of 2 * c. As in the paper
    it holds for all parameters. Adam takes it off the weights beside the step, not as a part of the gradient
    (Loshchilov and Hutter, 2019): there it is scaled up like every small gradient, and channels die by the dozen.
    """
    decay = 2.0 * training.weight_decay
    if training.optimizer == "sgd":
        return SGD(model.parameters(), lr=0.0, momentum=training.momentum, weight_decay=decay, foreach=False)
    betas = (training.momentum, ADAM_SECOND_MOMENT_DECAY)
    return Adam(model.parameters(), lr=0.0, betas=betas, weight_decay=decay, foreach=False, decoupled_weight_decay=True)


def optimizer_bytes(optimizer: Optimizer, model: AlphaZeroNetwork) -> bytes:
    """The state file: tensors `<buffer>.<parameter>`; before the first step there are none."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for buffer, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{buffer}.{name}"] = value
    return tensors_bytes(tensors, _kind(optimizer))


def load_optimizer(data: bytes, optimizer: Optimizer, model: AlphaZeroNetwork) -> None:
    """Puts a saved state into an optimiser without one.

    Buffers get the memory layout of their parameters: vector loops round in the order of memory. Momentum may come and
    go from one generation to the next.

    Raises:
      StorageError: the bytes are no state file of this model.
      ParamsError: they are of another kind of optimiser.
    """
    tensors, kind = parse_tensors(data, "optimizer state")
    if kind != _kind(optimizer):
        raise ParamsError(
            f"training.optimizer = {_kind(optimizer)!r}, but the trainee was trained with {kind!r}; "
            "set it back or start a new lineage"
        )
    buffers = _buffers(optimizer)
    if not tensors or not buffers:  # without momentum now: what there was of it is of no use
        return
    targets: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        state: dict[str, Tensor] = {}
        for buffer in buffers:
            state[buffer] = torch.zeros(()) if buffer == "step" else torch.empty_like(parameter, requires_grad=False)
            targets[f"{buffer}.{name}"] = state[buffer]
        optimizer.state[parameter] = state
    copy_tensors(tensors, targets, "optimizer state")


def scheduled_rate(schedule: Sequence[LearningRateStep], step: int, warmup_steps: int = 0) -> float:
    """Learning rate of the step after `step` steps since generation 0.

    During the warm-up the first step has 1 / `warmup_steps` of the rate of the schedule, the last one all of it.
    """
    rate = [entry.learning_rate for entry in schedule if entry.from_step <= step][-1]
    return rate * min(1.0, (step + 1) / warmup_steps) if warmup_steps else rate


def adapted_factor(factor: float, kl: float, kl_target: float) -> float:
    """The factor after a step that moved the policy by `kl`; the same where `kl_target` is 0."""
    low, high = KL_FACTOR_RANGE
    if kl_target <= 0.0:
        return factor
    if kl > kl_target * KL_TOLERANCE:
        return max(low, factor / KL_FACTOR_STEP)
    if kl < kl_target / KL_TOLERANCE:
        return min(high, factor * KL_FACTOR_STEP)
    return factor


def _kind(optimizer: Optimizer) -> str:
    return "adam" if isinstance(optimizer, Adam) else "sgd"


def _buffers(optimizer: Optimizer) -> tuple[str, ...]:
    if isinstance(optimizer, Adam):
        return ("step", "exp_avg", "exp_avg_sq")
    return ("momentum_buffer",) if optimizer.defaults["momentum"] else ()
