"""Memory of one game: the size of its arrays, and the growth of a process that plays games."""

import numpy as np
import psutil

from benchmarks.harness import Child, Context, Measured, Sides
from benchmarks.results import Detail, Sample, spread_of
from benchmarks.setting import params_of, selfplay_settings
from zero.config.params import Params
from zero.games.position import NUM_MOVES, Rules
from zero.games.rules import rules_of
from zero.play.batched_games import Part, new_parts
from zero.play.lockstep_games import advance
from zero.play.slots import PlaySettings, new_batch
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of

MEBIBYTE = 2**20
NUM_GAMES = 8
"""Games over which the growth is averaged: pages and the allocator make that of one game inexact."""


def prepare(params: Params, num_games: int, num_moves: int) -> Sides:
    """Side `memory`: MiB per game. It is exact once only, because freed memory is reused."""
    rules, settings, max_nodes = rules_of(params.game), selfplay_settings(params), params.search.max_nodes
    play_moves(rules, settings._replace(num_simulations=2), 1, 8, 2)  # compiles

    def run(_: float) -> Sample:
        process = psutil.Process()
        before = process.memory_info().rss
        part = play_moves(rules, settings, num_games, max_nodes, num_moves)
        growth = (process.memory_info().rss - before) / num_games / MEBIBYTE
        assert part.records.num_evaluations[0] > 0
        arrays = game_bytes(rules, settings, max_nodes) / MEBIBYTE
        details = (
            Detail(name="arrays of a game", value=arrays, unit="MiB"),
            Detail(name="growth of the resident memory per game", value=growth, unit="MiB"),
            Detail(name="nodes of a tree", value=max_nodes, unit="nodes"),
        )
        return Sample(max(arrays, growth), details)

    return {"memory": run}


def game_bytes(rules: Rules, settings: PlaySettings, max_nodes: int) -> int:
    """Bytes of all arrays of one game: position, history, tree, requests and results, record.

    The requests count twice: once for the search thread, once for the batch of the network.
    """
    part = play_moves(rules, settings, 1, max_nodes, 0)
    return num_bytes((part.slots, part.batch, part.records)) + num_bytes(new_batch(rules, 1, settings.num_players))


def num_bytes(arrays: object) -> int:
    """Bytes of all arrays in nested NamedTuples."""
    if isinstance(arrays, np.ndarray):
        return arrays.nbytes
    return sum(num_bytes(part) for part in arrays) if isinstance(arrays, tuple) else 0


def play_moves(rules: Rules, settings: PlaySettings, num_games: int, max_nodes: int, num_moves: int) -> Part:
    """Plays some moves of every game; returns the arrays."""
    streams = np.stack([stream_of(0, 0, "bench", game) for game in range(num_games)])
    part = new_parts(rules, settings, streams, num_games, max_nodes, 1)[0]
    evaluator = UniformEvaluator()
    while part.slots.positions.state[:, NUM_MOVES].min() < num_moves:
        if advance(rules, settings, part.slots, part.batch, part.records) == 0:
            break
        evaluator.evaluate(part.batch.planes[0], part.batch.prior[0], part.batch.value[0])
    return part


def memory(context: Context, preset: str, num_simulations: int, num_moves: int) -> Measured:
    """MiB per game of a preset: the larger one of the size of the arrays and the growth of the process."""
    params = params_of(preset, context.profile)
    assert params.selfplay.num_simulations == num_simulations
    with Child(prepare, params, NUM_GAMES, num_moves, cores=context.cores[-1:]) as child:
        sample = child.side("memory")(context.seconds)
    return Measured(spread_of([sample.figure]), details=sample.details)
