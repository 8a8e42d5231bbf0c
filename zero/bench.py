"""`zero bench`: how fast the parts are, on one core, side by side in one run; the ratios are what carries over.

Each figure is measured in turn (network, self-play, search, rules, network, self-play, ...), so that all see the same
machine; medians are shown.
"""

import statistics
import time

import numpy as np

from zero._jit import kernel
from zero.artifacts import Manifest
from zero.games.planes import pack_planes
from zero.games.position import NUM_MOVES, NUM_PLANES, History, Position, Rules, new_history, new_position, reset
from zero.games.rules import ended, legal_mask, play, rules_of
from zero.network.profile import execution_profile, prepare_torch
from zero.params import Params
from zero.play.boards import advance
from zero.play.slots import IDLE, Batch, PlaySettings, Records, Slots, new_batch, new_records, new_slots
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import next_below, stream_of

SEARCH_GAMES = 64
WARM_UP_SECONDS = 0.5


class BenchResult(Manifest):
    """Medians of one run; all rates are per second of one process."""

    profile: dict[str, str]
    board: str
    batch: int
    network_evaluations: float
    selfplay_evaluations: float
    ratio: float
    """Self-play evaluations over network evaluations, from the same round: what the search leaves of the network."""
    search_simulations: float
    rules_moves: float


class Games:
    """Games that go on for ever, a bit at a time."""

    def __init__(
        self, rules: Rules, settings: PlaySettings, num_slots: int, max_nodes: int, evaluator: Evaluator
    ) -> None:
        """Sets up `num_slots` games."""
        self._rules, self._settings, self._evaluator = rules, settings, evaluator
        self._num_slots, self._max_nodes = num_slots, max_nodes
        self._slots: Slots = new_slots(rules, num_slots, 1, max_nodes)
        self._batch: Batch = new_batch(rules, num_slots, 1)
        self._records: Records = self._new_records(0)
        self._series = 0

    def run(self, seconds: float) -> tuple[float, float]:
        """Evaluations and simulations a second."""
        evaluations = simulations = 0
        moves_before = self._num_moves()
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            questions = advance(self._rules, self._settings, self._slots, self._batch, self._records)
            if questions == 0:
                simulations += (self._num_moves() - moves_before) * self._settings.num_simulations
                moves_before = 0
                self._series += 1
                self._slots = new_slots(self._rules, self._num_slots, 1, self._max_nodes)
                self._records = self._new_records(self._series)
                continue
            evaluations += questions
            self._evaluator.evaluate(self._batch.planes[0], self._batch.prior[0], self._batch.value[0])
        simulations += (self._num_moves() - moves_before) * self._settings.num_simulations
        return evaluations / elapsed, simulations / elapsed

    def _num_moves(self) -> int:
        """Moves of the series so far, in games that ended and in games in play."""
        live = self._slots.game != IDLE
        return int(self._records.num_moves.sum()) + int(self._slots.positions.state[live, NUM_MOVES].sum())

    def _new_records(self, series: int) -> Records:
        streams = np.stack([stream_of(series, 0, "bench", game) for game in range(8 * self._num_slots)])
        return new_records(self._rules, streams)


def run_bench(params: Params, seconds: float, repeats: int) -> BenchResult:
    """Measures the game, network and search of `params` on one core."""
    prepare_torch(params.profile, 1)
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes

    rules = rules_of(params.game)
    selfplay = params.selfplay
    settings = PlaySettings(
        num_players=1,
        num_simulations=selfplay.num_simulations,
        c_puct=params.search.c_puct,
        parent_first_play=params.search.first_play == "parent",
        random_symmetry=params.search.random_symmetry,
        tree_reuse=params.search.tree_reuse,
        temperature_moves=selfplay.temperature_moves,
        dirichlet_concentration=selfplay.dirichlet_concentration,
        dirichlet_fraction=selfplay.dirichlet_fraction,
        first_game=0,
    )
    evaluator = new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), params.profile)
    batch = selfplay.num_slots
    games = Games(rules, settings, batch, params.search.max_nodes, evaluator)
    alone = Games(rules, settings, SEARCH_GAMES, params.search.max_nodes, UniformEvaluator())
    network_rate(rules, evaluator, batch, WARM_UP_SECONDS)
    games.run(WARM_UP_SECONDS)
    alone.run(WARM_UP_SECONDS)
    rules_rate(rules, WARM_UP_SECONDS)
    rounds = [
        (
            network_rate(rules, evaluator, batch, seconds),
            games.run(seconds)[0],
            alone.run(seconds)[1],
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


def network_rate(rules: Rules, evaluator: Evaluator, batch: int, seconds: float) -> float:
    """Evaluations a second of the network alone, at a batch shape."""
    planes = pack_planes(np.random.default_rng(0).integers(0, 2, (batch, NUM_PLANES, rules.num_points)))
    prior, value = np.zeros((batch, rules.num_actions), np.float32), np.zeros(batch, np.float32)
    count = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        evaluator.evaluate(planes, prior, value)
        count += batch
    return count / elapsed


def rules_rate(rules: Rules, seconds: float) -> float:
    """Moves a second of games of random legal moves, with all legal moves found before each."""
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
    """Plays games of random legal moves and returns their number. Writes into all arrays but those of the rules."""
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
    """The result for a person."""
    rows = (
        ("network alone", f"{result.network_evaluations:12,.0f}", "evaluations/s"),
        ("self-play", f"{result.selfplay_evaluations:12,.0f}", "evaluations/s"),
        ("self-play : network", f"{result.ratio:12.2f}", ""),
        ("search alone", f"{result.search_simulations:12,.0f}", "simulations/s"),
        ("rules alone", f"{result.rules_moves:12,.0f}", "moves/s"),
    )
    head = f"{result.board}, batch {result.batch}, one core, {result.profile['isa']}, {result.profile['precision']}"
    return "\n".join([head, *(f"{name:22}{value} {unit}".rstrip() for name, value, unit in rows)])
