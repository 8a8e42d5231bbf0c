"""The rows of the table: work, unit, rival and target."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from benchmarks.harness import Context, Measured, not_measured
from benchmarks.leela_zero import against_leelaz
from benchmarks.memory import memory
from benchmarks.results import Row, Target
from benchmarks.search import search
from benchmarks.selfplay import EVALUATIONS, SIMULATIONS, against_pgx, against_raw, on_gpu, two_processes
from benchmarks.setting import GO19, GPU9
from benchmarks.startup import startup
from benchmarks.training import training
from zero.errors import ZeroError

FAILED = "failed: "
"""Prefix of the note of a row whose measurement failed."""


class RowSpec(NamedTuple):
    """A row without its figures."""

    name: str
    work: str
    unit: str
    measure: Callable[[Context], Measured]
    targets: tuple[Target, ...] = ()
    rival: str = ""  # what the ratio compares with; empty without one


def ratio_of(value: float) -> tuple[Target, ...]:
    """Target for the ratio of our figure to the rival's."""
    return (Target(of="ratio", sense="at least", value=value),)


def at_least(value: float) -> tuple[Target, ...]:
    """Lower bound for the figure."""
    return (Target(of="figure", sense="at least", value=value),)


def at_most(value: float) -> tuple[Target, ...]:
    """Upper bound for the figure."""
    return (Target(of="figure", sense="at most", value=value),)


SEARCH = "search alone, 9x9, positional superko, 800 simulations from an empty tree, 64 games, uniform evaluator"
NOISE = f"{SEARCH}; with root noise, so that all games differ"
SMALL = "self-play, 9x9, 4x32 network, batch 64, one core"
LARGE = "self-play, 9x9, 6x64 network, batch 64, one core"
LEELA = "19x19, 6x64 network, 200 simulations, 32 games in lock-step, one thread"
PGX = "self-play, 9x9, 4x32 network, 20 simulations, 64 games, one core"
TWO = "self-play, 9x9, 4x32 network, batch 64, two processes on one core each at the same time"
TRAINING = "training from games, 9x9, 4x32 network, batch 256, two threads"
MEMORY9 = "memory of one 9x9 game at 200 simulations, tree of the preset go9-gpu"
MEMORY19 = "memory of one 19x19 game at 1,600 simulations, tree of the preset go19-paper"
STARTUP = "start of a process up to the first simulation with a 4x32 network, compiled kernels on disk"
GPU = "self-play, 9x9, 10x128 network of the preset go9-gpu, one GPU"

raw4, raw6 = (partial(against_raw, num_blocks=blocks, num_channels=channels) for blocks, channels in ((4, 32), (6, 64)))
memory9 = partial(memory, preset=GPU9, num_simulations=200, num_moves=60)
memory19 = partial(memory, preset=GO19, num_simulations=1600, num_moves=6)
RAW, PLAIN = "the same network alone, same batch", "plain forward, backward and SGD on tensors in memory"
ROWS = (
    RowSpec("search", SEARCH, SIMULATIONS, search, at_least(250_000)),
    RowSpec("search-noise", NOISE, SIMULATIONS, partial(search, noise=0.25)),
    RowSpec("selfplay-4x32", SMALL, EVALUATIONS, raw4, ratio_of(0.95), RAW),
    RowSpec("selfplay-6x64", LARGE, EVALUATIONS, raw6, ratio_of(0.95), RAW),
    RowSpec("leela-zero", LEELA, SIMULATIONS, against_leelaz, ratio_of(3.0), "leelaz 0.17, one game"),
    RowSpec("pgx-mctx", PGX, EVALUATIONS, against_pgx, ratio_of(3.0), "pgx + mctx on CPU, same network"),
    RowSpec("two-processes", TWO, EVALUATIONS, two_processes, ratio_of(1.9), "one of them"),
    RowSpec("training", TRAINING, "samples/s", training, ratio_of(0.9), PLAIN),
    RowSpec("memory-9x9", MEMORY9, "MiB", memory9, at_most(1.0)),
    RowSpec("memory-19x19", MEMORY19, "MiB", memory19, at_most(32.0)),
    RowSpec("startup", STARTUP, "s", startup, at_most(3.0)),
    RowSpec("gpu-10x128", GPU, EVALUATIONS, on_gpu, (*at_least(200_000), *ratio_of(0.85)), RAW),
)


def rows_named(names: str) -> list[RowSpec]:
    """The rows of a list separated by commas, in the order of the table; an empty list means all rows.

    Raises:
      ZeroError: a row does not exist.
    """
    wanted = [name for name in names.split(",") if name]
    known = [row.name for row in ROWS]
    if unknown := [name for name in wanted if name not in known]:
        raise ZeroError(f"unknown row {unknown[0]!r}; --rows must be some of {','.join(known)}")
    return [row for row in ROWS if not wanted or row.name in wanted]


def measure_row(spec: RowSpec, context: Context) -> Row:
    """Measures a row. An error becomes its note, so that the other rows are measured."""
    try:
        measured = spec.measure(context)
    except ZeroError as error:
        measured = not_measured(f"{FAILED}{error}")
    fields = spec._asdict() | measured._asdict()
    del fields["measure"]
    return Row(**fields)
