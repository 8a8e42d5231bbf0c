"""19x19 on one thread: our simulations a second against those of `leelaz` with the same network."""

import atexit
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.children import Child
from benchmarks.leelaz import MISSING, Leelaz, leelaz_path
from benchmarks.results import Sample
from benchmarks.rounds import Context, Measured, against, not_measured
from benchmarks.selfplay import SelfplayWork
from benchmarks.setting import GO19, params_of, residual_tower
from benchmarks.work import Measure, rate
from zero.config.params import Params
from zero.games.rules import rules_of
from zero.network.profile import prepare_torch

NUM_SIMULATIONS = 200
MAX_NODES = 600
NUM_GAMES = 32
VALUE_HIDDEN = 256
"""The one width that Leela Zero has."""
NUM_LEAVES = 16
"""Leaves that our player of one game has on their way at once."""


def prepare(arguments: str) -> tuple[Measure, ...]:
    """The work of a `SelfplayWork`: `leelaz`, where it is installed, and `player`, ours of one game; simulations/s.

    Both play against themselves and go on from the tree of the move before, whose simulations do not count again.
    """
    params = SelfplayWork.model_validate_json(arguments).params
    prepare_torch(params.profile, params.profile.selfplay_threads)
    measures = {"player": _player(params)}
    if leelaz_path():
        measures["leelaz"] = _leelaz(params)
    for search in measures.values():
        search()
    return tuple(Measure(name, _rate_of(search)) for name, search in measures.items())


def lock_step(context: Context) -> Measured:
    """Our self-play of games in lock-step, which is how many positions are searched, against leelaz with one game."""
    return _against_leelaz(context, "selfplay", "simulations")


def one_game(context: Context) -> Measured:
    """Our player of one game, with leaves of one tree in the batch, against leelaz."""
    return _against_leelaz(context, "leela_zero", "player")


def leela_work(context: Context) -> SelfplayWork:
    """6x64 at 19x19, with the first network of the seed."""
    return SelfplayWork(
        params=params_of(
            GO19,
            context.profile,
            network=residual_tower(6, 64, VALUE_HIDDEN),
            search={"max_nodes": MAX_NODES},
            selfplay={"num_simulations": NUM_SIMULATIONS, "fast_simulations": 1, "num_slots": NUM_GAMES},
            gating={"num_simulations": 1},
        )
    )


def _against_leelaz(context: Context, module: str, measure: str) -> Measured:
    if not leelaz_path():
        return not_measured(MISSING)
    work, core = leela_work(context), context.cores[-1:]
    with Child(module, work, core) as ours, Child("leela_zero", work, core) as rival:
        return against(context, ours.side(measure), rival.side("leelaz"))


def _rate_of(search: Callable[[], int]) -> Callable[[float], Sample]:
    return lambda seconds: Sample(figure=rate(search, seconds))


def _leelaz(params: Params) -> Callable[[], int]:
    """A function that searches and plays a move of leelaz's game against itself, and gives its simulations."""
    from zero.interop.leela_zero import leela_zero_weights
    from zero.network.weights import new_network

    with tempfile.TemporaryDirectory(prefix="zero-bench-") as folder:
        weights = Path(folder) / "weights.txt"
        weights.write_bytes(leela_zero_weights(new_network(params.network, params.game, params.seed)))
        program = Leelaz(weights, params.selfplay.num_simulations)
    atexit.register(program.close)
    return lambda: program.search().playouts


def _player(params: Params) -> Callable[[], int]:
    """The same of our player."""
    from zero.network.inference import new_evaluator
    from zero.network.weights import new_network, weights_bytes
    from zero.play.player import Player

    player = Player(
        rules_of(params.game),
        new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), params.profile),
        num_simulations=params.selfplay.num_simulations,
        c_puct=params.search.c_puct,
        fpu_from_parent=params.search.first_play == "parent",
        random_symmetry=params.search.random_symmetry,
        max_nodes=params.search.max_nodes,
        num_leaves=NUM_LEAVES,
    )

    def search() -> int:
        if player.is_over:
            player.new_game()
        done = player.search().num_simulations
        player.play(player.choose())
        return done

    return search
