"""Self-play with a network, compared with the same network alone at the same batch size."""

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Child, Context, Measured, Sides, compare, not_measured, rate
from benchmarks.results import Detail, Sample
from benchmarks.setting import GO9, GPU9, params_of, residual_tower, selfplay_settings
from zero.config.params import Params
from zero.games.position import NUM_MOVES, Rules
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch
from zero.play.batched_games import HalfBatch, Part, new_parts, play_half_batches
from zero.play.slots import IDLE, PlaySettings
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import stream_of

EVALUATIONS, SIMULATIONS = "evaluations/s", "simulations/s"
PREPARING_SECONDS = 0.2
JAX_PACKAGES = ("jax", "mctx", "pgx")
JAX_VARIABLES = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
GAMES_PER_SLOT = 8
"""Games per slot that there are records for; then the records are used again."""
MIXING_SIMULATIONS = 16
"""Maximum number of simulations per move while the ages of the games are mixed."""


class Counts(NamedTuple):
    """Evaluations and simulations, in total or per second."""

    evaluations: float  # positions that the network evaluated
    simulations: float


class Games:
    """Endless self-play in small steps with the loop of `zero.play.batched_games`, without cheap searches."""

    def __init__(
        self,
        rules: Rules,
        settings: PlaySettings,
        num_slots: int,
        max_nodes: int,
        evaluator: Evaluator,
        search_threads: int = 1,
        half_batches: bool = False,
    ) -> None:
        """Starts games of mixed ages; see `zero.play.batched_games.play_games` for the arguments.

        All games start at the same time, and the cost of a simulation depends on the age of a game. So the games are
        first played without the network and with few simulations, until as many have ended as there are slots.
        """
        assert settings.num_players == 1 and settings.full_search_fraction == 1.0
        num_parts = search_threads * (2 if half_batches else 1)
        streams = np.stack([stream_of(0, 0, "bench", game) for game in range(GAMES_PER_SLOT * num_slots)])
        self._parts = new_parts(rules, settings, streams, num_slots, max_nodes, num_parts)
        self._pool = ThreadPoolExecutor(search_threads, "search") if len(self._parts) > 1 else None
        self._recycled_moves = 0  # of games whose records are free again
        quick = settings._replace(num_simulations=min(settings.num_simulations, MIXING_SIMULATIONS))
        mixing = [part._replace(settings=quick) for part in self._parts]
        per_half = -(-len(mixing) // 2) if half_batches else len(mixing)
        starts = range(0, len(mixing), per_half)
        uniform = [HalfBatch(rules, mixing[i : i + per_half], [UniformEvaluator()]) for i in starts]
        play_half_batches(uniform, self._pool, None, num_slots)
        self.planes: np.ndarray = np.concatenate([part.batch.planes[0] for part in self._parts[:per_half]])
        """A batch of positions as the network receives it, [B, P, W] uint64."""
        # The requests that are pending now get zeros as their results.
        halves = [(parts := self._parts[i : i + per_half], HalfBatch(rules, parts, [evaluator])) for i in starts]
        self._turns = self._play(halves)

    def run(self, seconds: float) -> Counts:
        """Plays for some seconds; returns evaluations and simulations per second."""
        before = self._counts()
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            next(self._turns)
        now = self._counts()
        return Counts(*((after - earlier) / elapsed for after, earlier in zip(now, before, strict=True)))

    def _play(self, halves: Sequence[tuple[list[Part], HalfBatch]]) -> Iterator[None]:
        """The steps of `zero.play.batched_games.play_half_batches`, without end."""
        turns = itertools.cycle(halves)
        parts, half = next(turns)
        half.begin_search(self._pool)
        while True:
            half.finish_search()
            for part in parts:
                self._recycle(part)
            half.submit()
            parts, following = next(turns)
            if following is not half:
                following.begin_search(self._pool)
            half.wait()
            if following is half:
                half.begin_search(self._pool)
            half = following
            yield

    def _recycle(self, part: Part) -> None:
        """Starts with the first record again before the records run out. Its random stream continues."""
        if len(part.records.end) - part.slots.next_game[0] < 2 * len(part.slots.game):
            self._recycled_moves += int(part.records.num_moves.sum())
            part.records.num_moves[:] = 0
            part.slots.next_game[0] = 0

    def _counts(self) -> Counts:
        """Totals over ended games, games in play, and the searches that are running."""
        num_simulations = self._parts[0].settings.num_simulations
        evaluations, simulations = 0, self._recycled_moves * num_simulations
        for part in self._parts:
            live = part.slots.game != IDLE
            moves = int(part.records.num_moves.sum()) + int(part.slots.positions.state[live, NUM_MOVES].sum())
            simulations += moves * num_simulations
            simulations += int((num_simulations - part.slots.simulations_left[live]).sum())
            evaluations += int(part.records.num_evaluations[0])
        return Counts(evaluations, simulations)


def network_rate(rules: Rules, evaluator: Evaluator, planes: np.ndarray, seconds: float) -> float:
    """Evaluations per second of the network alone on one batch, [B, P, W] uint64."""
    batch = len(planes)
    prior, value = np.zeros((batch, rules.num_actions), np.float32), np.zeros(batch, np.float32)

    def step() -> int:
        evaluator.evaluate(planes, prior, value)
        return batch

    return rate(step, seconds)


def prepare(params: Params) -> Sides:
    """Sides `raw` and `selfplay` (evaluations per second), and `simulations` (of self-play)."""
    profile = params.profile
    prepare_torch(profile, profile.selfplay_threads)
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    rules, settings = rules_of(params.game), selfplay_settings(params)
    evaluator = new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), profile)
    sizes = (params.selfplay.num_slots, params.search.max_nodes)
    games = Games(rules, settings, *sizes, evaluator, profile.search_threads, profile.half_batches)
    games.run(PREPARING_SECONDS)

    def raw(seconds: float) -> Sample:
        return Sample(network_rate(rules, evaluator, games.planes, seconds))

    def selfplay(seconds: float) -> Sample:
        counts = games.run(seconds)
        detail = Detail(name="simulations in self-play", value=counts.simulations, unit=SIMULATIONS)
        return Sample(counts.evaluations, (detail,))

    def simulations(seconds: float) -> Sample:
        counts = games.run(seconds)
        detail = Detail(name="evaluations in self-play", value=counts.evaluations, unit=EVALUATIONS)
        return Sample(counts.simulations, (detail,))

    return {"raw": raw, "selfplay": selfplay, "simulations": simulations}


