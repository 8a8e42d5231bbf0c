"""Files of an experiment with many seeds: its setup and the record of each seed.

| file of the folder | content |
|---|---|
| `setup.json` | shared by all seeds: commit, parameters, measurement of strength; written once |
| `records/seed-11.json` | generations, measurements and failures of a seed; replaced after each of them |
| `project/` | the clone of the project that has the lineages, their games and the matches |
| `logs/seed-11.log` | output of all commands that were run for a seed |
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.results import Machine
from zero.config.params import Params
from zero.errors import LineageError, ParamsError, StorageError
from zero.record.costs import read_note
from zero.record.ledger import entry_of, generation_tag, parse_ledger
from zero.storage.files import read_manifest, write_manifest
from zero.storage.layout import LEDGER_FILE, TRAINING_METRICS
from zero.storage.manifests import Manifest, PromotionDecision
from zero.storage.vcs import git

SETUP_FILE = "setup.json"
RECORDS_DIR, LOGS_DIR, PROJECT_CLONE = "records", "logs", "project"
DEAD = "dead"
"""Verdict of `metrics/training.json` on a training that has stopped learning."""
GRADIENT_NORMS = ("policy_gradient_norm", "value_gradient_norm", "trunk_gradient_norm")


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
    goal: float
    """Score of both matches at which an opponent counts as reached."""


class Setup(Manifest):
    """The part that all seeds of a folder share. It never changes, so that seeds can be compared."""

    version: Literal[1] = 1
    name: str
    """Preset or parameters file."""
    changes: str
    """Parameters that differ from it, as they were given."""
    commit: str
    """Commit of the project that makes all generations and plays all matches."""
    params: Params
    """Parameters of all seeds; their `seed` is replaced."""
    strength: Strength
    machine: Machine
    """Machine of the first run."""


class Training(Manifest):
    """Numbers of `metrics/training.json`; None if the version of the program does not write them."""

    policy_loss: float | None
    value_loss: float | None
    constant_value_loss: float | None
    """Loss of the best constant prediction of the outcome; a value head must be below it."""
    saturated_values: float | None
    value_deviation: float | None
    gradient_norms: dict[str, float]
    verdict: str
    """"healthy", "warning", "dead" or "unknown"."""
    findings: tuple[str, ...]


class Generation(Manifest):
    """A recorded generation."""

    number: int
    seconds: float
    """Wall seconds of all attempts at it."""
    attempts: int
    promoted: bool
    score: float
    """Score of the challenger in gating."""
    champion: str
    """SHA-256 of the weights of the champion after it."""
    champion_generation: int
    training: Training
    cpu_seconds: float | None
    """Processor seconds of all stages; None if its costs were not noted."""
    games: int | None
    """Games of self-play, gating and verification."""
    evaluations: int | None


class Attempt(Manifest):
    """One call that worked on a generation."""

    generation: int
    begun: float
    """Seconds since 1970."""
    seconds: float
    """Wall seconds; those up to the last heartbeat if the call was killed."""


class Measurement(Manifest):
    """A finished match of a champion."""

    kind: Literal["probe", "confirmation", "final"]
    generation: int
    opponent: str
    games: int
    wins: int
    losses: int
    draws: int
    score: float
    interval: tuple[float, float]
    """95 % confidence interval of the score (Wilson)."""
    forfeits: tuple[int, int]
    """Games that the champion and the opponent forfeited."""


class Failure(Manifest):
    """A command of a seed that ended with a status other than 0."""

    generation: int
    command: str
    status: int
    begun: float
    """Seconds since 1970."""
    log: tuple[str, ...]
    """Last lines of its output."""


class SeedRecord(Manifest):
    """The record of a seed."""

    version: Literal[1] = 1
    seed: int
    status: Literal["new", "running", "done", "failed"] = "new"
    generations: tuple[Generation, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """Attempts at the generation that is not recorded yet."""
    measurements: tuple[Measurement, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def newest(self) -> int:
        """Number of the newest generation; 0 if there is only the random network."""
        return self.generations[-1].number if self.generations else 0

    def seconds(self, generation: int | None = None) -> float:
        """Wall seconds up to a generation, inclusive; by default all, those of unfinished attempts included."""
        done = sum(each.seconds for each in self.generations if generation is None or each.number <= generation)
        return done + (sum(each.seconds for each in self.attempts) if generation is None else 0.0)

    def measured(self, kind: str, generation: int, opponent: str) -> Measurement | None:
        """A match of this kind; None if it was not played."""
        wanted = (kind, generation, opponent)
        return next((each for each in self.measurements if (each.kind, each.generation, each.opponent) == wanted), None)

    def reached(self, opponent: str, goal: float) -> Measurement | None:
        """The first confirmation that reaches the goal; None if there is none."""
        for each in self.measurements:
            if each.kind == "confirmation" and each.opponent == opponent and each.score >= goal:
                return each
        return None


def lineage_of(seed: int) -> str:
    """Name of a seed's lineage."""
    return f"seed-{seed}"


