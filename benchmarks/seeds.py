"""`python -m benchmarks.seeds`: how repeatable a preset is. Trains it from nothing with several seeds; docs/seeds.md.

Each seed is a lineage in a clone of the project. A generation is made without Prefect, by `zero prepare`, `dvc repro`
and `zero advance`. Every few generations the champion plays GNU Go. Seeds run one after the other, so each has the
complete machine. The command can be killed at any moment; the same command continues it.

| file of the folder | content |
|---|---|
| `results.json`, `curve.csv` | see `benchmarks.seed_report`; the first is replaced after each step |
| `project/` | the clone of the project that has the lineages, their games and the matches |
| `logs/seed-11.log` | output of all commands that were run for a seed |
"""

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from pydantic import ValidationError
from rich.console import Console

from benchmarks.results import PROJECT_DIR, describe_machine, run_command
from benchmarks.seed_report import (
    GOAL,
    RESULTS_FILE,
    SECONDS_PER_HOUR,
    Measurement,
    SeedExperiment,
    SeedGeneration,
    Strength,
    curve_of,
    seeds_table,
    write_curve,
)
from benchmarks.setting import WIDE, changed, numbers_of
from flows.commands import run_dvc_stage, run_zero
from zero.config.auto import check_profile
from zero.config.params import PARAMS_FILE, params_text, parse_params, preset_text, presets
from zero.config.settings import STATE_FOLDER
from zero.errors import LineageError, ParamsError, StorageError, ZeroError
from zero.evaluation.match import MATCHES_DIR, check_num_games, read_match
from zero.games.rules import rules_of
from zero.lineage.workspace import uncommitted_files, writer_lock
from zero.network.profile import resolve_here, this_machine
from zero.players.build import identify, resolve_player
from zero.players.networks import SHIPPED_PREFIX, ResolvedNetwork
from zero.players.spec import parse_player
from zero.record.ledger import generation_tag, lineages_here
from zero.record.lineages import ProjectRecord
from zero.storage.files import locked, read_manifest, write_atomic, write_manifest
from zero.storage.layout import TRAINING_METRICS, workspace_dir
from zero.storage.vcs import git

LOGS_DIR, PROJECT_CLONE = "logs", "project"
BEAT_SECONDS = 5.0
"""Seconds between two heartbeats of an attempt: the time that a kill can take from the clock."""
WAIT_SECONDS = 60.0
"""Timeout for processes of a killed call, which end on their own."""
LAST_STAGE = "verification"
"""Stage of the graph that needs all others."""
MATCH_SEEDS = {"probe": 1, "confirmation": 2, "final": 2}
"""A confirmation is new evidence: its first games are not those of the probe."""
HIDDEN = "ZERO_HOME ZERO_STORE ZERO_SIGNING_KEY ZERO_PROGRESS ZERO_WORKER ZERO_WRITER MLFLOW_TRACKING_URI PYTHONPATH"
"""Settings of the machine that commands of a seed do not see. A shared store might have its games already."""


class SeedLimits(NamedTuple):
    """When a seed is done."""

    generations: int
    hours: float | None
    """Maximum wall-clock hours of its generations."""
    has_final_match: bool
    """False: the seed also ends when all opponents are reached."""


