"""Search alone: the first moves of many games, from empty trees, with a uniform evaluator."""

import time

import numpy as np

from benchmarks.harness import Child, Context, Measured, Sides, compare
from benchmarks.results import Sample
from benchmarks.setting import GO9, params_of, selfplay_settings
from zero.config.params import Params
from zero.games.position import NUM_MOVES, Rules
from zero.games.rules import rules_of
from zero.play.lockstep_games import advance
from zero.play.slots import PlaySettings, new_batch, new_records, new_slots
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of

NUM_SIMULATIONS = 800
NUM_GAMES = 64


def prepare(params: Params, num_games: int) -> Sides:
    """Side `search`: simulations per second."""
    arguments = (rules_of(params.game), selfplay_settings(params), num_games, params.search.max_nodes)

    def run(seconds: float) -> Sample:
        simulations, busy = 0, 0.0
        while busy < seconds:
            more, used = search_first_moves(*arguments)
            simulations, busy = simulations + more, busy + used
        return Sample(simulations / busy)

    search_first_moves(*arguments)  # compiles
    return {"search": run}


def search_first_moves(rules: Rules, settings: PlaySettings, num_games: int, max_nodes: int) -> tuple[int, float]:
    """Searches until every game has played its first move; returns the recorded simulations, and the seconds.

    Memory is allocated and written before the clock starts.
    """
    slots = new_slots(rules, settings, num_games, max_nodes)
    batch = new_batch(rules, num_games, 1)
    records = new_records(rules, np.stack([stream_of(0, 0, "bench", game) for game in range(num_games)]))
    touch((slots, batch, records))
    evaluator = UniformEvaluator()
    started = time.perf_counter()
    while not slots.positions.state[:, NUM_MOVES].all():
        advance(rules, settings, slots, batch, records)
        evaluator.evaluate(batch.planes[0], batch.prior[0], batch.value[0])
    seconds = time.perf_counter() - started
    return int(records.visit_counts[:, 0].sum()), seconds


def touch(arrays: object) -> None:
    """Overwrites every array with itself, so that the system has mapped all pages."""
    if isinstance(arrays, np.ndarray):
        arrays[...] = arrays.copy()
    elif isinstance(arrays, tuple):
        for part in arrays:
            touch(part)


def search_params(context: Context, noise: float) -> Params:
    """9x9 Go with positional superko; only the noise is random."""
    return params_of(
        GO9,
        context.profile,
        search={"first_play": "zero", "random_symmetry": False, "max_nodes": NUM_SIMULATIONS + 2},
        selfplay={"num_simulations": NUM_SIMULATIONS, "temperature_moves": 0, "dirichlet_fraction": noise},
    )


def search(context: Context, noise: float = 0.0) -> Measured:
    """Simulations per second of one core. `noise`: fraction of root noise; with 0 all games are equal."""
    with Child(prepare, search_params(context, noise), NUM_GAMES, cores=context.cores[-1:]) as child:
        return compare(context, child.side("search"))
