"""An experiment with many seeds: its record (`results.json`) and what follows from it, a table and a curve.

`results.json` is replaced after each step. Everything here is computed from it alone.
"""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.table import Table

from zero.config.params import Params
from zero.evaluation.match import MatchTable
from zero.storage.files import write_atomic
from zero.storage.manifests import Manifest

RESULTS_FILE, CURVE_FILE = "results.json", "curve.csv"
SECONDS_PER_HOUR = 3600
COSTS = ("cpu_hours", "games", "evaluations")
GOAL = 0.55
"""Score in a probe and in a confirmation at which an opponent counts as reached."""
NONE = "–"


class Strength(Manifest):
    """The measurement of strength."""

    opponents: tuple[str, ...]
    """Player specs, from the weakest to the strongest, which must be reached in this order."""
    simulations: int
    """Simulations per move of the champion."""
    options: str
    """Further options of the champion's player spec."""
    probe_every: int
    """Generations between two probes."""
    probe_games: int
    confirmation_games: int


class SeedGeneration(Manifest):
    """A recorded generation. Numbers that its commit does not record are None."""

    number: int
    attempts: tuple[float, ...]
    """Wall seconds of each attempt at it; those up to the last heartbeat if the attempt was killed."""
    promoted: bool
    score: float
    """Score of the challenger in gating."""
    champion: str
    """SHA-256 of the weights of the champion after it."""
    policy_loss: float | None
    value_loss: float | None
    constant_value_loss: float | None
    """Loss of the best constant prediction of the outcome; a value head must be below it."""
    health: str
    """Verdict on its training: "healthy", "warning", "dead" or "unknown"."""
    cpu_hours: float | None
    games: int | None
    evaluations: int | None


class Measurement(Manifest):
    """A finished match of a champion."""

    kind: Literal["probe", "confirmation", "final"]
    generation: int
    opponent: str
    table: MatchTable

    @property
    def score(self) -> float:
        """Score of the champion."""
        return self.table.result.score


class Seed(Manifest):
    """The record of a seed."""

    seed: int
    status: Literal["running", "done", "failed"] = "running"
    generations: tuple[SeedGeneration, ...] = ()
    attempts: tuple[float, ...] = ()
    """Wall seconds of the attempts at the generation that is not recorded yet."""
    measurements: tuple[Measurement, ...] = ()
    failures: tuple[str, ...] = ()
    """Commands that ended with a status other than 0, each with the last lines of its output."""

    @property
    def newest(self) -> int:
        """Number of the newest generation; 0 if there is only the random network."""
        return self.generations[-1].number if self.generations else 0

    def hours(self, generation: int | None = None) -> float:
        """Wall hours up to a generation, inclusive; by default all, those of unfinished attempts included."""
        made = [each for each in self.generations if generation is None or each.number <= generation]
        unfinished = sum(self.attempts) if generation is None else 0.0
        return (sum(sum(each.attempts) for each in made) + unfinished) / SECONDS_PER_HOUR

    def costs(self, name: str, generation: int) -> float | None:
        """Sum of one of `COSTS` up to a generation, inclusive; None if a generation has no costs."""
        made = [getattr(each, name) for each in self.generations if each.number <= generation]
        return None if None in made else sum(made)

    def reached(self, opponent: str) -> Measurement | None:
        """The first confirmation that reaches `GOAL`; None if there is none."""
        confirmations = (m for m in self.measurements if m.kind == "confirmation" and m.opponent == opponent)
        return next((each for each in confirmations if each.score >= GOAL), None)

    def score(self, opponent: str, generation: int) -> float | None:
        """Score of a generation's champion in its last match against an opponent; None without one."""
        met = [m.score for m in self.measurements if (m.generation, m.opponent) == (generation, opponent)]
        return met[-1] if met else None

    def problems(self) -> list[str]:
        """What went wrong. A seed that crashed may have been completed by a later call; a failed one was not."""
        problems = {
            "generation 1 rejected": any(made.number == 1 and not made.promoted for made in self.generations),
            "dead training": any(made.health == "dead" for made in self.generations),
            "crashed": bool(self.failures),
            "failed": self.status == "failed",
            "unfinished": self.status == "running",
        }
        return [problem for problem, holds in problems.items() if holds]


class Level(Manifest):
    """When an opponent was reached, over all seeds. A seed that did not reach it is infinitely slow; None: infinite."""

    opponent: str
    num_reached: int
    fastest: float | None
    """Wall hours."""
    median: float | None
    slowest: float | None
    slowest_over_fastest: float | None
    """None unless every seed reached it."""


