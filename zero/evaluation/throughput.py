"""`zero bench`: speed of network, self-play, search and rules on one core with the settings of `params.yaml`.

The measurements alternate (network, self-play, search, rules, network, ...), so that a change of the machine's speed
affects all of them; medians are shown. `benchmarks/` uses these functions and compares with other programs.
"""

import itertools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from zero.config.params import Params
from zero.games.position import NUM_MOVES, History, Position, Rules, new_history, new_position, reset
from zero.games.rules import ended, legal_mask, play, rules_of
from zero.kernels import kernel
from zero.network.profile import execution_profile, prepare_torch
from zero.play.batched_games import HalfBatch, Part, new_parts
from zero.play.slots import IDLE, PlaySettings
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import next_below, stream_of
from zero.shards.spec import plan_shards
from zero.shards.worker import shard_settings
from zero.storage.files import sha256_bytes
from zero.storage.manifests import Manifest

SEARCH_GAMES = 64
WARM_UP_SECONDS = 0.5
GAMES_PER_SLOT = 8
"""Games per slot that there are records for; then the records are used again."""
MIXING_SIMULATIONS = 16
"""Maximum number of simulations per move while the ages of the games are mixed."""


class BenchResult(Manifest):
    """Medians of one run. Rates are per second of one process."""

    profile: dict[str, str]
    board: str
    batch: int
    network_evaluations: float
    selfplay_evaluations: float
    ratio: float
    """Self-play evaluations divided by network evaluations of the same round: 1 if the search cost nothing."""
    search_simulations: float
    rules_moves: float


class Counts(NamedTuple):
    """Evaluations and simulations, in total or per second."""

    evaluations: float  # positions that the network evaluated
    simulations: float


class _Turn(NamedTuple):
    """A half of the games, or all of them, in one step."""

    parts: list[Part]
    half: HalfBatch


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
        """Starts `num_slots` games and searches to their first requests; see `zero.play.batched_games.play_games`."""
        assert settings.num_players == 1 and settings.full_search_fraction == 1.0
        num_parts = search_threads * (2 if half_batches else 1)
        streams = np.stack([stream_of(0, 0, "bench", game) for game in range(GAMES_PER_SLOT * num_slots)])
        self._rules, self._half_batches = rules, half_batches
        self._parts = new_parts(rules, settings, streams, num_slots, max_nodes, num_parts)
        self._pool = ThreadPoolExecutor(search_threads, "search") if len(self._parts) > 1 else None
        self._recycled_moves = 0  # of games whose records are free again
        self._use_evaluator(evaluator)

    def mix_ages(self) -> None:
        """Plays without a network and with few simulations until as many games have ended as there are slots.

        All games start at the same time, and the cost of a simulation depends on the age of a game. The games of a
        shard have mixed ages.
        """
        self._current.half.finish_search()
        parts, evaluator = self._parts, self._evaluator
        quick = min(parts[0].settings.num_simulations, MIXING_SIMULATIONS)
        self._parts = [part._replace(settings=part.settings._replace(num_simulations=quick)) for part in parts]
        self._use_evaluator(UniformEvaluator())
        ended_before = self._num_ended()
        while self._num_ended() - ended_before < sum(len(part.slots.game) for part in parts):
            self._turn()
        self._current.half.finish_search()
        self._parts = parts
        self._use_evaluator(evaluator)

    def run(self, seconds: float) -> Counts:
        """Plays for some seconds; returns evaluations and simulations per second."""
        before = self._counts()
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            self._turn()
        now = self._counts()
        return Counts(*((after - earlier) / elapsed for after, earlier in zip(now, before, strict=True)))

    def planes(self) -> np.ndarray:
        """A batch of positions as the network receives it, [B, P, W] uint64."""
        self._current.half.finish_search()
        return np.concatenate([part.batch.planes[0] for part in self._current.parts])

    def _use_evaluator(self, evaluator: Evaluator) -> None:
        """Switches to another evaluator; a pending request receives the previous result of its row."""
        self._evaluator = evaluator
        per_half = -(-len(self._parts) // 2) if self._half_batches else len(self._parts)
        groups = [self._parts[first : first + per_half] for first in range(0, len(self._parts), per_half)]
        self._turns = itertools.cycle([_Turn(parts, HalfBatch(self._rules, parts, [evaluator])) for parts in groups])
        self._current = next(self._turns)
        self._current.half.begin_search(self._pool)

    def _turn(self) -> None:
        """One step, the same as in `zero.play.batched_games.play_half_batches`."""
        (parts, half), following = self._current, next(self._turns)
        half.finish_search()
        for part in parts:
            self._recycle(part)
        half.submit()
        if following.half is not half:
            following.half.begin_search(self._pool)
        half.wait()
        if following.half is half:
            half.begin_search(self._pool)
        self._current = following

    def _recycle(self, part: Part) -> None:
        """Starts with the first record again before the records run out. Its random stream continues."""
        if len(part.records.end) - part.slots.next_game[0] < 2 * len(part.slots.game):
            self._recycled_moves += int(part.records.num_moves.sum())
            part.records.num_moves[:] = 0
            part.slots.next_game[0] = 0

    def _num_ended(self) -> int:
        return sum(int(part.records.num_done[0]) for part in self._parts)

    def _counts(self) -> Counts:
        """Totals over ended games, games in play, and the searches that are running."""
        evaluations, simulations = 0, 0
        for part in self._parts:
            live = part.slots.game != IDLE
            moves = int(part.records.num_moves.sum()) + int(part.slots.positions.state[live, NUM_MOVES].sum())
            num_simulations = part.settings.num_simulations
            simulations += moves * num_simulations
            simulations += int((num_simulations - part.slots.simulations_left[live]).sum())
            evaluations += int(part.records.num_evaluations[0])
        return Counts(evaluations, simulations + self._recycled_moves * self._parts[0].settings.num_simulations)


def selfplay_settings(params: Params) -> PlaySettings:
    """Settings of self-play with these parameters, but with full searches only and without resignation."""
    few = params.selfplay.model_copy(update={"num_games": 1, "full_search_fraction": 1.0})
    shard = plan_shards(params, "selfplay", few, 0, (sha256_bytes(b""),))[0]
    return shard_settings(shard)


def run_bench(params: Params, seconds: float, repeats: int) -> BenchResult:
    """Measures the game, network and search of `params` on one core."""
    prepare_torch(params.profile, 1)
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    rules, settings = rules_of(params.game), selfplay_settings(params)
    evaluator = new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), params.profile)
    batch = params.selfplay.num_slots
    games = Games(rules, settings, batch, params.search.max_nodes, evaluator)
    alone = Games(rules, settings, SEARCH_GAMES, params.search.max_nodes, UniformEvaluator())
    for each in (games, alone):
        each.mix_ages()
        each.run(WARM_UP_SECONDS)
    planes = games.planes()
    network_rate(rules, evaluator, planes, WARM_UP_SECONDS)
    rules_rate(rules, WARM_UP_SECONDS)
    rounds = [
        (
            network_rate(rules, evaluator, planes, seconds),
            games.run(seconds).evaluations,
            alone.run(seconds).simulations,
            rules_rate(rules, seconds),
        )
        for _ in range(repeats)
    ]
    return BenchResult(
        profile=execution_profile(params.profile),
        board=f"{params.game.name} {params.game.size}x{params.game.size}",
        batch=batch,
        network_evaluations=statistics.median(r[0] for r in rounds),
        selfplay_evaluations=statistics.median(r[1] for r in rounds),
        ratio=statistics.median(r[1] / r[0] for r in rounds),
        search_simulations=statistics.median(r[2] for r in rounds),
        rules_moves=statistics.median(r[3] for r in rounds),
    )


