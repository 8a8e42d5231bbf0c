"""Search alone: the first moves of many games, each from an empty tree, judged by an evaluator that knows nothing."""

import time
from typing import NamedTuple

import numpy as np

from benchmarks.children import Child
from benchmarks.results import Sample
from benchmarks.rounds import Context, Measured, alone
from benchmarks.setting import GO9, params_of
from benchmarks.work import Measure
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
    """Games to search the first moves of."""

    params: Params
    num_games: int


class Searched(NamedTuple):
    """The first moves of all games."""

    simulations: int  # as recorded
    seconds: float


def prepare(arguments: str) -> tuple[Measure, ...]:
    """The work of a `SearchWork`: `search`, simulations a second."""
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
    """Searches until every game has played its first move; the memory is there, and touched, before."""
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
    """Writes every array of a tree of NamedTuples over with itself: then the system has given the process its pages."""
    if isinstance(arrays, np.ndarray):
        arrays[...] = arrays.copy()
    elif isinstance(arrays, tuple):
        for part in arrays:
            touch(part)


def search_work(context: Context, first_play: str, noise: float) -> SearchWork:
    """Positional superko at 9x9; nothing is drawn at random but the noise."""
    params = params_of(
        GO9,
        context.profile,
        search={"first_play": first_play, "random_symmetry": False, "max_nodes": NUM_SIMULATIONS + 2},
        selfplay={"num_simulations": NUM_SIMULATIONS, "temperature_moves": 0, "dirichlet_fraction": noise},
    )
    return SearchWork(params=params, num_games=NUM_GAMES)


def search(context: Context, first_play: str, noise: float = 0.0) -> Measured:
    """Simulations a second of a core.

    Without noise all games are searched alike; with noise (the fraction given) each is another.
    """
    with Child("search", search_work(context, first_play, noise), context.cores[-1:]) as child:
        return alone(context, child.side("search"))
