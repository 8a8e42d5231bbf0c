"""Training: the learner with the sampler, and a plain PyTorch loop on batches in memory."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Work, rate
from benchmarks.setting import selfplay_settings
from zero.config.params import Params
from zero.data.records import read_records, write_records
from zero.data.samples import SampleBatch, SampleGames, Sampler, sample_games
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch
from zero.play.batched_games import play_games
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of
from zero.storage.files import sha256_bytes

if TYPE_CHECKING:
    import torch

NUM_BATCHES = 8
"""Batches of the plain loop."""
MANY_STEPS = 1_000_000


def learner(params: Params) -> Work:
    """Samples per second of the learner, which the sampler feeds from games."""
    training = params.training
    _prepare(params)
    from zero.network.learner import Learner
    from zero.network.weights import new_network

    model = new_network(params.network, params.game, params.seed)
    made = Learner(model, training, params.profile.device, precision=params.profile.training_precision)
    steps = made.train(batches(params))

    def step() -> int:
        if next(steps) % training.log_interval == 0:
            made.results()
        return training.batch_size

    return lambda seconds: rate(step, seconds)


def plain(params: Params) -> Work:
    """Samples per second of forward, backward and SGD in plain PyTorch, on tensors in memory."""
    _prepare(params)
    losses = enumerate(plain_losses(params, itertools.islice(batches(params), NUM_BATCHES)))

    def step() -> int:
        number, loss = next(losses)
        if number % params.training.log_interval == 0:
            float(loss)  # waits for a GPU, as the learner does when its results are read
        return params.training.batch_size

    return lambda seconds: rate(step, seconds)


def _prepare(params: Params) -> None:
    prepare_torch(params.profile, params.profile.training_threads)
    import torch

    torch.set_flush_denormal(True)  # for both sides, as training does in `flush_denormals`


def batches(params: Params) -> Iterator[SampleBatch]:
    """Batches of made games."""
    from zero.stages.training import SAMPLER_THREADS

    training = params.training
    sampling = (params.seed, 0, training.batch_size, training.random_symmetry, SAMPLER_THREADS[params.profile.device])
    return Sampler(rules_of(params.game), made_games(params), *sampling).batches(0, MANY_STEPS)


def plain_losses(params: Params, batches: Iterator[SampleBatch]) -> "Iterator[torch.Tensor]":
    """Trains on one batch after another, again and again. Yields the loss of each step, a scalar on the device.

    The inputs are ready on the device, channels-last like the weights.
    """
    import torch
    from torch.nn import functional

    from zero.network.model import channels_last
    from zero.network.planes import network_input
    from zero.network.weights import new_network

    device, uses_bf16 = params.profile.device, params.profile.training_precision == "bf16"
    model = channels_last(new_network(params.network, params.game, params.seed).to(device)).train()
    rate = params.training.learning_rate[0].learning_rate
    optimizer = torch.optim.SGD(model.parameters(), rate, params.training.momentum)
    spec = model.spec
    tensors = []
    for batch in batches:
        numbers = np.zeros((len(batch.planes), spec.rows * spec.columns, spec.num_planes), np.float32)
        x = network_input(batch.planes, spec, numbers)
        targets = torch.tensor(batch.policy_target, device=device), torch.tensor(batch.value_target, device=device)
        tensors.append((x.to(device), *targets))
    for x, policy, value in itertools.cycle(tensors):
        with torch.autocast(device, torch.bfloat16, enabled=uses_bf16):
            logits, predicted = model(x)
        loss = functional.cross_entropy(logits.float(), policy) + functional.mse_loss(predicted.float(), value)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.detach()


def made_games(params: Params) -> SampleGames:
    """Self-play games without a network, as training reads them."""
    selfplay = params.selfplay
    played = play_games(
        rules_of(params.game),
        selfplay_settings(params),
        [UniformEvaluator()],
        [sha256_bytes(b"")],
        np.stack([stream_of(params.seed, 0, "bench", game) for game in range(selfplay.num_games)]),
        selfplay.num_slots,
        params.search.max_nodes,
    )
    return sample_games(read_records(write_records(played.games), "made games"))
