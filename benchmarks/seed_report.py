"""Report of an experiment with many seeds: lines, a table, `results.json`, `curve.csv`, `strength.png`."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.seed_records import DEAD, Generation, Measurement, SeedRecord, Setup
from zero.storage.files import canonical_json, write_atomic
from zero.storage.manifests import Manifest

RESULTS_FILE, CURVE_FILE, PLOT_FILE = "results.json", "curve.csv", "strength.png"
SECONDS_PER_HOUR = 3600
WIDTH, HEIGHT, DPI = 5.6, 4.2, 120
"""Size of a panel in inches, and dots per inch."""
GRID_POINTS = 200
"""Hours at which the band of the plot is computed."""
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
    first_generation_refused: tuple[int, ...]
    dead_training: tuple[int, ...]
    crashed: tuple[int, ...]
    """Seeds with a command that failed, also if a later call completed them."""
    failed: tuple[int, ...]
    """Seeds that ended with a failed command."""
    unfinished: tuple[int, ...]


class Results(Manifest):
    """`results.json`: the complete results."""

    setup: Setup
    summary: Summary
    seeds: tuple[SeedRecord, ...]


def write_report(folder: Path, setup: Setup, records: Sequence[SeedRecord]) -> bytes:
    """Writes results, curve and plot into the folder; returns the results as JSON."""
    results = canonical_json(Results(setup=setup, summary=summary_of(setup, records), seeds=tuple(records)))
    write_atomic(folder / RESULTS_FILE, results)
    write_atomic(folder / CURVE_FILE, curve_csv(setup, records).encode())
    write_atomic(folder / PLOT_FILE, strength_png(setup, records))
    return results


def summary_of(setup: Setup, records: Sequence[SeedRecord]) -> Summary:
    """Counts over the seeds."""

    def seeds_that(holds: Callable[[SeedRecord], bool]) -> tuple[int, ...]:
        return tuple(record.seed for record in records if holds(record))

    return Summary(
        reached=tuple(_reached(setup, records, opponent) for opponent in setup.strength.opponents),
        first_generation_refused=seeds_that(lambda each: bool(each.generations) and not each.generations[0].promoted),
        dead_training=seeds_that(lambda each: any(one.training.verdict == DEAD for one in each.generations)),
        crashed=seeds_that(lambda each: bool(each.failures)),
        failed=seeds_that(lambda each: each.status == "failed"),
        unfinished=seeds_that(lambda each: each.status in ("new", "running")),
    )


def hours_to(setup: Setup, record: SeedRecord, opponent: str) -> float | None:
    """Hours on the clock of a seed when it reached an opponent; None if it did not."""
    found = record.reached(opponent, setup.strength.goal)
    return record.seconds(found.generation) / SECONDS_PER_HOUR if found else None


def spread_of(values: Sequence[float | None]) -> Spread:
    """Fastest, median and slowest of values among which None is infinite."""
    if not values:
        return Spread(fastest=None, median=None, slowest=None)
    known = sorted(math.inf if value is None else value for value in values)
    fastest, median, slowest = (
        value if math.isfinite(value) else None for value in (known[0], statistics.median(known), known[-1])
    )
    return Spread(fastest=fastest, median=median, slowest=slowest)


def _reached(setup: Setup, records: Sequence[SeedRecord], opponent: str) -> Reached:
    matches = [record.reached(opponent, setup.strength.goal) for record in records]
    hours = spread_of([hours_to(setup, record, opponent) for record in records])
    ratio = hours.slowest / hours.fastest if hours.slowest and hours.fastest else None
    return Reached(
        opponent=opponent,
        num_reached=sum(match is not None for match in matches),
        num_seeds=len(records),
        hours=hours,
        generations=spread_of([match.generation if match else None for match in matches]),
        slowest_over_fastest=ratio,
    )


def generation_line(record: SeedRecord, made: Generation) -> str:
    """A generation in one line."""
    training = made.training
    parts = [
        f"{_where(record, made.number)}: {'promoted' if made.promoted else 'refused'} {made.score:.1%}",
        f"{made.seconds:.0f} s",
    ]
    if training.value_loss is not None:
        constant = training.constant_value_loss
        parts.append(
            f"value loss {training.value_loss:.3f}" + (f" (constant {constant:.3f})" if constant is not None else "")
        )
    if training.verdict != "unknown":
        parts.append(f"training {training.verdict}")
    parts += training.findings
    if made.attempts > 1:
        parts.append(f"{made.attempts} attempts")
    return ", ".join(parts)


def measurement_line(record: SeedRecord, match: Measurement) -> str:
    """A match in one line."""
    low, high = match.interval
    forfeits = f", forfeits {match.forfeits[0]} and {match.forfeits[1]}" if any(match.forfeits) else ""
    return (
        f"{_where(record, match.generation)}: {match.kind} against {match.opponent}: {match.score:.1%} "
        f"of {match.games} games ({low:.1%}-{high:.1%}){forfeits}"
    )


def seeds_table(setup: Setup, records: Sequence[SeedRecord]) -> Table:
    """A row per seed, then the distribution."""
    strength, summary = setup.strength, summary_of(setup, records)
    title = f"{setup.name} {setup.changes}".strip()
    table = Table(title=f"{title}, commit {setup.commit[:12]}, goal {strength.goal:.0%}", show_footer=False)
    for column in ("seed", "generations", "hours", *strength.opponents):
        table.add_column(column if column not in strength.opponents else f"hours to {column}", justify="right")
    for column in ("CPU hours", "games", "evaluations", "failures"):
        table.add_column(column, justify="left" if column == "failures" else "right")
    for record in records:
        table.add_row(
            str(record.seed),
            str(record.newest),
            f"{record.seconds() / SECONDS_PER_HOUR:.2f}",
            *(_strength_cell(setup, record, opponent) for opponent in strength.opponents),
            _shown(_total(record, "cpu_seconds"), lambda seconds: f"{seconds / SECONDS_PER_HOUR:.2f}"),
            _shown(_total(record, "games"), lambda games: f"{games:,.0f}"),
            _shown(_total(record, "evaluations"), lambda evaluations: f"{evaluations:,.0f}"),
            ", ".join(_problems(record)) or "none",
        )
    table.add_section()
    hours = spread_of([record.seconds() / SECONDS_PER_HOUR for record in records])
    costs = [
        spread_of([_total(record, name) for record in records]) for name in ("cpu_seconds", "games", "evaluations")
    ]
    for name in ("fastest", "median", "slowest"):
        cpu, games, evaluations = (getattr(each, name) for each in costs)
        table.add_row(
            name,
            "",
            _shown(getattr(hours, name), lambda value: f"{value:.2f}"),
            *(
                _shown(getattr(each.hours, name), lambda value: f"{value:.2f}", "not reached")
                for each in summary.reached
            ),
            _shown(cpu, lambda seconds: f"{seconds / SECONDS_PER_HOUR:.2f}"),
            *(_shown(value, lambda number: f"{number:,.0f}") for value in (games, evaluations)),
        )
    ratios = (_shown(each.slowest_over_fastest, lambda ratio: f"{ratio:.2f}") for each in summary.reached)
    table.add_row("slowest / fastest", "", "", *ratios)
    table.add_row("reached", "", "", *(f"{each.num_reached} of {each.num_seeds}" for each in summary.reached))
    counts = {
        "generation 1 refused": summary.first_generation_refused,
        "dead training": summary.dead_training,
        "crashed": summary.crashed,
        "unfinished": summary.unfinished,
    }
    table.caption = ", ".join(f"{name}: {len(seeds)}" for name, seeds in counts.items()) + f" of {len(records)} seeds"
    return table


def curve_csv(setup: Setup, records: Sequence[SeedRecord]) -> str:
    """A row per generation: clock and costs so far, gating, training, scores in matches."""
    opponents = setup.strength.opponents
    fixed = "seed generation hours cpu_hours games evaluations promoted gate_score policy_loss value_loss"
    names = [*fixed.split(), "constant_value_loss", "training_health"]
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([*names, *(f"score {opponent}" for opponent in opponents)])
    for record in records:
        for number, made in enumerate(record.generations, 1):
            before = record.model_copy(update={"generations": record.generations[:number], "attempts": ()})
            cpu, training = _total(before, "cpu_seconds"), made.training
            scores = (_score(record, made.number, opponent) for opponent in opponents)
            rows.writerow(
                [
                    record.seed,
                    made.number,
                    f"{before.seconds() / SECONDS_PER_HOUR:.4f}",
                    "" if cpu is None else f"{cpu / SECONDS_PER_HOUR:.4f}",
                    _total(before, "games"),
                    _total(before, "evaluations"),
                    int(made.promoted),
                    made.score,
                    training.policy_loss,
                    training.value_loss,
                    training.constant_value_loss,
                    training.verdict,
                    *scores,
                ]
            )
    return file.getvalue()


def strength_png(setup: Setup, records: Sequence[SeedRecord]) -> bytes:
    """A panel per opponent: the score of each seed over the hours of its clock, and the range over the seeds."""
    opponents = setup.strength.opponents
    figure = Figure((WIDTH * len(opponents), HEIGHT), dpi=DPI, layout="constrained")
    panels = figure.subplots(1, len(opponents), sharey=True, squeeze=False)[0]
    for axes, opponent in zip(panels, opponents, strict=True):
        _draw(axes, setup, records, opponent)
    panels[0].set_ylabel("score of the champion (%)")
    figure.suptitle(f"{setup.name} {setup.changes}".strip(), fontsize=11)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def points_of(record: SeedRecord, opponent: str) -> list[tuple[float, float]]:
    """(hours, score) of each generation that met an opponent, by its longest match."""
    met = sorted({match.generation for match in record.measurements if match.opponent == opponent})
    scores = ((generation, _score(record, generation, opponent)) for generation in met)
    return [(record.seconds(number) / SECONDS_PER_HOUR, score) for number, score in scores if score is not None]


def _draw(axes: Axes, setup: Setup, records: Sequence[SeedRecord], opponent: str) -> None:
    curves = [(record.seed, points) for record in records if (points := points_of(record, opponent))]
    if len(curves) > 1:
        # The band begins where every seed has a score. A curve that has ended keeps its last score.
        begin = max(points[0][0] for _, points in curves)
        end = max(points[-1][0] for _, points in curves)
        if end > begin:
            hours = np.linspace(begin, end, GRID_POINTS)
            scores = np.array(
                [np.interp(hours, [x for x, _ in points], [y for _, y in points]) for _, points in curves]
            )
            axes.fill_between(hours, 100 * scores.min(axis=0), 100 * scores.max(axis=0), color="C7", alpha=0.25, lw=0)
    for seed, points in curves:
        axes.plot([x for x, _ in points], [100 * y for _, y in points], marker="o", markersize=3, lw=1, label=str(seed))
    axes.axhline(100 * setup.strength.goal, color="black", lw=1, ls="--")
    axes.set_title(f"against {opponent}", fontsize=10)
    axes.set_xlabel("hours of generations")
    axes.set_xlim(left=0)
    axes.set_ylim(-2, 102)
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(title="seed", fontsize=7)


def _score(record: SeedRecord, generation: int, opponent: str) -> float | None:
    found = [m for m in record.measurements if (m.generation, m.opponent) == (generation, opponent)]
    return max(found, key=lambda match: match.games).score if found else None


def _where(record: SeedRecord, generation: int) -> str:
    return f"seed {record.seed}, generation {generation}, {record.seconds(generation) / SECONDS_PER_HOUR:.2f} h"


def _strength_cell(setup: Setup, record: SeedRecord, opponent: str) -> str:
    hours = hours_to(setup, record, opponent)
    if (found := record.reached(opponent, setup.strength.goal)) is not None and hours is not None:
        return f"{hours:.2f} (gen {found.generation}, {found.score:.0%})"
    scores = [match.score for match in record.measurements if match.opponent == opponent]
    return f"{NONE} (best {max(scores):.0%})" if scores else NONE


def _problems(record: SeedRecord) -> list[str]:
    """The problems of a seed."""
    problems = []
    if record.generations and not record.generations[0].promoted:
        problems.append("generation 1 refused")
    if dead := [made.number for made in record.generations if made.training.verdict == DEAD]:
        problems.append(f"dead training (from generation {dead[0]})")
    if record.failures:
        newest = record.failures[-1]
        command = " ".join(newest.command.split()[:2])
        problems.append(f"{len(record.failures)} x crashed (`{command}`, generation {newest.generation})")
    if record.status in ("new", "running"):
        problems.append("unfinished")
    return problems


def _total(record: SeedRecord, name: str) -> float | None:
    """Sum over the generations; None if one of them has no costs."""
    values = [getattr(made, name) for made in record.generations]
    return None if None in values else sum(values)


def _shown(value: float | None, form: Callable[[float], str], missing: str = NONE) -> str:
    return missing if value is None else form(value)
