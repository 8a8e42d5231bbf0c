"""The optimiser, its state file, and the learning rate: the schedule by step, and the adaptation to a KL target.

The adaptation is that of junxiaosong/AlphaZero_Gomoku (`policy_update`). A factor on the scheduled rate falls if a step
changes the policy by more than twice the target, and rises if it changes it by less than half the target.
"""

from collections.abc import Sequence
from inspect import unwrap

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from zero.config.params import LearningRateStep, TrainingParams
from zero.errors import ParamsError
from zero.network.model import AlphaZeroNetwork
from zero.network.weight_files import parse_tensors, tensors_bytes
from zero.network.weights import arrays_of, copy_tensors

# Adam's default, beta_2; beta_1 is `training.momentum`.
ADAM_SECOND_MOMENT_DECAY = 0.999
# This and the next two constants are those of `policy_update`.
KL_FACTOR_STEP = 1.5
"""Ratio by which one adaptation changes the factor."""
KL_FACTOR_RANGE = (0.1, 10.0)
KL_TOLERANCE = 2.0
"""Ratio of the KL divergence to its target beyond which the factor is adapted."""


def new_optimizer(training: TrainingParams, model: AlphaZeroNetwork) -> Optimizer:
    """The optimiser that the parameters select, without state; the learner sets its learning rate at each step.

    The gradient of c * |theta|^2 is 2 * c * theta, which torch calls a weight decay of 2 * c. As in the paper it
    applies to all parameters. With Adam the decay is decoupled from the gradient (AdamW; Loshchilov and Hutter, 2019).
    As a part of the gradient, Adam would scale it up like every small gradient, and many channels would die.
    """
    _keep_compiler_out()
    decay = 2.0 * training.weight_decay
    # On a GPU one kernel changes all parameters. It reads the learning rate from the device, so that a CUDA graph can
    # contain it.
    on_gpu = next(model.parameters()).is_cuda
    if training.optimizer == "sgd":
        return SGD(model.parameters(), 0.0, training.momentum, weight_decay=decay, foreach=False, fused=on_gpu)
    return Adam(
        model.parameters(),
        0.0,
        (training.momentum, ADAM_SECOND_MOMENT_DECAY),
        weight_decay=decay,
        foreach=False,
        capturable=on_gpu,
        fused=on_gpu,
        decoupled_weight_decay=True,
    )


def step(optimizer: Optimizer) -> None:
    """Changes the parameters by their gradients, as `optimizer.step()` does, but without importing torch's compiler."""
    with torch.no_grad():
        unwrap(type(optimizer).step)(optimizer)


def _keep_compiler_out() -> None:
    """Prevents the methods of optimisers from importing torch's compiler, which nothing here uses.

    The import takes 5 s of a core, more than the rest of a training's start. It serves `torch._disable_dynamo`, the
    decorator of these methods, which excludes them from compilation.
    """
    for method in (Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict):
        # The decorator keeps its wrapped form in this attribute and imports the compiler only if it is missing.
        function = unwrap(method)
        function.__dynamo_disable = function


def optimizer_bytes(optimizer: Optimizer, model: AlphaZeroNetwork) -> bytes:
    """The state file: tensors named `<buffer>.<parameter>`, none before the first step."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for buffer, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{buffer}.{name}"] = value
    return tensors_bytes(arrays_of(tensors), _kind(optimizer))


def load_optimizer(data: bytes, optimizer: Optimizer, model: AlphaZeroNetwork) -> None:
    """Loads a saved state into an optimiser that has none.

    `training.momentum` may change to or from 0 between generations: a missing buffer is not an error.

    Raises:
      StorageError: the bytes are not a state file of this model.
      ParamsError: the state is that of another kind of optimiser.
    """
    tensors, kind = parse_tensors(data, "optimizer state")
    if tensors and kind != _kind(optimizer):
        raise ParamsError(
            f"training.optimizer = {_kind(optimizer)!r}, but the trainee was trained with {kind!r}; "
            "set it back or start a new lineage"
        )
    buffers = _buffers(optimizer)
    if not tensors or not buffers:  # no step or no momentum before, or no momentum now
        return
    # Buffers get the memory layout of their parameters: vector loops run in memory order, and rounding depends on it.
    targets: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        state: dict[str, Tensor] = {}
        for buffer in buffers:
            # `step` of Adam is a scalar; the other buffers are like their parameter.
            like = torch.zeros((), device=parameter.device) if buffer == "step" else parameter
            state[buffer] = torch.empty_like(like, requires_grad=False)
            targets[f"{buffer}.{name}"] = state[buffer]
        optimizer.state[parameter] = state
    copy_tensors(tensors, targets, "optimizer state")


def scheduled_rate(schedule: Sequence[LearningRateStep], step: int, warmup_steps: int = 0) -> float:
    """Learning rate of the step after `step` steps since generation 0.

    During the warm-up it rises linearly from 1 / `warmup_steps` of the scheduled rate to the full rate.
    """
    # The entries ascend (`TrainingParams` checks it), so the last one that has begun counts.
    rate = [entry.learning_rate for entry in schedule if entry.from_step <= step][-1]
    return rate * min(1.0, (step + 1) / warmup_steps) if warmup_steps else rate


def adapted_factor(factor: float, kl: float, kl_target: float) -> float:
    """Factor of the learning rate after a step that changed the policy by a KL divergence of `kl` nats.

    It is divided by KL_FACTOR_STEP if `kl` is above kl_target * KL_TOLERANCE, and multiplied by it if `kl` is below
    kl_target / KL_TOLERANCE, but stays within KL_FACTOR_RANGE.
    """
    low, high = KL_FACTOR_RANGE
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
