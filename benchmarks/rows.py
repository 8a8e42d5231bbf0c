"""The table: what is measured, in which unit, against what, and what it should reach."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.against_pgx import against_pgx
from benchmarks.leela_zero import lock_step, one_game
from benchmarks.memory import memory
from benchmarks.results import Row, Target
from benchmarks.rounds import Context, Measured, not_measured
from benchmarks.search import search
from benchmarks.selfplay import EVALUATIONS, SIMULATIONS, against_raw, on_gpu, two_processes
from benchmarks.setting import GO19, GPU9
from benchmarks.startup import startup
from benchmarks.training import training
from zero.errors import ZeroError

FAILED = "failed: "
"""How the note of a row begins whose measurement ended in an error."""


class RowSpec(NamedTuple):
    """A row before it is measured."""

    name: str
    work: str
    unit: str
    rival: str  # what the ratio is against; empty without one
    targets: tuple[Target, ...]
    measure: Callable[[Context], Measured]


def ratio_of(value: float) -> tuple[Target, ...]:
    """Our figure over the rival's is at least this."""
    return (Target(of="ratio", sense="at least", value=value),)


def at_least(value: float) -> tuple[Target, ...]:
    """The figure is at least this."""
    return (Target(of="figure", sense="at least", value=value),)


def at_most(value: float) -> tuple[Target, ...]:
    """The figure is at most this."""
    return (Target(of="figure", sense="at most", value=value),)


SEARCH = "search alone, 9x9, positional superko, 800 simulations from an empty tree, 64 games, uniform evaluator"
RAW = "the same network alone, same batch"
LEELAZ = "leelaz 0.17, one game"
ROWS = (
    RowSpec("search", SEARCH, SIMULATIONS, "", at_least(250_000), partial(search, first_play="zero")),
    RowSpec(
        "search-parent",
        f"{SEARCH}; an untried action is worth the mean of its position",
        *(SIMULATIONS, "", (), partial(search, first_play="parent")),
    ),
    RowSpec(
        "search-noise",
        f"{SEARCH}; noise at the roots, so that no two games are alike",
        *(SIMULATIONS, "", (), partial(search, first_play="zero", noise=0.25)),
    ),
    RowSpec(
        "selfplay-4x32",
        "self-play, 9x9, 4x32 tower, batch 64, one core",
        *(EVALUATIONS, RAW, ratio_of(0.95), partial(against_raw, num_blocks=4, num_channels=32)),
    ),
    RowSpec(
        "selfplay-6x64",
        "self-play, 9x9, 6x64 tower, batch 64, one core",
        *(EVALUATIONS, RAW, ratio_of(0.95), partial(against_raw, num_blocks=6, num_channels=64)),
    ),
    RowSpec(
        "leela-zero",
        "19x19, 6x64 tower, 200 simulations, 32 games in lock-step, one thread",
        *(SIMULATIONS, LEELAZ, ratio_of(3.0), lock_step),
    ),
    RowSpec(
        "one-game",
        "19x19, 6x64 tower, 200 simulations, one game, 16 leaves of its tree at once, one thread",
        *(SIMULATIONS, LEELAZ, (), one_game),
    ),
    RowSpec(
        "pgx-mctx",
        "self-play, 9x9, 4x32 tower, 20 simulations, 64 games, one core",
        *(EVALUATIONS, "pgx + mctx on CPU, same network", ratio_of(3.0), against_pgx),
    ),
    RowSpec(
        "two-processes",
        "self-play, 9x9, 4x32 tower, batch 64, two processes of one core each at once",
        *(EVALUATIONS, "one of them alone", ratio_of(1.9), two_processes),
    ),
    RowSpec(
        "training",
        "training from games, 9x9, 4x32 tower, batch 256, two threads",
        *("samples/s", "bare forward, backward and SGD on tensors in memory", ratio_of(0.9), training),
    ),
    RowSpec(
        "memory-9x9",
        "memory of one 9x9 game at 200 simulations, tree of the preset go9-gpu",
        *("MiB", "", at_most(1.0), partial(memory, preset=GPU9, num_simulations=200, num_moves=60)),
    ),
    RowSpec(
        "memory-19x19",
        "memory of one 19x19 game at 1,600 simulations, tree of the preset go19-paper",
        *("MiB", "", at_most(32.0), partial(memory, preset=GO19, num_simulations=1600, num_moves=6)),
    ),
    RowSpec(
        "startup",
        "start of a process to the first simulation of a 4x32 network, compiled kernels on disk",
        *("s", "", at_most(3.0), partial(startup, with_network=True)),
    ),
    RowSpec(
        "startup-search",
        "the same without a network",
        *("s", "", (), partial(startup, with_network=False)),
    ),
    RowSpec(
        "gpu-10x128",
        "self-play, 9x9, 10x128 tower by the preset go9-gpu, one GPU",
        *(EVALUATIONS, RAW, (*at_least(200_000), *ratio_of(0.85)), on_gpu),
    ),
)


def rows_named(names: str) -> list[RowSpec]:
    """The rows of a list with commas, in the order of the table; all of them where it is empty.

    Raises:
      ZeroError: there is no such row.
    """
    wanted = [name for name in names.split(",") if name]
    known = [row.name for row in ROWS]
    if odd := [name for name in wanted if name not in known]:
        raise ZeroError(f"there is no benchmark {odd[0]!r}; --rows takes some of {','.join(known)}")
    return [row for row in ROWS if not wanted or row.name in wanted]


def measure_rows(specs: Sequence[RowSpec], context: Context, done: Callable[[int], None]) -> list[Row]:
    """Measures some rows, one after the other; `done` is called with the rounds that are over, all rows together.

    A row that fails says so in its note, and the others are measured.
    """
    rows: list[Row] = []
    for number, spec in enumerate(specs):
        rounds = itertools.count(number * context.repeats + 1)
        try:
            measured = spec.measure(context._replace(tick=partial(_tick, done, rounds)))
        except ZeroError as error:
            measured = not_measured(f"{FAILED}{error}")
        done((number + 1) * context.repeats)
        rows.append(new_row(spec, measured))
    return rows


def new_row(spec: RowSpec, measured: Measured) -> Row:
    """A row with its figures."""
    return Row(
        name=spec.name,
        work=spec.work,
        unit=spec.unit,
        figure=measured.figure,
        rival=spec.rival,
        rival_figure=measured.rival_figure,
        ratio=measured.ratio,
        targets=spec.targets,
        details=measured.details,
        note=measured.note,
    )


def _tick(done: Callable[[int], None], rounds: Iterator[int]) -> None:
    done(next(rounds))
