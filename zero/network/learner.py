"""Learning: one optimiser step after another. Files, clocks and logs stay with the caller."""

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
from zero.network.optimizer import adapted_factor, load_optimizer, new_optimizer, optimizer_bytes, scheduled_rate
from zero.network.planes import expand_bits, network_input, plane_bytes
from zero.network.weights import weights_bytes


class StepResult(NamedTuple):
    """What one step, or the mean of several, has shown."""

    step: int  # optimiser steps since generation 0, this one counted
    loss: float  # what training minimises, with weight_decay * |theta|^2 (AdamW decays beside its step)
    policy_loss: float  # cross-entropy, nats
    value_loss: float  # mean squared error, also where training.value_loss minimises something else
    ownership_loss: float  # mean squared error a point; 0 without the head
    score_loss: float  # mean squared error, margin over number of points; 0 without the head
    learning_rate: float
    policy_accuracy: float  # share of samples whose most visited action has the highest prior
    policy_entropy: float  # of the network's policy, nats
    constant_value_loss: float  # mean squared error of the best constant value: the variance of the targets
    saturated_values: float  # share of values at least SATURATED_VALUE from 0
    value_deviation: float  # standard deviation of the values within a batch
    policy_gradient_norm: float  # L2 norm of the gradient of the policy head's weights, without weight decay
    value_gradient_norm: float  # of the value head's
    trunk_gradient_norm: float  # of all other weights


class _Unread(NamedTuple):
    """A step whose numbers are still on the device."""

    step: int
    learning_rate: float
    numbers: Tensor  # [13], the fields of a result but the two above


