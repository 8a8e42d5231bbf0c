"""Training: the learner with the sampler, compared with a plain PyTorch loop on batches in memory."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Child, Context, Measured, Sides, compare, not_measured, rate
from benchmarks.results import Sample
from benchmarks.setting import GO9, params_of, residual_tower, selfplay_settings
from zero.config.params import Params
from zero.data.samples import SampleBatch, SampleGames, Sampler
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch
from zero.play.batched_games import play_games
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of
from zero.storage.files import sha256_bytes

NUM_THREADS = 2
BATCH_SIZE = 256
NUM_GAMES = 256
NUM_SIMULATIONS = 16
"""Simulations per move of the games to train on, which have no network."""
NUM_BATCHES = 8
"""Batches of the plain loop."""
MANY_STEPS = 1_000_000
LEARNING_RATE = 1e-3
"""A low rate, so that a long measurement does not diverge."""


def prepare(params: Params, num_games: int) -> Sides:
    """Sides `learner` and `bare`: training on generated games, in samples per second."""
    training = params.training
    prepare_torch(params.profile, params.profile.training_threads)
    import torch

    from zero.network.learner import Learner
    from zero.network.weights import new_network

    torch.set_flush_denormal(True)  # for both sides, as training does in `flush_denormals`
    games = made_games(params, num_games)
    sampler = Sampler(rules_of(params.game), games, params.seed, 0, training.batch_size, training.random_symmetry)
    batches = sampler.batches(0, MANY_STEPS)
    losses = bare_loop(params, [next(batches) for _ in range(NUM_BATCHES)])
    model = new_network(params.network, params.game, params.seed)
    learner = Learner(model, training, params.profile.device, precision=params.profile.training_precision)
    steps = learner.train(batches)

    def step() -> int:
        if next(steps) % training.log_interval == 0:
            learner.results()
        return training.batch_size

    def bare_step() -> int:
        next(losses)
        return training.batch_size

    return {
        "learner": lambda seconds: Sample(rate(step, seconds)),
        "bare": lambda seconds: Sample(rate(bare_step, seconds)),
    }


def bare_loop(params: Params, batches: Sequence[SampleBatch]) -> Iterator[Any]:
    """Forward, backward and SGD on one batch after another, without end, in plain PyTorch.

    The inputs are ready, channels-last like the weights. Yields the loss of each step, a scalar on the device.
    """
    import torch
    from torch.nn import functional

    from zero.network.model import channels_last
    from zero.network.planes import network_input
    from zero.network.weights import new_network

    model = channels_last(new_network(params.network, params.game, params.seed)).train()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, params.training.momentum)
    spec = model.spec
    tensors = []
    for batch in batches:
        numbers = np.zeros((len(batch.planes), spec.rows * spec.columns, spec.num_planes), np.float32)
        x = network_input(batch.planes, spec, numbers)
        tensors.append((x, torch.tensor(batch.policy_target), torch.tensor(batch.value_target)))
    for x, policy, value in itertools.cycle(tensors):
        logits, predicted = model(x)
        loss = functional.cross_entropy(logits, policy) + functional.mse_loss(predicted, value)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.detach()


def made_games(params: Params, num_games: int) -> SampleGames:
    """Self-play games without a network, as training reads them."""
    from zero.data.records import read_records, write_records
    from zero.stages.training import sample_games

    selfplay = params.selfplay
    played = play_games(
        rules_of(params.game),
        selfplay_settings(params),
        [UniformEvaluator()],
        [sha256_bytes(b"")],
        np.stack([stream_of(params.seed, 0, "bench", game) for game in range(num_games)]),
        selfplay.num_slots,
        params.search.max_nodes,
    )
    return sample_games(read_records(write_records(played.games), "made games"))


def training(context: Context) -> Measured:
    """A 4x32 network on 9x9 with batches of 256."""
    if len(context.cores) < NUM_THREADS:
        return not_measured(f"fewer than {NUM_THREADS} cores")
    params = params_of(
        GO9,
        context.profile.model_copy(update={"training_threads": NUM_THREADS}),
        network=residual_tower(4, 32),
        selfplay={"num_simulations": NUM_SIMULATIONS, "fast_simulations": 1},
        training={
            "batch_size": BATCH_SIZE,
            "optimizer": "sgd",
            "learning_rate": ({"from_step": 0, "learning_rate": LEARNING_RATE},),
        },
    )
    with Child(prepare, params, NUM_GAMES, cores=context.cores[-NUM_THREADS:]) as child:
        return compare(context, child.side("learner"), child.side("bare"))