class SeedRun:
    """One seed: its lineage, and its record on disk, which is replaced after each step."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Reads the record of the seed; runs nothing yet."""
        self._folder, self._home, self._lineage = folder, folder / PROJECT_CLONE, f"seed-{seed}"
        self._workspace = workspace_dir(self._home, self._lineage)
        self.experiment = read_experiment(folder)
        self.record = self.experiment.seed(seed)

    def run(self, limits: SeedLimits) -> None:
        """Makes generations and measures them until a limit; a failed command ends the seed and is recorded."""
        self._keep(status="running")
        try:
            self._make_lineage()
            while True:
                # The limit of hours does not count an unfinished generation, which is completed first.
                newest, hours = self.record.newest, self.record.hours(self.record.newest)
                is_last = newest >= limits.generations or (limits.hours is not None and hours >= limits.hours)
                if newest and (is_last or newest % self.experiment.strength.probe_every == 0):
                    self._measure_strength()
                if is_last or (not limits.has_final_match and self._next_opponent() is None):
                    break
                self._make_generation()
            if limits.has_final_match:
                self._match("final", self.experiment.strength.opponents[-1])
            self._keep(status="done")
        except (ZeroError, ValidationError) as error:
            number = self.record.newest + bool(self.record.attempts)
            failures = (*self.record.failures, f"generation {number}: {error}")
            self._keep(status="failed", failures=failures)
            self._say(f"failed: {error}")

    def _make_lineage(self) -> None:
        if self._lineage in lineages_here(self._home):
            return
        if newest_tagged(self._home, self._lineage) >= 0:  # killed before the pushed workspace had its name
            self._zero("restore", self._lineage)
            return
        params = self.experiment.params.model_copy(update={"seed": self.record.seed})
        path = self._folder / LOGS_DIR / f"{self._lineage}.{PARAMS_FILE}"
        write_atomic(path, params_text(params).encode())
        self._zero("new", self._lineage, "--params", str(path))

    def _make_generation(self) -> None:
        """Makes the next generation, or completes it."""
        number = self.record.newest + 1
        with self._clock():
            # A call that was killed may have tagged the generation, but not recorded it here.
            if newest_tagged(self._home, self._lineage) < number:
                wait_until_free(self._workspace)
                self._zero("prepare", self._lineage)
            if newest_tagged(self._home, self._lineage) < number:  # `prepare` completes a committed generation
                with self._listening() as listen:
                    run_dvc_stage(
                        self._workspace, LAST_STAGE, listen, lambda stage, done, total: None, with_earlier=True
                    )
                self._zero("advance", self._lineage, "--generation", str(number))
        made = read_generation(self._home, self._lineage, number, self.record.attempts)
        self._keep(generations=(*self.record.generations, made), attempts=())
        newest = [row for row in curve_of(self.experiment) if row["seed"] == self.record.seed][-1]
        self._say(", ".join(f"{name} {value}" for name, value in newest.items() if value is not None))

    def _measure_strength(self) -> None:
        """Probes the weakest opponent that is not reached; after a good probe and confirmation also the next one."""
        while (opponent := self._next_opponent()) is not None:
            if self._was_met(opponent):
                self._say("no probe, because this champion was probed before")
                return
            if self._match("probe", opponent).score < GOAL or self._match("confirmation", opponent).score < GOAL:
                return

    def _next_opponent(self) -> str | None:
        return next((each for each in self.experiment.strength.opponents if not self.record.reached(each)), None)

    def _was_met(self, opponent: str) -> bool:
        """True if an earlier generation with the same champion was probed: another try would only add chance."""
        newest = self.record.generations[-1]
        same = {each.number for each in self.record.generations[:-1] if each.champion == newest.champion}
        probed = {m.generation for m in self.record.measurements if m.kind == "probe" and m.opponent == opponent}
        return bool(same & probed)

    def _match(self, kind: Literal["probe", "confirmation", "final"], opponent: str) -> Measurement:
        """Result of a match of the newest champion, which is played unless it is finished."""
        generation, strength = self.record.newest, self.experiment.strength
        for done in self.record.measurements:
            if (done.kind, done.generation, done.opponent) == (kind, generation, opponent):
                return done
        games = strength.probe_games if kind == "probe" else strength.confirmation_games
        champion = champion_spec(strength, generation_tag(self._lineage, generation))
        number = strength.opponents.index(opponent)
        out = self._home / STATE_FOLDER / MATCHES_DIR / f"{self._lineage}-{generation:04d}-{kind}-{number}"
        options = {"--games": games, "--seed": MATCH_SEEDS[kind], "--out": out}
        words = [str(word) for option in options.items() for word in option]
        self._zero("match", champion, opponent, *words)
        found = Measurement(kind=kind, generation=generation, opponent=opponent, table=read_match(out).table)
        self._keep(measurements=(*self.record.measurements, found))
        self._say(f"generation {generation}: {kind} against {opponent}: {found.score:.1%} of {games} games")
        return found

    def _keep(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        self.experiment = self.experiment.with_seed(self.record)
        write_manifest(self._folder, self.experiment, RESULTS_FILE)

    def _say(self, line: str) -> None:
        typer.echo(f"seed {self.record.seed}: {line}")

    def _zero(self, *words: str) -> None:
        with self._listening() as listen:
            run_zero(self._home, *words, listen=listen, env={"ZERO_HOME": str(self._home)})

    @contextlib.contextmanager
    def _listening(self) -> Iterator[Callable[[str], None]]:
        """A function that appends a line to the log."""
        path = self._folder / LOGS_DIR / f"{self._lineage}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", buffering=1) as log:
            yield lambda line: print(time.strftime("%H:%M:%S"), line, file=log)

    @contextlib.contextmanager
    def _clock(self) -> Iterator[None]:
        """Records the time of an attempt at the next generation, every few seconds and at its end."""
        earlier, begun, ended = self.record.attempts, time.monotonic(), threading.Event()

        def beat() -> None:
            self._keep(attempts=(*earlier, round(time.monotonic() - begun, 3)))
            while not ended.wait(BEAT_SECONDS):
                self._keep(attempts=(*earlier, round(time.monotonic() - begun, 3)))

        beats = threading.Thread(target=beat)
        beats.start()
        try:
            yield
        finally:
            ended.set()
            beats.join()
            self._keep(attempts=(*earlier, round(time.monotonic() - begun, 3)))


