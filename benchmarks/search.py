"""Search alone: the first moves of many games, from empty trees, with a uniform evaluator."""

import time
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Child, Context, Measure, Measured, alone
from benchmarks.results import Sample
from benchmarks.setting import GO9, params_of
from zero.config.params import Params
from zero.evaluation.throughput import selfplay_settings
from zero.games.position import NUM_MOVES, Rules
from zero.games.rules import rules_of
from zero.play.lockstep_games import advance
from zero.play.slots import PlaySettings, new_batch, new_records, new_slots
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of
from zero.storage.manifests import Manifest

NUM_SIMULATIONS = 800
NUM_GAMES = 64


class SearchWork(Manifest):
    """Games whose first moves are searched."""

    params: Params
    num_games: int


class Searched(NamedTuple):
    """A search of the first moves of all games."""

    simulations: int  # as recorded
    seconds: float


def prepare(arguments: str) -> tuple[Measure, ...]:
    """The measure `search` of a `SearchWork`: simulations per second."""
    work = SearchWork.model_validate_json(arguments)
    rules, settings = rules_of(work.params.game), selfplay_settings(work.params)
    max_nodes = work.params.search.max_nodes

    def run(seconds: float) -> Sample:
        simulations, busy = 0, 0.0
        while busy < seconds:
            searched = search_first_moves(rules, settings, work.num_games, max_nodes)
            simulations += searched.simulations
            busy += searched.seconds
        return Sample(figure=simulations / busy)

    search_first_moves(rules, settings, work.num_games, max_nodes)
    return (Measure("search", run),)


def search_first_moves(rules: Rules, settings: PlaySettings, num_games: int, max_nodes: int) -> Searched:
    """Searches until every game has played its first move. Memory is allocated and written before the clock starts."""
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
    return Searched(simulations=int(records.visit_counts[:, 0].sum()), seconds=seconds)


def touch(arrays: object) -> None:
    """Overwrites every array with itself, so that the system has mapped all pages."""
    if isinstance(arrays, np.ndarray):
        arrays[...] = arrays.copy()
    elif isinstance(arrays, tuple):
        for part in arrays:
            touch(part)


def search_work(context: Context, noise: float) -> SearchWork:
    """9x9 Go with positional superko; only the noise is random."""
    params = params_of(
        GO9,
        context.profile,
        search={"first_play": "zero", "random_symmetry": False, "max_nodes": NUM_SIMULATIONS + 2},
        selfplay={"num_simulations": NUM_SIMULATIONS, "temperature_moves": 0, "dirichlet_fraction": noise},
    )
    return SearchWork(params=params, num_games=NUM_GAMES)


def search(context: Context, noise: float = 0.0) -> Measured:
    """Simulations per second of one core. `noise`: fraction of root noise; with 0 all games are equal."""
    with Child("search", search_work(context, noise), context.cores[-1:]) as child:
        return alone(context, child.side("search"))