def read_setup(folder: Path) -> Setup:
    """Setup of an experiment.

    Raises:
      StorageError: the folder does not have one.
    """
    if not (folder / SETUP_FILE).exists():
        raise StorageError(f"{folder} has no {SETUP_FILE}; give the --folder of an experiment")
    return read_manifest(folder, Setup, SETUP_FILE)


def keep_setup(folder: Path, wanted: Setup) -> Setup:
    """Writes the setup of a new experiment, or returns the stored one.

    Raises:
      ParamsError: the folder contains an experiment with another setup.
    """
    if not (folder / SETUP_FILE).exists():
        write_manifest(folder, wanted, SETUP_FILE)
        return wanted
    kept = read_setup(folder)
    for name in ("params", "strength"):
        old, new = getattr(kept, name).model_dump(), getattr(wanted, name).model_dump()
        for key in (key for key in new if old.get(key) != new[key]):
            raise ParamsError(
                f"{name}.{key} = {new[key]!r}, but the experiment in {folder} has {old.get(key)!r}; "
                "give that value, or another --folder"
            )
    return kept


def read_record(folder: Path, seed: int) -> SeedRecord:
    """Record of a seed, an empty one if there is none."""
    name = f"{lineage_of(seed)}.json"
    if not (folder / RECORDS_DIR / name).exists():
        return SeedRecord(seed=seed)
    return read_manifest(folder / RECORDS_DIR, SeedRecord, name)


def read_records(folder: Path) -> list[SeedRecord]:
    """Records of all seeds, by seed."""
    names = (path.stem.removeprefix("seed-") for path in (folder / RECORDS_DIR).glob("seed-*.json"))
    return [read_record(folder, seed) for seed in sorted(int(name) for name in names if name.isdecimal())]


def write_record(folder: Path, record: SeedRecord) -> None:
    """Replaces the record of a seed; the file is complete at every moment."""
    write_manifest(folder / RECORDS_DIR, record, f"{lineage_of(record.seed)}.json")


def newest_tagged(home: Path, lineage: str) -> int:
    """Number of the newest generation whose tag is in the project; -1 if the lineage has none.

    `zero advance` pushes a tag together with the note of costs, so a tagged generation is completely recorded.
    """
    tags = git(home, "tag", "--list", f"{lineage}/gen-*").split()
    return max((int(tag.rpartition("-")[2]) for tag in tags), default=-1)


def read_generation(home: Path, lineage: str, number: int, attempts: Sequence[Attempt]) -> Generation:
    """A recorded generation from git, with the time of its attempts.

    Raises:
      LineageError: the generation or one of its files does not exist.
    """
    tag = generation_tag(lineage, number)
    entry = entry_of(parse_ledger(git(home, "show", f"{tag}:{LEDGER_FILE}"), tag), number)
    decision = entry.decision
    if not isinstance(decision, PromotionDecision):
        raise LineageError(f"{tag} has no match: it is a {entry.kind}; use another --folder")
    note = read_note(home, lineage, tag)
    costs = note.total() if note else None
    return Generation(
        number=number,
        seconds=sum(each.seconds for each in attempts),
        attempts=len(attempts),
        promoted=decision.promoted,
        score=decision.match.score,
        champion=entry.champion,
        champion_generation=entry.champion_generation,
        training=training_of(git(home, "show", f"{tag}:{TRAINING_METRICS}")),
        cpu_seconds=costs.cpu_seconds if costs else None,
        games=costs.games if costs else None,
        evaluations=costs.evaluations if costs else None,
    )


def training_of(text: str) -> Training:
    """Numbers of a `metrics/training.json` of any version of the program."""
    tree: dict[str, Any] = json.loads(text)
    health = tree.get("health") or {}

    def number(name: str) -> float | None:
        value = tree.get(name)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    norms = {name: value for name in GRADIENT_NORMS if (value := number(name)) is not None}
    return Training(
        policy_loss=number("policy_loss"),
        value_loss=number("value_loss"),
        constant_value_loss=number("constant_value_loss"),
        saturated_values=number("saturated_values"),
        value_deviation=number("value_deviation"),
        gradient_norms=norms,
        verdict=str(health.get("verdict", "unknown")),
        findings=tuple(str(finding) for finding in health.get("findings") or ()),
    )
