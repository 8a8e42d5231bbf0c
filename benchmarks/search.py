"""Search alone, the memory of a game, and the start of a process up to its first simulation."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter

import numpy as np

from benchmarks.harness import Work
from benchmarks.setting import selfplay_settings
from zero.config.params import Params
from zero.games.position import NUM_MOVES
from zero.games.rules import rules_of
from zero.play.batched_games import Part, new_parts
from zero.play.lockstep_games import advance
from zero.play.slots import new_batch
from zero.search.evaluator import Evaluator, UniformEvaluator
from zero.search.streams import stream_of

MEBIBYTE = 2**20


def search(params: Params) -> Work:
    """Simulations per second of the first moves of `num_slots` games, from empty trees, with a uniform evaluator."""

    def run(seconds: float) -> float:
        simulations, busy = 0, 0.0
        while busy < seconds:
            part = new_part(params, params.selfplay.num_slots)
            for array in arrays_of((part.slots, part.batch, part.records)):
                array[...] = array.copy()  # the system maps all pages now, before the clock starts
            begun = perf_counter()
            simulations += play_first_moves(params, part, UniformEvaluator())
            busy += perf_counter() - begun
        return simulations / busy

    run(0.001)  # compiles
    return run


def new_part(params: Params, num_games: int) -> Part:
    """The data of games that have not begun."""
    streams = np.stack([stream_of(0, 0, "bench", game) for game in range(num_games)])
    return new_parts(rules_of(params.game), selfplay_settings(params), streams, num_games, params.search.max_nodes, 1)[
        0
    ]


def play_first_moves(params: Params, part: Part, evaluator: Evaluator) -> int:
    """Searches until every game has played its first move; returns the simulations that are recorded of it."""
    rules, batch = rules_of(params.game), part.batch
    while not part.slots.positions.state[:, NUM_MOVES].all():
        advance(rules, part.settings, part.slots, batch, part.records)
        evaluator.evaluate(batch.planes[0], batch.prior[0], batch.value[0])
    return int(part.records.visit_counts[:, 0].sum())


def memory(params: Params) -> Work:
    """MiB of all arrays of one game: position, history, tree, requests and results, record.

    The requests count twice: once for the search thread, once for the batch of the network.
    """
    part = new_part(params, 1)
    arrays = arrays_of((part.slots, part.batch, part.records, new_batch(rules_of(params.game), 1, 1)))
    size = sum(array.nbytes for array in arrays) / MEBIBYTE
    return lambda _: size


def startup(params: Params) -> Work:
    """Seconds of a new process from its start to its end. The round that is discarded may compile the kernels."""

    def run(_: float) -> float:
        begun = perf_counter()
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            assert pool.submit(first_simulation, params).result() == 1
        return perf_counter() - begun

    return run


def first_simulation(params: Params) -> int:
    """Makes a network ready and searches with one simulation, like a worker or an engine; returns the simulations."""
    from benchmarks.selfplay import new_network_evaluator

    return play_first_moves(params, new_part(params, 1), new_network_evaluator(params))


def arrays_of(tree: object) -> list[np.ndarray]:
    """All arrays in nested tuples."""
    if isinstance(tree, np.ndarray):
        return [tree]
    return [array for part in tree for array in arrays_of(part)] if isinstance(tree, tuple) else []