class SeedExperiment(Manifest):
    """`results.json`. What its seeds share never changes, so that they can be compared."""

    version: Literal[3] = 3
    name: str
    """Preset, and the parameters that differ from it, as they were given."""
    commit: str
    """Commit of the project that makes all generations and plays all matches."""
    machine: dict[str, Any]
    """Machine of the first call."""
    params: Params
    """Parameters of all seeds; their `seed` is replaced."""
    strength: Strength
    seeds: tuple[Seed, ...] = ()
    """By seed, in ascending order."""
    levels: tuple[Level, ...] = ()
    """When each opponent was reached."""
    problems: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Seeds with each kind of problem."""

    def seed(self, seed: int) -> Seed:
        """The record of a seed, an empty one if it has not begun."""
        return next((each for each in self.seeds if each.seed == seed), Seed(seed=seed))

    def with_seed(self, seed: Seed) -> "SeedExperiment":
        """The experiment with another record of a seed, and what follows from it for the summary."""
        others = [each for each in self.seeds if each.seed != seed.seed]
        seeds = tuple(sorted([*others, seed], key=lambda each: each.seed))
        kinds = {problem for each in seeds for problem in each.problems()}
        problems = {kind: tuple(each.seed for each in seeds if kind in each.problems()) for kind in sorted(kinds)}
        levels = tuple(level_of(seeds, opponent) for opponent in self.strength.opponents)
        return self.model_copy(update={"seeds": seeds, "levels": levels, "problems": problems})


def level_of(seeds: Sequence[Seed], opponent: str) -> Level:
    """When an opponent was reached."""
    matches = [(seed, seed.reached(opponent)) for seed in seeds]
    hours = sorted(seed.hours(match.generation) if match else math.inf for seed, match in matches)
    spread = (hours[0], statistics.median(hours), hours[-1])
    fastest, median, slowest = (hour if math.isfinite(hour) else None for hour in spread)
    return Level(
        opponent=opponent,
        num_reached=sum(match is not None for _, match in matches),
        fastest=fastest,
        median=median,
        slowest=slowest,
        slowest_over_fastest=slowest / fastest if slowest and fastest else None,
    )


def write_curve(folder: Path, experiment: SeedExperiment) -> None:
    """Writes the curve into the folder."""
    rows = curve_of(experiment)
    file = io.StringIO()
    if rows:
        table = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    write_atomic(folder / CURVE_FILE, file.getvalue().encode())


def curve_of(experiment: SeedExperiment) -> list[dict[str, Any]]:
    """A row per generation: clock and costs so far, gating, training, scores in matches."""
    return [
        {
            "seed": seed.seed,
            "generation": made.number,
            "hours": round(seed.hours(made.number), 4),
            **{name: seed.costs(name, made.number) for name in COSTS},
            "promoted": int(made.promoted),
            "gate_score": made.score,
            "policy_loss": made.policy_loss,
            "value_loss": made.value_loss,
            "constant_value_loss": made.constant_value_loss,
            "training_health": made.health,
            **{f"score {each}": seed.score(each, made.number) for each in experiment.strength.opponents},
        }
        for seed in experiment.seeds
        for made in seed.generations
    ]


def seeds_table(experiment: SeedExperiment) -> Table:
    """A row per seed, then the distribution of the hours to each level."""
    strength, levels = experiment.strength, experiment.levels
    table = Table(title=f"{experiment.name}, commit {experiment.commit[:12]}, goal {GOAL:.0%}")
    titles = [f"hours to {opponent}" for opponent in strength.opponents]
    for column in ("seed", "generations", "hours", *titles, "CPU hours", "games", "evaluations", "problems"):
        table.add_column(column, justify="left" if column == "problems" else "right")
    for seed in experiment.seeds:
        reached = [_level_cell(seed, opponent) for opponent in strength.opponents]
        costs = [_shown(seed.costs(name, seed.newest), ",.2f" if name == "cpu_hours" else ",.0f") for name in COSTS]
        problems = ", ".join(seed.problems()) or "none"
        table.add_row(str(seed.seed), str(seed.newest), f"{seed.hours():.2f}", *reached, *costs, problems)
    table.add_section()
    for name in ("fastest", "median", "slowest"):
        table.add_row(name, "", "", *(_shown(getattr(each, name), ".2f", "not reached") for each in levels))
    table.add_row("slowest / fastest", "", "", *(_shown(each.slowest_over_fastest, ".2f") for each in levels))
    table.add_row("reached", "", "", *(f"{each.num_reached} of {len(experiment.seeds)}" for each in levels))
    return table


def _level_cell(seed: Seed, opponent: str) -> str:
    if found := seed.reached(opponent):
        return f"{seed.hours(found.generation):.2f} (gen {found.generation}, {found.score:.0%})"
    scores = [match.score for match in seed.measurements if match.opponent == opponent]
    return f"{NONE} (best {max(scores):.0%})" if scores else NONE


def _shown(value: float | None, form: str, missing: str = NONE) -> str:
    return missing if value is None else format(value, form)
