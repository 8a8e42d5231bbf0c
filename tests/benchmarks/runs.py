"""Made-up results, and settings of a measurement that takes no time."""

from benchmarks.harness import Context
from benchmarks.results import Detail, Machine, Results, Row, Settings, Spread, Target
from tests.parameters import profile_params

MACHINE = Machine(
    cpu="Zen 4",
    cores=2,
    isa=("avx2", "avx512f"),
    memory_bytes=24 * 2**30,
    gpu="",
    system="Linux",
    load=0.25,
    python="3.11.7",
    libraries={"numba": "0.68.1"},
    commit="0123456789abcdef",
    dirty=False,
)
SETTINGS = Settings(seconds=5.0, repeats=3, backend="openvino", precision="fp32")
FASTEST = Target(of="figure", sense="at least", value=250_000)
SMALLEST = Target(of="figure", sense="at most", value=1.0)
TWICE = Target(of="ratio", sense="at least", value=2.0)


def spread(median: float) -> Spread:
    return Spread(median=median, low=0.9 * median, high=1.2 * median)


def row(name: str, figure: float | None, ratio: float | None = None, *targets: Target, note: str = "") -> Row:
    return Row(
        name=name,
        work=f"work of {name}",
        unit="simulations/s",
        figure=None if figure is None else spread(figure),
        rival="" if ratio is None else "the rival",
        rival_figure=None if ratio is None or figure is None else spread(figure / ratio),
        ratio=None if ratio is None else spread(ratio),
        targets=targets,
        details=() if figure is None else (Detail(name="beside it", value=12.5, unit="MiB"),),
        note=note,
    )


def run_of(*rows: Row, machine: Machine = MACHINE, settings: Settings = SETTINGS) -> Results:
    return Results(machine=machine, settings=settings, rows=rows)


def short_context(repeats: int = 2) -> Context:
    """One core and the shortest measurement."""
    return Context(seconds=0.01, repeats=repeats, profile=profile_params(), cores=(0,))