def against_raw(context: Context, num_blocks: int, num_channels: int) -> Measured:
    """Self-play on 9x9 as in go9-paper, against the network alone."""
    params = params_of(GO9, context.profile, network=residual_tower(num_blocks, num_channels))
    with Child(prepare, params, cores=context.cores[-1:]) as child:
        return compare(context, child.side("selfplay"), child.side("raw"))


def against_pgx(context: Context) -> Measured:
    """Self-play on 9x9 with 20 simulations, against pgx and mctx with the same network."""
    if missing := [name for name in JAX_PACKAGES if find_spec(name) is None]:
        return not_measured(f"{', '.join(missing)} not installed (extra `test`)")
    selfplay = {"num_simulations": 20, "num_slots": 64}
    params, core = params_of(GO9, context.profile, network=residual_tower(4, 32), selfplay=selfplay), context.cores[-1:]
    with (
        Child(prepare, params, cores=core) as ours,
        Child(_prepare_pgx, params, cores=core, variables=JAX_VARIABLES) as rival,
    ):
        return compare(context, ours.side("selfplay"), rival.side("selfplay"))


def _prepare_pgx(params: Params) -> Sides:
    from benchmarks.pgx import prepare

    return prepare(params)


def two_processes(context: Context) -> Measured:
    """Two processes on one core each at the same time, against the mean of both one after the other."""
    if len(context.cores) < 2:
        return not_measured("one core only")
    params = params_of(GO9, context.profile, network=residual_tower(4, 32))
    with (
        Child(prepare, params, cores=context.cores[-1:]) as first,
        Child(prepare, params, cores=context.cores[-2:-1]) as second,
    ):
        children = (first, second)
        for child in children:
            child.wait_until_ready()
        return compare(context, partial(together, children, "selfplay"), partial(one_by_one, children, "selfplay"))


def on_gpu(context: Context) -> Measured:
    """Self-play on 9x9 with a 10x128 network as in go9-gpu, against the network alone, on one GPU."""
    import torch

    if not torch.cuda.is_available():
        return not_measured("no GPU")
    with Child(prepare, params_of(GPU9, None, network=residual_tower(10, 128, 128)), cores=context.cores) as child:
        return compare(context, child.side("selfplay"), child.side("raw"))


def together(children: Sequence[Child], side: str, seconds: float) -> Sample:
    """Sum of the figures of children that work at the same time."""
    running = [child.start(side, seconds) for child in children]
    return Sample(sum(finish().figure for finish in running))


def one_by_one(children: Sequence[Child], side: str, seconds: float) -> Sample:
    """Mean of the figures of children that work one after the other."""
    return Sample(sum(child.side(side)(seconds).figure for child in children) / len(children))