class Learner:
    """A network in training with its optimiser on one device, alone or as one of several processes.

    Weights, gradients, losses and statistics are in fp32; with `precision` bf16 the layers of the network compute in
    bfloat16. Channels-last is the faster layout on a CPU: 4x32 at batch 256 on two Sapphire Rapids cores takes 57 ms a
    step, and 72 ms as [B, C, S, S].
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
        """Takes over `model` and `average`.

        Args:
          model: the network to be trained.
          training: how.
          device: where.
          step: optimiser steps since generation 0.
          learning_rate_factor: of the KL adaptation.
          optimizer_state: what `optimizer_state` gave after those steps; without it the optimiser begins anew.
          average: the moving average of the weights so far; without it, it begins at the weights of `model`.
          precision: `fp32` or `bf16`.
          peers: the other processes, each with its share of every batch; without them the batch is this one's.

        Raises:
          StorageError, ParamsError: `optimizer_state` is not one of this model and optimiser.
        """
        self.step = step
        """Optimiser steps since generation 0."""
        self.learning_rate_factor = learning_rate_factor
        self._model = channels_last(model.to(device)).train()
        self._training = training
        self._device = torch.device(device)
        self._precision = precision
        self._peers = peers
        self._numbers = np.zeros((0, model.spec.rows * model.spec.columns, model.spec.num_planes), np.float32)
        self._unread: list[_Unread] = []
        self._parts = parts_of(self._model)
        self._optimizer = new_optimizer(training, self._model)
        if optimizer_state is not None:
            load_optimizer(optimizer_state, self._optimizer, self._model)
        self._average: AlphaZeroNetwork | None = None
        if training.ema_decay:
            given = copy.deepcopy(self._model) if average is None else average
            self._average = channels_last(given.to(device)).requires_grad_(False)
            self._averaged = list(
                zip(self._average.state_dict().values(), self._model.state_dict().values(), strict=True)
            )

    def player_weights(self) -> bytes:
        """The weight file of the player: of the moving average where there is one, else of the network in training."""
        return weights_bytes(self._model if self._average is None else self._average)

    def weights(self) -> bytes:
        """The weight file of the network in training."""
        return weights_bytes(self._model)

    def optimizer_state(self) -> bytes:
        """The optimiser's state file."""
        return optimizer_bytes(self._optimizer, self._model)

    def train(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[int]:
        """One step a batch; gives `step` after each. What the steps have shown is asked for by `results`.

        Args:
          batches: the arrays of `zero.data.samples.SampleBatch`: planes, then the targets.

        Raises:
          ParamsError: the GPU's memory is too small for the batch.
        """
        for planes, *targets in batches:
            x = self._input(planes)
            fits = True
            try:
                self._train_step(x, Targets(*(self._on_device(array) for array in targets)))
            except torch.OutOfMemoryError:
                fits = False  # what the step has made is let go of after this line
            if not fits:
                raise ParamsError(self._out_of_memory(x))
            yield self.step

    def results(self) -> list[StepResult]:
        """What the steps since the last call have shown; here, and in the KL adaptation, a GPU is waited for.

        Raises:
          DivergedError: the loss, or another number of a step, is not finite.
        """
        unread, self._unread = self._unread, []
        if not unread:
            return []
        rows = torch.stack([entry.numbers for entry in unread]).tolist()
        results = [_step_result(entry, row) for entry, row in zip(unread, rows, strict=True)]
        for result in results:
            for name, value in zip(result._fields, result, strict=True):
                if not np.isfinite(value):
                    raise DivergedError(
                        f"training diverged: the {name.replace('_', ' ')} is {value} at step {result.step} with a "
                        f"learning rate of {result.learning_rate:g}; lower training.learning_rate"
                    )
        return results

    def _train_step(self, x: Tensor, targets: Targets) -> None:
        training = self._training
        rate = scheduled_rate(training.learning_rate, self.step, training.warmup_steps) * self.learning_rate_factor
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        predictions = self._predict(x)
        losses = data_losses(predictions, targets, training.value_loss)
        data_loss = weighted_sum(losses, training)
        self._optimizer.zero_grad()
        data_loss.backward()  # type: ignore[no-untyped-call]
        logits = predictions.logits.detach()
        with torch.no_grad():
            loss = data_loss + training.weight_decay * self._squared_norm()
            squared_error, *value = value_statistics(predictions.value.detach(), targets.value)
            shown = losses._replace(value=squared_error)
            policy = (policy_accuracy(logits, targets.policy), policy_entropy(logits))
            numbers = torch.stack([loss, *shown, *policy, *value])
        if self._peers:
            gradients = [parameter.grad for parameter in self._model.parameters() if parameter.grad is not None]
            self._peers.average([*gradients, *self._model.buffers(), numbers])
        norms = torch.stack([gradient_norm(part) for part in self._parts])
        numbers = torch.cat([numbers, norms])
        self._optimizer.step()
        self.step += 1
        self._unread.append(_Unread(self.step, rate, numbers))
        if self._average is not None:
            kept = average_decay(training.ema_decay, self.step)
            for average, latest in self._averaged:
                average.lerp_(latest, 1.0 - kept)
        # During the warm-up the KL is small because the rate is: adapting to it would undo the warm-up.
        if training.kl_target > 0.0 and self.step > training.warmup_steps:
            kl = kl_divergence(logits, self._batch_logits(x))
            if self._peers:
                self._peers.average([kl])
            self.learning_rate_factor = adapted_factor(self.learning_rate_factor, float(kl), training.kl_target)

    def _input(self, planes: np.ndarray) -> Tensor:
        """[B, P, W] uint64 -> [B, P, S, S] float32 on the device."""
        if self._device.type != "cpu":
            return expand_bits(self._on_device(plane_bytes(planes)), self._model.spec, torch.float32)
        if len(self._numbers) != len(planes):
            self._numbers = np.zeros((len(planes), *self._numbers.shape[1:]), np.float32)
        return network_input(planes, self._model.spec, self._device, self._numbers)

    def _on_device(self, array: np.ndarray) -> Tensor:
        """The array where it is, or a copy on the GPU, made by way of pinned memory: any other waits for the GPU."""
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.pin_memory().to(self._device, non_blocking=True)

    def _predict(self, x: Tensor) -> Predictions:
        """Predictions in fp32."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            found = self._model.predict(x)
        return Predictions(
            logits=found.logits.float(),
            value=found.value.float(),
            value_logit=found.value_logit.float(),
            ownership=None if found.ownership is None else found.ownership.float(),
            score=None if found.score is None else found.score.float(),
        )

    def _squared_norm(self) -> Tensor:
        norms = torch.stack([torch.linalg.vector_norm(p.detach()) for p in self._model.parameters()])
        return norms.square().sum()

    def _batch_logits(self, x: Tensor) -> Tensor:
        """Policy logits after the step, normalised by the batch as they were before it; no statistics are kept."""
        norms = [module for module in self._model.modules() if isinstance(module, nn.BatchNorm2d)]
        with torch.no_grad(), contextlib.ExitStack() as stack:
            for norm in norms:
                norm.track_running_stats = False
                stack.callback(setattr, norm, "track_running_stats", True)
            return self._predict(x).logits

    def _out_of_memory(self, x: Tensor) -> str:
        """The message for a batch that does not fit, with one that does, found by trying halves of it."""
        self._optimizer.zero_grad()
        num_peers = self._peers.size if self._peers else 1
        fits = batch_size = len(x)
        while fits > 1:
            fits //= 2
            with contextlib.suppress(torch.OutOfMemoryError):
                parts = [part.sum() for part in self._predict(x[:fits]) if part is not None]
                torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]
                self._optimizer.zero_grad()
                return (
                    f"the GPU's memory is too small for training.batch_size = {batch_size * num_peers}; "
                    f"{fits * num_peers} fits, or train with more GPUs (profile.training_processes)"
                )
        return "the GPU's memory is too small for this network; use one with fewer channels or another device"


def parts_of(model: AlphaZeroNetwork) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """The parameters of the policy head, of the value head, and all others."""
    heads = list(model.policy_head.parameters()), list(model.value_head.parameters())
    in_heads = {id(parameter) for head in heads for parameter in head}
    return (*heads, [parameter for parameter in model.parameters() if id(parameter) not in in_heads])


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of the gradient of some parameters, a scalar."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return get_total_norm(gradients)


def average_decay(decay: float, step: int) -> float:
    """Decay of the moving average after `step` steps since generation 0: lower at first, to forget the first weights.

    The form is TensorFlow's (`ExponentialMovingAverage` with `num_updates`); 0.99 is reached after 900 steps.
    """
    return min(decay, (1 + step) / (10 + step))


def _step_result(entry: _Unread, row: list[float]) -> StepResult:
    loss, policy, value, ownership, score, *shown = row
    return StepResult(entry.step, loss, policy, value, ownership, score, entry.learning_rate, *shown)