def network_rate(rules: Rules, evaluator: Evaluator, planes: np.ndarray, seconds: float) -> float:
    """Evaluations per second of the network alone on one batch, [B, P, W] uint64."""
    batch = len(planes)
    prior, value = np.zeros((batch, rules.num_actions), np.float32), np.zeros(batch, np.float32)
    count = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        evaluator.evaluate(planes, prior, value)
        count += batch
    return count / elapsed


def rules_rate(rules: Rules, seconds: float) -> float:
    """Moves per second of random games; the legal moves are computed before each move."""
    position, history, mask = new_position(rules), new_history(rules), np.zeros(rules.num_actions, np.bool_)
    stream = stream_of(0, 0, "bench", 0)
    moves = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        moves += random_games(rules, position, history, mask, stream, 20)
    return moves / elapsed


@kernel
def random_games(
    rules: Rules, position: Position, history: History, mask: np.ndarray, stream: np.ndarray, num_games: int
) -> int:
    """Plays games of random legal moves and returns the number of moves. Writes into all arrays except the rules'."""
    moves = 0
    for _ in range(num_games):
        reset(rules, position, history)
        while not ended(position):
            left = next_below(stream, legal_mask(rules, position, history, mask))
            action = 0
            while left > 0 or not mask[action]:
                left -= mask[action]
                action += 1
            play(rules, position, history, action)
            moves += 1
    return moves


def table(result: BenchResult) -> str:
    """The result as lines for the console."""
    rows = (
        ("network alone", f"{result.network_evaluations:12,.0f}", "evaluations/s"),
        ("self-play", f"{result.selfplay_evaluations:12,.0f}", "evaluations/s"),
        ("self-play : network", f"{result.ratio:12.2f}", ""),
        ("search alone", f"{result.search_simulations:12,.0f}", "simulations/s"),
        ("rules alone", f"{result.rules_moves:12,.0f}", "moves/s"),
    )
    head = f"{result.board}, batch {result.batch}, one core, {result.profile['isa']}, {result.profile['precision']}"
    return "\n".join([head, *(f"{name:22}{value} {unit}".rstrip() for name, value, unit in rows)])
