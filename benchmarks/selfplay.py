"""Self-play with a network, and the same network alone at the same batch size."""

import contextlib
import time

import numpy as np

from benchmarks.harness import Work, rate
from benchmarks.setting import selfplay_settings
from zero.config.params import Params
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch
from zero.play.batched_games import HalfBatch, Part, new_parts, new_pool, play_half_batches
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import stream_of

GAMES_PER_SLOT = 8
"""Games per slot after which new slots are made: the memory of their records is limited."""
MIXING_SIMULATIONS = 16
"""Maximum number of simulations per move while the ages of the games are mixed."""
PREPARING_SECONDS = 0.2


def selfplay(params: Params) -> Work:
    """Positions per second that the network evaluates in games of mixed ages, without cheap searches."""
    work = selfplay_with(new_network_evaluator(params), params)
    work(PREPARING_SECONDS)
    return work


def network_alone(params: Params) -> Work:
    """Positions per second that the network evaluates without a search, on one real batch again and again."""
    evaluator = new_network_evaluator(params)
    planes = np.concatenate([part.batch.planes[0] for part in halves_of(mixed_parts(params), params)[0]])
    batch = len(planes)
    prior, value = np.zeros((batch, rules_of(params.game).num_actions), np.float32), np.zeros(batch, np.float32)

    def step() -> int:
        evaluator.evaluate(planes, prior, value)
        return batch

    step()
    return lambda seconds: rate(step, seconds)


def new_network_evaluator(params: Params) -> Evaluator:
    """The first network of the seed, ready to evaluate positions."""
    prepare_torch(params.profile, params.profile.selfplay_threads)
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    return new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), params.profile)


class TimeIsUpError(Exception):
    """A measurement ends."""


class TimedHalf(HalfBatch):
    """A half batch that counts what it sends to the network, and stops the games at a time."""

    def __init__(self, params: Params, parts: list[Part], evaluator: Evaluator) -> None:
        """As `HalfBatch`, with one network."""
        super().__init__(rules_of(params.game), parts, [evaluator])
        self._parts_to_count = parts
        self.deadline, self.num_evaluations = 0.0, 0

    def submit(self) -> None:
        """Sends the requests.

        Raises:
          TimeIsUpError: the deadline is over. No search runs at this point.
        """
        # At least one batch, however short the measurement.
        if time.perf_counter() >= self.deadline and self.num_evaluations:
            raise TimeIsUpError
        self.num_evaluations += sum(int(part.batch.num_requests[0]) for part in self._parts_to_count)
        super().submit()


def selfplay_with(evaluator: Evaluator, params: Params) -> Work:
    """Self-play with the loop of a shard (`play_half_batches`), which goes on where the last measurement ended.

    The requests that are pending between two measurements get the results of the batch before them.
    """
    num_games = GAMES_PER_SLOT * params.selfplay.num_slots
    pool, halves = new_pool(params.profile.search_threads), new_halves(evaluator, params)

    def run(seconds: float) -> float:
        nonlocal halves
        count, busy = 0, 0.0
        while busy < seconds:
            begun = time.perf_counter()
            for half in halves:
                half.deadline, half.num_evaluations = begun + seconds - busy, 0
            with contextlib.suppress(TimeIsUpError):
                play_half_batches(halves, pool, None, num_games)
            busy += time.perf_counter() - begun
            count += sum(half.num_evaluations for half in halves)
            if sum(half.num_done() for half in halves) == num_games:
                halves = new_halves(evaluator, params)
        return count / busy

    return run


def new_halves(evaluator: Evaluator, params: Params) -> list[TimedHalf]:
    """The halves of new games of mixed ages."""
    return [TimedHalf(params, half, evaluator) for half in halves_of(mixed_parts(params), params)]


def mixed_parts(params: Params) -> list[Part]:
    """Parts whose games have different ages, because the cost of a simulation depends on the age of a game.

    All games start at the same time. They are first played without the network and with few simulations, until as many
    have ended as there are slots. The requests that are pending then get zeros as their results.
    """
    rules, settings, num_slots = rules_of(params.game), selfplay_settings(params), params.selfplay.num_slots
    streams = np.stack([stream_of(0, 0, "bench", game) for game in range(GAMES_PER_SLOT * num_slots)])
    num_parts = params.profile.search_threads * (2 if params.profile.half_batches else 1)
    parts = new_parts(rules, settings, streams, num_slots, params.search.max_nodes, num_parts)
    simulations = min(settings.num_simulations, MIXING_SIMULATIONS)
    quick = [part._replace(settings=part.settings._replace(num_simulations=simulations)) for part in parts]
    halves = [HalfBatch(rules, half, [UniformEvaluator()]) for half in halves_of(quick, params)]
    play_half_batches(halves, new_pool(params.profile.search_threads), None, num_slots)
    return parts


def halves_of(parts: list[Part], params: Params) -> list[list[Part]]:
    """The parts of each half of a batch; one half without double buffering."""
    per_half = -(-len(parts) // 2) if params.profile.half_batches else len(parts)
    return [parts[i : i + per_half] for i in range(0, len(parts), per_half)]
