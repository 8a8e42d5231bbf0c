"""The optimiser steps of training. Files, clocks and logs are the caller's business."""

import contextlib
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from zero.config.params import TrainingParams
from zero.errors import DivergedError, ParamsError
from zero.network.cuda_graphs import capture
from zero.network.data_parallel import Peers
from zero.network.losses import (
    Targets,
    data_losses,
    kl_divergence,
    policy_accuracy,
    policy_entropy,
    value_statistics,
    weighted_sum,
)
from zero.network.model import AlphaZeroNetwork, Predictions, channels_last
from zero.network.optimizer import adapted_factor, load_optimizer, new_optimizer, optimizer_bytes, scheduled_rate, step
from zero.network.planes import expand_bits, network_input, plane_bytes
from zero.network.weights import weights_bytes


class StepResult(NamedTuple):
    """Losses and statistics of one step, or their means over several steps."""

    step: int  # optimiser steps since generation 0, including this one
    loss: float  # the minimised loss plus weight_decay * |theta|^2 (with Adam the decay is decoupled from the gradient)
    policy_loss: float  # cross-entropy, nats
    value_loss: float  # mean squared error, even if training.value_loss selects another loss
    ownership_loss: float  # mean squared error per point; 0 without the head
    score_loss: float  # mean squared error of margin / number of points; 0 without the head
    learning_rate: float
    policy_accuracy: float  # share of samples whose most visited action has the highest prior
    policy_entropy: float  # of the network's policy, nats
    constant_value_loss: float  # mean squared error of the best constant value: the variance of the targets
    saturated_values: float  # share of values at least SATURATED_VALUE from 0
    value_deviation: float  # standard deviation of the values within a batch
    policy_gradient_norm: float  # L2 norm of the policy head's gradient, without weight decay
    value_gradient_norm: float  # the same for the value head
    trunk_gradient_norm: float  # the same for all other weights


class _PendingResult(NamedTuple):
    """Result of a step whose numbers are still on the device."""

    step: int
    learning_rate: float
    numbers: Tensor  # [13] float32, the fields of a `StepResult` without the two above


