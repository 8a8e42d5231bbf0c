"""Report of an experiment with many seeds: lines, a table, `results.json`, `curve.csv`, `strength.png`."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.seed_records import SECONDS_PER_HOUR, Generation, Measurement, SeedRecord, Setup
from zero.storage.files import write_atomic, write_manifest
from zero.storage.manifests import Manifest

RESULTS_FILE, CURVE_FILE, PLOT_FILE = "results.json", "curve.csv", "strength.png"
WIDTH, HEIGHT, DPI = 5.6, 4.2, 120
"""Size of a panel in inches, and dots per inch."""
GRID_POINTS = 200
"""Hours at which the band of the plot is computed."""
COSTS = ("cpu_seconds", "games", "evaluations")
NONE = "–"


class Spread(Manifest):
    """Distribution of a number over seeds. A missing number counts as infinite; None means infinite."""

    fastest: float | None
    median: float | None
    slowest: float | None


class Reached(Manifest):
    """When an opponent was reached, over all seeds."""

    opponent: str
    num_reached: int
    num_seeds: int
    hours: Spread
    generations: Spread
    slowest_over_fastest: float | None
    """Of the hours; None unless every seed reached it."""


class Summary(Manifest):
    """The summary of an experiment. Each list has the seeds to which it applies."""

    reached: tuple[Reached, ...]
    problems: dict[str, tuple[int, ...]]
    """Seeds with each kind of problem."""


class Results(Manifest):
    """`results.json`: the complete results."""

    setup: Setup
    summary: Summary
    seeds: tuple[SeedRecord, ...]


def write_report(folder: Path, setup: Setup, records: Sequence[SeedRecord]) -> None:
    """Writes results, curve and plot into the folder."""
    results = Results(setup=setup, summary=summary_of(setup, records), seeds=tuple(records))
    write_manifest(folder, results, RESULTS_FILE)
    write_atomic(folder / CURVE_FILE, curve_csv(setup, records).encode())
    write_atomic(folder / PLOT_FILE, strength_png(setup, records))


def summary_of(setup: Setup, records: Sequence[SeedRecord]) -> Summary:
    """Counts over the seeds."""
    problems: dict[str, tuple[int, ...]] = {}
    for record in records:
        for problem in problems_of(record):
            problems[problem] = (*problems.get(problem, ()), record.seed)
    return Summary(
        reached=tuple(_reached(setup, records, each) for each in setup.strength.opponents), problems=problems
    )


def problems_of(record: SeedRecord) -> list[str]:
    """The problems of a seed. A seed that crashed may have been completed by a later call; a failed one was not."""
    problems = {
        "generation 1 rejected": any(made.number == 1 and not made.promoted for made in record.generations),
        "dead training": any(made.training.health.verdict == "dead" for made in record.generations),
        "crashed": bool(record.failures),
        "failed": record.status == "failed",
        "unfinished": record.status == "running",
    }
    return [problem for problem, holds in problems.items() if holds]


def spread_of(values: Sequence[float | None]) -> Spread:
    """Fastest, median and slowest of values among which None is infinite."""
    known = sorted(math.inf if value is None else value for value in values) or [math.inf]
    spread = (known[0], statistics.median(known), known[-1])
    fastest, median, slowest = (value if math.isfinite(value) else None for value in spread)
    return Spread(fastest=fastest, median=median, slowest=slowest)


def _reached(setup: Setup, records: Sequence[SeedRecord], opponent: str) -> Reached:
    matches = [record.reached(opponent, setup.strength.goal) for record in records]
    pairs = list(zip(records, matches, strict=True))
    hours = spread_of([record.hours(match.generation) if match else None for record, match in pairs])
    return Reached(
        opponent=opponent,
        num_reached=sum(match is not None for match in matches),
        num_seeds=len(records),
        hours=hours,
        generations=spread_of([match.generation if match else None for match in matches]),
        slowest_over_fastest=hours.slowest / hours.fastest if hours.slowest and hours.fastest else None,
    )


def generation_line(record: SeedRecord, made: Generation) -> str:
    """A generation in one line."""
    training, health = made.training, made.training.health
    loss, constant = (_shown(value, ".3f") for value in (training.value_loss, training.constant_value_loss))
    decision = f"{'promoted' if made.promoted else 'rejected'} {made.score:.1%}"
    parts = [f"{_where(record, made.number)}: {decision}", f"{sum(made.attempts):.0f} s"]
    parts += [f"value loss {loss} (constant {constant})", f"training {health.verdict}", *health.findings]
    return ", ".join(parts + ([f"{len(made.attempts)} attempts"] if len(made.attempts) > 1 else []))


def measurement_line(record: SeedRecord, match: Measurement) -> str:
    """A match in one line."""
    result, forfeits = match.table.result, match.table.forfeits
    low, high = result.interval
    return (
        f"{_where(record, match.generation)}: {match.kind} against {match.opponent}: {match.score:.1%} "
        f"of {result.wins + result.losses + result.draws} games ({low:.1%}-{high:.1%})"
        + (f", forfeits {forfeits[0]} and {forfeits[1]}" if any(forfeits) else "")
    )


def seeds_table(setup: Setup, records: Sequence[SeedRecord]) -> Table:
    """A row per seed, then the distribution."""
    strength, reached = setup.strength, summary_of(setup, records).reached
    table = Table(title=f"{setup.name}, commit {setup.commit[:12]}, goal {strength.goal:.0%}")
    levels = [f"hours to {opponent}" for opponent in strength.opponents]
    for column in ("seed", "generations", "hours", *levels, "CPU hours", "games", "evaluations", "problems"):
        table.add_column(column, justify="left" if column == "problems" else "right")
    for record in records:
        cells = [_strength_cell(setup, record, opponent) for opponent in strength.opponents]
        costs = _costs_cells([record.costs(name) for name in COSTS])
        problems = ", ".join(problems_of(record)) or "none"
        table.add_row(str(record.seed), str(record.newest), f"{record.hours():.2f}", *cells, *costs, problems)
    table.add_section()
    hours = spread_of([record.hours() for record in records])
    spreads = [spread_of([record.costs(name) for record in records]) for name in COSTS]
    for name in ("fastest", "median", "slowest"):
        cells = [_shown(getattr(each.hours, name), ".2f", "not reached") for each in reached]
        costs = _costs_cells([getattr(spread, name) for spread in spreads])
        table.add_row(name, "", _shown(getattr(hours, name), ".2f"), *cells, *costs)
    table.add_row("slowest / fastest", "", "", *(_shown(each.slowest_over_fastest, ".2f") for each in reached))
    table.add_row("reached", "", "", *(f"{each.num_reached} of {each.num_seeds}" for each in reached))
    return table


def curve_csv(setup: Setup, records: Sequence[SeedRecord]) -> str:
    """A row per generation: clock and costs so far, gating, training, scores in matches."""
    opponents = setup.strength.opponents
    names = "seed generation hours cpu_hours games evaluations promoted gate_score policy_loss value_loss"
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    scores = [f"score {opponent}" for opponent in opponents]
    rows.writerow([*names.split(), "constant_value_loss", "training_health", *scores])
    for record in records:
        for made in record.generations:
            number, training = made.number, made.training
            cpu, games, evaluations = (record.costs(name, number) for name in COSTS)
            clock = f"{record.hours(number):.4f}", _shown(cpu and cpu / SECONDS_PER_HOUR, ".4f", "")
            losses = training.policy_loss, training.value_loss, training.constant_value_loss, training.health.verdict
            met = (_score(record, number, opponent) for opponent in opponents)
            rows.writerow(
                [record.seed, number, *clock, games, evaluations, int(made.promoted), made.score, *losses, *met]
            )
    return file.getvalue()


def strength_png(setup: Setup, records: Sequence[SeedRecord]) -> bytes:
    """A panel per opponent: the score of each seed over the hours of its clock, and the range over the seeds."""
    from matplotlib.figure import Figure  # half a second

    opponents = setup.strength.opponents
    figure = Figure((WIDTH * len(opponents), HEIGHT), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, len(opponents), sharey=True, squeeze=False)[0]
    for axes, opponent in zip(panels, opponents, strict=True):
        curves = {record.seed: points for record in records if len(points := points_of(record, opponent))}
        for seed, points in curves.items():
            axes.plot(*points.T, marker="o", markersize=3, lw=1, label=str(seed))
        # The band begins where every seed has a score. A curve that has ended keeps its last score.
        begin = max((points[0, 0] for points in curves.values()), default=0.0)
        end = max((points[-1, 0] for points in curves.values()), default=0.0)
        if len(curves) > 1 and end > begin:
            hours = np.linspace(begin, end, GRID_POINTS)
            scores = np.array([np.interp(hours, *points.T) for points in curves.values()])
            axes.fill_between(hours, scores.min(axis=0), scores.max(axis=0), color="C7", alpha=0.25, lw=0)
        axes.axhline(100 * setup.strength.goal, color="black", lw=1, ls="--")
        axes.set(title=f"against {opponent}", xlabel="hours of generations", xlim=(0, None), ylim=(-2, 102))
        axes.grid(alpha=0.3)
        if curves:
            axes.legend(title="seed", fontsize=7)
    panels[0].set_ylabel("score of the champion (%)")
    figure.suptitle(setup.name, fontsize=11)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def points_of(record: SeedRecord, opponent: str) -> np.ndarray:
    """Hours, and score in per cent, of each generation that met an opponent, by its last match: [M, 2]."""
    met = sorted({match.generation for match in record.measurements if match.opponent == opponent})
    return np.array([(record.hours(number), 100 * (_score(record, number, opponent) or 0.0)) for number in met])


def _score(record: SeedRecord, generation: int, opponent: str) -> float | None:
    """Score in the last match of a generation."""
    met = [m.score for m in record.measurements if (m.generation, m.opponent) == (generation, opponent)]
    return met[-1] if met else None


def _where(record: SeedRecord, generation: int) -> str:
    return f"seed {record.seed}, generation {generation}, {record.hours(generation):.2f} h"


def _strength_cell(setup: Setup, record: SeedRecord, opponent: str) -> str:
    if found := record.reached(opponent, setup.strength.goal):
        return f"{record.hours(found.generation):.2f} (gen {found.generation}, {found.score:.0%})"
    scores = [match.score for match in record.measurements if match.opponent == opponent]
    return f"{NONE} (best {max(scores):.0%})" if scores else NONE


def _costs_cells(costs: Sequence[float | None]) -> list[str]:
    cpu, games, evaluations = costs
    return [_shown(cpu and cpu / SECONDS_PER_HOUR, ".2f"), _shown(games, ",.0f"), _shown(evaluations, ",.0f")]


def _shown(value: float | None, form: str, missing: str = NONE) -> str:
    return missing if value is None else format(value, form)