def wait_until_free(workspace: Path) -> None:
    """Waits for processes of a killed call that still write the workspace; `zero prepare` reports those that remain."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(LineageError), writer_lock(workspace):
            return
        time.sleep(0.1)


def newest_tagged(home: Path, lineage: str) -> int:
    """Number of the newest generation whose tag is in the project; -1 if the lineage has none.

    `zero advance` pushes a tag together with the note of costs, so a tagged generation is completely recorded.
    """
    tags = git(home, "tag", "--list", f"{lineage}/gen-*").split()
    return max((int(tag.rpartition("-")[2]) for tag in tags), default=-1)


def read_generation(home: Path, lineage: str, number: int, attempts: Sequence[float]) -> SeedGeneration:
    """A recorded generation from git, with the time of its attempts.

    Raises:
      LineageError: the generation does not exist, or has no match.
    """
    with ProjectRecord(home) as record:
        made = record.generation(generation_tag(lineage, number))
        if made.entry is None or made.entry.decision is None:
            raise LineageError(f"{made.tag} has no match; use another --folder")
        costs = made.costs.total() if made.costs else None
        training = json.loads(made.file(TRAINING_METRICS) or b"{}")
        return SeedGeneration(
            number=number,
            attempts=tuple(attempts),
            promoted=made.entry.decision.promoted,
            score=made.entry.decision.match.score,
            champion=made.entry.champion,
            **{name: training.get(name) for name in ("policy_loss", "value_loss", "constant_value_loss")},
            health=made.health.verdict if made.health else "unknown",
            cpu_hours=costs.cpu_seconds / SECONDS_PER_HOUR if costs else None,
            games=costs.games if costs else None,
            evaluations=costs.evaluations if costs else None,
        )


def champion_spec(strength: Strength, name: str) -> str:
    """Player spec of the champion in matches."""
    return f"{name},simulations={strength.simulations}" + (f",{strength.options}" if strength.options else "")


def new_experiment(preset: str, changes: str, strength: Strength) -> SeedExperiment:
    """A new experiment with the current commit, in which no seed has begun.

    Raises:
      ZeroError: a parameter or a player is not valid, GNU Go is missing, or this machine cannot train the preset.
    """
    text = preset_text(preset)
    params = changed(parse_params(resolve_here(text), preset), changes).model_copy(update={"seed": 0})
    check_profile(params.profile, this_machine(text), preset)
    for games in (strength.probe_games, strength.confirmation_games):
        check_num_games(games)
    network = ResolvedNetwork("champion", b"", params_text(params).encode())
    resolve_player(PROJECT_DIR, parse_player(champion_spec(strength, network.name)), network=network)
    for opponent in strength.opponents:
        spec = parse_player(opponent)
        if spec.has_network and not (spec.argument.startswith(SHIPPED_PREFIX) or Path(spec.argument).is_absolute()):
            raise ParamsError(
                f"--opponents {opponent}: the matches are played in a clone without your lineages; give a shipped "
                "player, such as shipped:go9, or the full path of a weight file"
            )
        identify(resolve_player(PROJECT_DIR, spec), rules_of(params.game))
    if uncommitted := uncommitted_files(PROJECT_DIR):
        typer.echo(f"warning: seeds run committed code; not committed: {', '.join(uncommitted)}", err=True)
    return SeedExperiment(
        name=f"{preset} {changes}".strip(),
        commit=git(PROJECT_DIR, "rev-parse", "HEAD").strip(),
        machine=describe_machine(),
        params=params,
        strength=strength,
    )


def read_experiment(folder: Path) -> SeedExperiment:
    """The experiment of a folder.

    Raises:
      StorageError: the folder does not have one, or one of another version.
    """
    if not (folder / RESULTS_FILE).exists():
        raise StorageError(f"{folder} has no {RESULTS_FILE}; give the --folder of an experiment")
    try:
        return read_manifest(folder, SeedExperiment, RESULTS_FILE)
    except StorageError as error:
        raise StorageError(f"{error}; give another --folder") from None


def open_experiment(folder: Path, wanted: SeedExperiment) -> None:
    """Writes a new experiment and clones the project at its commit, or checks that the folder has the same experiment.

    Raises:
      ParamsError: the folder contains an experiment with other parameters or another measurement of strength.
    """
    if not (folder / RESULTS_FILE).exists():
        write_manifest(folder, wanted, RESULTS_FILE)
    kept = read_experiment(folder)
    for old, new in ((kept.params, wanted.params), (kept.strength, wanted.strength)):
        for name, value in new:
            if getattr(old, name) != value:
                raise ParamsError(
                    f"{name} = {value!r}, but the experiment in {folder} has {getattr(old, name)!r}; "
                    "give that value, or another --folder"
                )
    if kept.commit != wanted.commit:
        typer.echo(f"note: this experiment runs commit {kept.commit[:12]}, not {wanted.commit[:12]}", err=True)
    if not (folder / PROJECT_CLONE).exists():
        with tempfile.TemporaryDirectory(prefix=".project-", dir=folder) as scratch:  # complete or not at all
            building = Path(scratch) / PROJECT_CLONE
            git(folder, "clone", "--quiet", "--no-tags", "--single-branch", str(PROJECT_DIR), str(building))
            git(building, "checkout", "--quiet", "-B", "main", kept.commit)
            building.rename(folder / PROJECT_CLONE)


def main(
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "11,12,13",
    preset: Annotated[str, typer.Option(help=f"Preset of all seeds: {', '.join(presets())}.")] = "go9-laptop",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Changed parameters: section.name=value,...; can be repeated.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Folder; by default .zero/seeds/PRESET.")] = None,
    generations: Annotated[int, typer.Option(min=1, help="Maximum number of generations per seed.")] = 24,
    hours: Annotated[float | None, typer.Option(min=0.0, help="Maximum hours per seed; see docs/seeds.md.")] = None,
    opponents: Annotated[str, typer.Option(help="Player specs to reach, weakest first.")] = "gnugo:1,gnugo:10",
    simulations: Annotated[int, typer.Option(min=0, help="Simulations per move of the champion.")] = 800,
    options: Annotated[
        str, typer.Option(help="More options of the champion.")
    ] = "considered_actions=16,pass_wins=true",
    probe_every: Annotated[int, typer.Option(min=1, help="Generations between two probes of strength.")] = 3,
    probe_games: Annotated[int, typer.Option(min=2, help="Games of a probe.")] = 100,
    confirmation_games: Annotated[int, typer.Option(min=2, help="Games of a confirmation or final match.")] = 400,
    final_match: Annotated[
        bool, typer.Option("--final-match", help="Make all generations, and play a match at the end.")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; report the results so far.")] = False,
) -> None:
    """Trains a preset from a random network with several seeds, and reports when each beats GNU Go.

    An opponent is reached when the champion scores 55 % both in a probe and in a confirmation, which is a match with
    another seed. Only the weakest opponent that is not reached is probed. The clock of a seed has the wall time of its
    generations; matches do not count.

    The command can be killed at any moment and repeated; it also repeats failed commands. With larger limits or more
    seeds it continues the same folder. Exit status 1: at least one seed failed.
    """
    where = (folder or PROJECT_DIR / STATE_FOLDER / "seeds" / preset).resolve()
    strength = Strength(
        opponents=tuple(opponents.split(",")),
        simulations=simulations,
        options=options,
        probe_every=probe_every,
        probe_games=probe_games,
        confirmation_games=confirmation_games,
    )
    if not report:
        wanted, limits = numbers_of("--seeds", seeds), SeedLimits(generations, hours, final_match)
        experiment = new_experiment(preset, ",".join(change or []), strength)
        busy = f"another process runs the experiment in {where}; wait for it, or give another --folder"
        for name in HIDDEN.split():
            os.environ.pop(name, None)
        with locked(where, busy):
            open_experiment(where, experiment)
            typer.echo(f"output of the commands: {where / LOGS_DIR}", err=True)
            for seed in wanted:
                SeedRun(where, seed).run(limits)
                write_curve(where, read_experiment(where))
    experiment = read_experiment(where)
    write_curve(where, experiment)
    Console(width=None if sys.stdout.isatty() else WIDE).print(seeds_table(experiment))
    raise typer.Exit(any(seed.status == "failed" for seed in experiment.seeds))


if __name__ == "__main__":
    run_command(main, "seeds")