class _CapturedStep(NamedTuple):
    """A step as a CUDA graph, with the tensors of fixed addresses that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]  # planes as bytes and the targets, read by the graph
    outputs: "_StepOutputs"  # written by the graph


class _StepOutputs(NamedTuple):
    """What a step leaves on the device."""

    x: Tensor  # [B, P, S, S] float32, the network's input
    logits: Tensor  # [B, A] float32, the policy before the step
    numbers: Tensor  # as in `_PendingResult`


class Learner:
    """Trains a network on one device, alone or as one of several processes.

    Weights, gradients, losses and statistics are in fp32. With `precision` bf16 the layers compute in bfloat16.
    One process on a GPU replays a captured CUDA graph for each step, because launching the kernels one by one from
    Python takes longer than running them. Data-parallel training does not: NCCL in a graph has not been tried.
    Channels-last is the faster layout on a CPU: on two Sapphire Rapids cores, a 4x32 network at batch 256 takes 57 ms
    per step, and 72 ms as [B, C, S, S].
    """

    def __init__(
        self,
        model: AlphaZeroNetwork,
        training: TrainingParams,
        device: str,
        step: int = 0,
        learning_rate_factor: float = 1.0,
        optimizer_state: bytes | None = None,
        average: AlphaZeroNetwork | None = None,
        precision: str = "fp32",
        peers: Peers | None = None,
    ) -> None:
        """Takes ownership of `model` and `average`, which training modifies.

        Args:
          model: the network to train.
          training: section `training` of the parameters.
          device: `cpu` or `cuda`.
          step: optimiser steps since generation 0.
          learning_rate_factor: factor of the KL adaptation on the scheduled learning rate.
          optimizer_state: bytes of `optimizer_state()` after `step` steps; None starts with an empty state.
          average: exponential moving average of the weights so far; None starts it at the weights of `model`.
          precision: `fp32` or `bf16`.
          peers: the group of training processes, each with its share of every batch; None trains alone.

        Raises:
          StorageError, ParamsError: `optimizer_state` belongs to another network or optimiser.
        """
        self.step = step
        """Optimiser steps since generation 0."""
        self.learning_rate_factor = learning_rate_factor
        """Factor of the KL adaptation on the scheduled learning rate."""
        self._model = channels_last(model.to(device)).train()
        self._training = training
        self._device = torch.device(device)
        self._precision = precision
        self._peers = peers
        self._numbers = np.zeros((0, model.spec.rows * model.spec.columns, model.spec.num_planes), np.float32)
        self._pending: list[_PendingResult] = []
        self._parameter_groups = parameter_groups(self._model)
        self._optimizer = new_optimizer(training, self._model)
        # A captured step reads both from the device; they are set before each step.
        self._rate: float | Tensor = 0.0
        self._average_weight: float | Tensor = 0.0
        if self._device.type != "cpu":
            self._rate, self._average_weight = torch.zeros(2, device=self._device).unbind()
        self._captured: _CapturedStep | None = None
        if optimizer_state is not None:
            load_optimizer(optimizer_state, self._optimizer, self._model)
        self._average: AlphaZeroNetwork | None = None
        if training.ema_decay:
            initial = copy.deepcopy(self._model) if average is None else average
            self._average = channels_last(initial.to(device)).requires_grad_(False)
            # The state dict has the running statistics too: a network with averaged weights needs statistics that fit
            # them.
            self._averaged = list(
                zip(self._average.state_dict().values(), self._model.state_dict().values(), strict=True)
            )

    def player_weights(self) -> bytes:
        """The player's weight file: the exponential moving average, or without one the network in training."""
        return weights_bytes(self._model if self._average is None else self._average)

    def weights(self) -> bytes:
        """The weight file of the network in training."""
        return weights_bytes(self._model)

    def optimizer_state(self) -> bytes:
        """The state file of the optimiser."""
        return optimizer_bytes(self._optimizer, self._model)

    def train(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[int]:
        """Makes one optimiser step per batch and yields `step` after each; `results` returns the losses.

        Args:
          batches: the arrays of `zero.data.samples.SampleBatch`, planes first, then the targets.

        Raises:
          ParamsError: the GPU's memory is too small for the batch. The weights may then have changed, so the learner
            must not be used any more.
        """
        for planes, *targets in batches:
            try:
                self._train_step((planes, *targets))
            except torch.OutOfMemoryError:
                batch_size = len(planes) * (self._peers.size if self._peers else 1)
                raise ParamsError(
                    f"the GPU's memory is too small for training.batch_size = {batch_size}; lower it, or train with "
                    "more GPUs (profile.training_processes)"
                ) from None
            yield self.step

    def results(self) -> list[StepResult]:
        """Results of the steps since the last call. Waits for the GPU; otherwise only the KL adaptation does.

        Raises:
          DivergedError: the loss, or another number of a step, is not finite.
        """
        pending, self._pending = self._pending, []
        if not pending:
            return []
        rows = torch.stack([entry.numbers for entry in pending]).tolist()  # one transfer for all steps
        results = [_step_result(entry, row) for entry, row in zip(pending, rows, strict=True)]
        for result in results:
            for name, value in zip(result._fields, result, strict=True):
                if not np.isfinite(value):
                    raise DivergedError(
                        f"training diverged: the {name.replace('_', ' ')} is {value} at step {result.step} with a "
                        f"learning rate of {result.learning_rate:g}; lower training.learning_rate"
                    )
        return results

    def _train_step(self, batch: tuple[np.ndarray, ...]) -> None:
        training = self._training
        rate = scheduled_rate(training.learning_rate, self.step, training.warmup_steps)
        if training.kl_target > 0.0:  # else the factor of earlier generations does not apply
            rate *= self.learning_rate_factor
        self._rate = _set(self._rate, rate)
        self._average_weight = _set(self._average_weight, 1.0 - ema_decay_after(training.ema_decay, self.step + 1))
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate
        if self._device.type == "cpu":
            planes, *targets = batch
            x, logits, numbers = self._compute(self._input(planes), Targets(*map(torch.from_numpy, targets)))
        else:
            x, logits, numbers = self._compute_on_gpu((plane_bytes(batch[0]), *batch[1:]))
        self.step += 1
        self._pending.append(_PendingResult(self.step, rate, numbers))
        # During the warm-up the KL is small because the rate is: adapting to it would undo the warm-up.
        if training.kl_target > 0.0 and self.step > training.warmup_steps:
            kl = kl_divergence(logits, self._batch_logits(x))
            if self._peers:
                self._peers.average([kl])
            self.learning_rate_factor = adapted_factor(self.learning_rate_factor, float(kl), training.kl_target)

    def _compute(self, x: Tensor, targets: Targets) -> _StepOutputs:
        """Changes weights, optimiser state and average by one step. Without peers, it can be captured."""
        training = self._training
        # Reported losses and statistics are those of the weights before the step: they need no second forward pass.
        predictions = self._predict(x)
        losses = data_losses(predictions, targets, training.value_loss)
        data_loss = weighted_sum(losses, training)
        self._optimizer.zero_grad()
        # The L2 term is not in this sum: the optimiser adds its gradient, as weight decay.
        data_loss.backward()  # type: ignore[no-untyped-call]
        logits = predictions.logits.detach()
        with torch.no_grad():
            loss = data_loss + training.weight_decay * self._squared_norm()
            squared_error, *value = value_statistics(predictions.value.detach(), targets.value)
            reported = losses._replace(value=squared_error)
            policy = (policy_accuracy(logits, targets.policy), policy_entropy(logits))
            # In the order of the fields of `StepResult`, which `_step_result` relies on. It stays on the device.
            numbers = torch.stack([loss, *reported, *policy, *value])
        if self._peers:
            # Buffers are the running statistics; each process has seen only its share of the batch.
            gradients = [parameter.grad for parameter in self._model.parameters() if parameter.grad is not None]
            self._peers.average([*gradients, *self._model.buffers(), numbers])
        # After the averaging, so that the norms are those of the gradient of the complete batch.
        norms = torch.stack([gradient_norm(group) for group in self._parameter_groups])
        numbers = torch.cat([numbers, norms])
        step(self._optimizer)
        if self._average is not None:
            for average, latest in self._averaged:
                average.lerp_(latest, self._average_weight)
        return _StepOutputs(x, logits, numbers)

    def _compute_on_gpu(self, batch: tuple[np.ndarray, ...]) -> _StepOutputs:
        """As `_compute`, for a batch on the host whose planes are bytes."""
        inputs = self._inputs(batch)
        if self._peers:
            return self._compute_bits(inputs)
        if self._captured is None or self._captured.inputs[0].shape != inputs[0].shape:
            self._captured = None  # frees its memory first
            self._captured = self._capture(inputs)
        for fixed, given in zip(self._captured.inputs, inputs, strict=True):
            fixed.copy_(given)
        self._captured.graph.replay()
        outputs = self._captured.outputs
        return outputs._replace(numbers=outputs.numbers.clone())  # the next step overwrites them

    def _capture(self, inputs: tuple[Tensor, ...]) -> _CapturedStep:
        """Captures a step. Weights, optimiser state and average are the same afterwards."""
        kept = {tensor.data_ptr(): tensor.clone() for tensor in self._state()}

        def restore() -> None:
            for tensor in self._state():
                if (before := kept.get(tensor.data_ptr())) is not None:
                    tensor.copy_(before)
                else:  # the first step made it; in the next one, zeros have the effect of no state
                    tensor.zero_()

        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        graph, outputs = capture(lambda: self._compute_bits(inputs), stream, after_warm_up=restore)
        return _CapturedStep(graph, inputs, outputs)

    def _compute_bits(self, inputs: tuple[Tensor, ...]) -> _StepOutputs:
        bits, *targets = inputs
        return self._compute(expand_bits(bits, self._model.spec, torch.float32), Targets(*targets))

    def _state(self) -> list[Tensor]:
        """All tensors that a step changes."""
        networks = [network for network in (self._model, self._average) if network is not None]
        buffers = (value for state in self._optimizer.state.values() for value in state.values() if value is not None)
        return [*(tensor for network in networks for tensor in network.state_dict().values()), *buffers]

    def _input(self, planes: np.ndarray) -> Tensor:
        """[B, P, W] uint64 -> [B, P, S, S] float32 on the CPU."""
        # The buffer is used again by each step, after the backward pass has read it.
        if len(self._numbers) != len(planes):
            self._numbers = np.zeros((len(planes), *self._numbers.shape[1:]), np.float32)
        return network_input(planes, self._model.spec, self._numbers)

    def _inputs(self, batch: tuple[np.ndarray, ...]) -> tuple[Tensor, ...]:
        """The batch on the GPU. The copies go through pinned memory, or they would wait for the GPU."""
        return tuple(torch.from_numpy(array).pin_memory().to(self._device, non_blocking=True) for array in batch)

    def _predict(self, x: Tensor) -> Predictions:
        """Predictions in fp32."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            found = self._model.predict(x)
        return Predictions._make(None if part is None else part.float() for part in found)

    def _squared_norm(self) -> Tensor:
        norms = torch.stack([torch.linalg.vector_norm(p.detach()) for p in self._model.parameters()])
        return norms.square().sum()

    def _batch_logits(self, x: Tensor) -> Tensor:
        """Policy logits after the step, normalised with the batch's statistics; running statistics do not change."""
        norms = [module for module in self._model.modules() if isinstance(module, nn.BatchNorm2d)]
        with torch.no_grad(), contextlib.ExitStack() as stack:
            # In training mode without tracking, a BatchNorm uses the statistics of the batch and stores none.
            for norm in norms:
                norm.track_running_stats = False
                stack.callback(setattr, norm, "track_running_stats", True)
            return self._predict(x).logits


def parameter_groups(model: AlphaZeroNetwork) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """The parameters of the policy head, of the value head, and all others."""
    heads = list(model.policy_head.parameters()), list(model.value_head.parameters())
    in_heads = {id(parameter) for head in heads for parameter in head}
    return (*heads, [parameter for parameter in model.parameters() if id(parameter) not in in_heads])


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of the gradient with respect to the parameters, a scalar."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return get_total_norm(gradients)


def ema_decay_after(decay: float, step: int) -> float:
    """Decay of the exponential moving average after `step` steps since generation 0.

    It is lower at first, so that the average forgets the initial weights, as in TensorFlow's `ExponentialMovingAverage`
    with `num_updates`. A decay of 0.99 is reached after 890 steps.
    """
    return min(decay, (1 + step) / (10 + step))


def _set(old: float | Tensor, value: float) -> float | Tensor:
    """The new value: on a GPU in the same tensor, from which a captured step reads it."""
    return old.fill_(value) if isinstance(old, Tensor) else value


def _step_result(entry: _PendingResult, row: list[float]) -> StepResult:
    loss, policy, value, ownership, score, *statistics = row
    return StepResult(entry.step, loss, policy, value, ownership, score, entry.learning_rate, *statistics)
