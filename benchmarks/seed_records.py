"""Files of an experiment with many seeds: its setup and the record of each seed.

| file of the folder | content |
|---|---|
| `setup.json` | shared by all seeds: commit, parameters, measurement of strength; written once |
| `records/seed-11.json` | generations, measurements and failures of a seed; replaced after each of them |
| `project/` | the clone of the project that has the lineages, their games and the matches |
| `logs/seed-11.log` | output of all commands that were run for a seed |
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from benchmarks.results import Machine
from zero.config.params import Params
from zero.errors import LineageError, ParamsError, StorageError
from zero.evaluation.match import MatchTable
from zero.record.costs import StageCosts, read_note
from zero.record.ledger import entry_of, generation_tag, parse_ledger
from zero.storage.files import read_manifest, write_manifest
from zero.storage.layout import LEDGER_FILE, TRAINING_METRICS
from zero.storage.manifests import Manifest, PromotionDecision
from zero.storage.vcs import git

SETUP_FILE, RECORDS_DIR, LOGS_DIR, PROJECT_CLONE = "setup.json", "records", "logs", "project"
SECONDS_PER_HOUR = 3600


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

    version: Literal[2] = 2
    name: str
    """Preset, and the parameters that differ from it, as they were given."""
    commit: str
    """Commit of the project that makes all generations and plays all matches."""
    params: Params
    """Parameters of all seeds; their `seed` is replaced."""
    strength: Strength
    machine: Machine
    """Machine of the first run."""


class Health(Manifest, extra="ignore"):
    """Section `health` of `metrics/training.json`."""

    verdict: str = "unknown"
    """"healthy", "warning", "dead" or "unknown"."""
    findings: tuple[str, ...] = ()


class Training(Manifest, extra="ignore"):
    """Part of `metrics/training.json`; None if the commit of the experiment does not write it."""

    policy_loss: float | None = None
    value_loss: float | None = None
    constant_value_loss: float | None = None
    """Loss of the best constant prediction of the outcome; a value head must be below it."""
    health: Health = Health()


class Generation(Manifest):
    """A recorded generation."""

    number: int
    attempts: tuple[float, ...]
    """Wall seconds of each attempt at it; those up to the last heartbeat if the attempt was killed."""
    promoted: bool
    score: float
    """Score of the challenger in gating."""
    champion: str
    """SHA-256 of the weights of the champion after it."""
    training: Training
    costs: StageCosts | None
    """Sum over all stages; None if its costs were not noted."""


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


class Failure(Manifest):
    """A command of a seed that ended with a status other than 0."""

    generation: int
    command: str
    status: int
    log: tuple[str, ...]
    """Last lines of its output."""


class SeedRecord(Manifest):
    """The record of a seed."""

    version: Literal[2] = 2
    seed: int
    status: Literal["running", "done", "failed"] = "running"
    generations: tuple[Generation, ...] = ()
    attempts: tuple[float, ...] = ()
    """Wall seconds of the attempts at the generation that is not recorded yet."""
    measurements: tuple[Measurement, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def newest(self) -> int:
        """Number of the newest generation; 0 if there is only the random network."""
        return self.generations[-1].number if self.generations else 0

    def hours(self, generation: int | None = None) -> float:
        """Wall hours up to a generation, inclusive; by default all, those of unfinished attempts included."""
        made = [each for each in self.generations if generation is None or each.number <= generation]
        unfinished = sum(self.attempts) if generation is None else 0.0
        return (sum(sum(each.attempts) for each in made) + unfinished) / SECONDS_PER_HOUR

    def costs(self, name: str, generation: int | None = None) -> float | None:
        """Sum of one of the costs up to a generation, inclusive; None if a generation has no costs."""
        made = [each.costs for each in self.generations if generation is None or each.number <= generation]
        known = [float(getattr(each, name)) for each in made if each is not None]
        return sum(known) if len(known) == len(made) else None

    def reached(self, opponent: str, goal: float) -> Measurement | None:
        """The first confirmation that reaches the goal; None if there is none."""
        confirmations = (m for m in self.measurements if m.kind == "confirmation" and m.opponent == opponent)
        return next((each for each in confirmations if each.score >= goal), None)


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
    for old, new in ((kept.params, wanted.params), (kept.strength, wanted.strength)):
        for name, value in new:
            if getattr(old, name) != value:
                raise ParamsError(
                    f"{name} = {value!r}, but the experiment in {folder} has {getattr(old, name)!r}; "
                    "give that value, or another --folder"
                )
    return kept


def read_records(folder: Path) -> list[SeedRecord]:
    """Records of all seeds, by seed."""
    files = (folder / RECORDS_DIR).glob("seed-*.json")
    return sorted((read_manifest(file.parent, SeedRecord, file.name) for file in files), key=lambda record: record.seed)


def read_record(folder: Path, seed: int) -> SeedRecord:
    """Record of a seed, an empty one if there is none."""
    return next((each for each in read_records(folder) if each.seed == seed), SeedRecord(seed=seed))


def write_record(folder: Path, record: SeedRecord) -> None:
    """Replaces the record of a seed; the file is complete at every moment."""
    write_manifest(folder / RECORDS_DIR, record, f"{lineage_of(record.seed)}.json")


def newest_tagged(home: Path, lineage: str) -> int:
    """Number of the newest generation whose tag is in the project; -1 if the lineage has none.

    `zero advance` pushes a tag together with the note of costs, so a tagged generation is completely recorded.
    """
    tags = git(home, "tag", "--list", f"{lineage}/gen-*").split()
    return max((int(tag.rpartition("-")[2]) for tag in tags), default=-1)


def read_generation(home: Path, lineage: str, number: int, attempts: Sequence[float]) -> Generation:
    """A recorded generation from git, with the time of its attempts.

    Raises:
      LineageError: the generation or one of its files does not exist.
    """
    tag = generation_tag(lineage, number)
    entry = entry_of(parse_ledger(git(home, "show", f"{tag}:{LEDGER_FILE}"), tag), number)
    if not isinstance(entry.decision, PromotionDecision):
        raise LineageError(f"{tag} has no match: it is a {entry.kind}; use another --folder")
    note = read_note(home, lineage, tag)
    return Generation(
        number=number,
        attempts=tuple(attempts),
        promoted=entry.decision.promoted,
        score=entry.decision.match.score,
        champion=entry.champion,
        training=Training.model_validate_json(git(home, "show", f"{tag}:{TRAINING_METRICS}")),
        costs=note.total() if note else None,
    )
