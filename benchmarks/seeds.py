"""`python -m benchmarks.seeds`: how repeatable a preset is. Trains it from nothing with several seeds; docs/seeds.md.

Each seed is a lineage in a clone of the project. A generation is made without Prefect, by `zero prepare`, `dvc repro`
and `zero advance`. Every few generations the champion plays GNU Go. Seeds run one after the other, so each has the
complete machine. The command can be killed at any moment; the same command continues it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
import yaml
from pydantic import ValidationError
from rich.console import Console

from benchmarks import seed_records as files
from benchmarks.results import PROJECT_DIR, describe_machine
from benchmarks.seed_records import LOGS_DIR, PROJECT_CLONE, Failure, Measurement, Setup, Strength, lineage_of
from benchmarks.seed_report import generation_line, measurement_line, seeds_table, write_report
from benchmarks.setting import WIDE, changed
from zero.config.auto import check_profile
from zero.config.params import PARAMS_FILE, Params, parse_params, preset_text, presets
from zero.config.settings import STATE_FOLDER
from zero.errors import LineageError, OpponentError, ParamsError, ZeroError
from zero.evaluation.match import MatchTable
from zero.lineage.workspace import uncommitted_files, writer_lock
from zero.network.profile import resolve_here, this_machine
from zero.players.gtp_process import program_path
from zero.players.spec import SEARCH_OPTIONS, parse_player
from zero.processes import supervised
from zero.progress import progress_of
from zero.record.ledger import generation_tag, lineages
from zero.storage.files import locked, write_atomic
from zero.storage.layout import workspace_dir
from zero.storage.vcs import environment, git

BEAT_SECONDS = 5.0
"""Seconds between two heartbeats of an attempt: the time that a kill can take from the clock."""
WAIT_SECONDS = 60.0
"""Timeout for processes of a killed call, which end on their own."""
NUM_LOG_LINES = 20
MATCH_SEEDS = {"probe": "1", "confirmation": "2", "final": "2"}
"""A confirmation is new evidence: its first games are not those of the probe."""
HIDDEN = "ZERO_STORE ZERO_SIGNING_KEY ZERO_PROGRESS ZERO_WORKER ZERO_WRITER MLFLOW_TRACKING_URI PYTHONPATH"
"""Settings of the machine that commands of a seed do not see. A shared store might have its games already."""


class Limits(NamedTuple):
    """When a seed is done."""

    generations: int
    hours: float | None
    """Maximum wall-clock hours of its generations."""
    stops_when_reached: bool
    has_final_match: bool


class CommandFailedError(ZeroError):
    """A command of a seed ended with a status other than 0."""

    def __init__(self, command: str, status: int, log: Sequence[str]) -> None:
        super().__init__(f"`{command}` ended with status {status}: {log[-1] if log else '(no output)'}")
        self.command, self.status, self.log = command, status, tuple(log)


class SeedRun:
    """One seed: its lineage, and its record on disk, which is replaced after each step."""

    def __init__(self, folder: Path, setup: Setup, seed: int, say: Callable[[str], None]) -> None:
        """Reads the record of the seed; runs nothing yet."""
        self._folder, self._setup, self._say = folder, setup, say
        self._home, self._lineage = folder / PROJECT_CLONE, lineage_of(seed)
        self._workspace = workspace_dir(self._home, self._lineage)
        self.record = files.read_record(folder, seed)

    def run(self, limits: Limits) -> None:
        """Makes generations and measures them until a limit; a failed command ends the seed and is recorded."""
        self._keep(status="running")
        try:
            self._make_lineage()
            while True:
                # The limit of hours does not count an unfinished generation, which is completed first.
                newest, hours = self.record.newest, self.record.hours(self.record.newest)
                is_last = newest >= limits.generations or (limits.hours is not None and hours >= limits.hours)
                if newest and (is_last or newest % self._setup.strength.probe_every == 0):
                    self._measure_strength()
                if is_last or (limits.stops_when_reached and self._next_opponent() is None):
                    break
                self._make_generation()
            if limits.has_final_match:
                self._match("final", self._setup.strength.opponents[-1])
            self._keep(status="done")
        except (ZeroError, ValidationError) as error:
            if not isinstance(error, CommandFailedError):
                error = CommandFailedError("benchmarks.seeds", 1, (str(error),))
            number = self.record.newest + bool(self.record.attempts)
            failure = Failure(generation=number, command=error.command, status=error.status, log=error.log)
            self._keep(status="failed", failures=(*self.record.failures, failure))
            self._say(f"seed {self.record.seed}: failed: {error}")

    def _make_lineage(self) -> None:
        if self._lineage in lineages(self._home):
            return
        if files.newest_tagged(self._home, self._lineage) >= 0:  # killed before the pushed workspace had its name
            self._run(self._home, "zero", "restore", self._lineage)
            return
        params = self._setup.params.model_copy(update={"seed": self.record.seed})
        path = self._folder / LOGS_DIR / f"{self._lineage}.{PARAMS_FILE}"
        write_atomic(path, yaml.safe_dump(params.model_dump(mode="json"), sort_keys=False).encode())
        self._run(self._home, "zero", "new", self._lineage, "--params", str(path.resolve()))

    def _make_generation(self) -> None:
        """Makes the next generation, or completes it."""
        number = self.record.newest + 1
        earlier, began = self.record.attempts, time.monotonic()

        def beat() -> None:
            self._keep(attempts=(*earlier, round(time.monotonic() - began, 3)))

        beat()
        try:
            if files.newest_tagged(self._home, self._lineage) < number:
                wait_until_free(self._workspace)
                self._run(self._home, "zero", "prepare", self._lineage, beat=beat)
            if files.newest_tagged(self._home, self._lineage) < number:  # `prepare` completes a committed generation
                self._run(self._workspace, "dvc", "repro", beat=beat)
                self._run(self._home, "zero", "advance", self._lineage, "--generation", str(number), beat=beat)
        finally:
            beat()
        made = files.read_generation(self._home, self._lineage, number, self.record.attempts)
        self._keep(generations=(*self.record.generations, made), attempts=())
        self._say(generation_line(self.record, made))

    def _measure_strength(self) -> None:
        """Probes the weakest opponent that is not reached; after a good probe and confirmation also the next one."""
        goal = self._setup.strength.goal
        while (opponent := self._next_opponent()) is not None:
            if self._was_met(opponent):
                self._say(f"seed {self.record.seed}: no probe, because this champion was probed before")
                return
            if self._match("probe", opponent).score < goal or self._match("confirmation", opponent).score < goal:
                return

    def _next_opponent(self) -> str | None:
        strength = self._setup.strength
        return next((each for each in strength.opponents if not self.record.reached(each, strength.goal)), None)

    def _was_met(self, opponent: str) -> bool:
        """True if an earlier generation with the same champion was probed: another try would only add chance."""
        newest = self.record.generations[-1]
        same = {each.number for each in self.record.generations[:-1] if each.champion == newest.champion}
        probed = {m.generation for m in self.record.measurements if m.kind == "probe" and m.opponent == opponent}
        return bool(same & probed)

    def _match(self, kind: Literal["probe", "confirmation", "final"], opponent: str) -> Measurement:
        """Result of a match of the newest champion, which is played unless it is finished."""
        generation, strength = self.record.newest, self._setup.strength
        for done in self.record.measurements:
            if (done.kind, done.generation, done.opponent) == (kind, generation, opponent):
                return done
        games = strength.probe_games if kind == "probe" else strength.confirmation_games
        champion = champion_spec(strength, generation_tag(self._lineage, generation))
        arguments = ["match", champion, opponent, "--games", str(games), "--seed", MATCH_SEEDS[kind], "--json"]
        table = MatchTable.model_validate_json(self._run(self._home, "zero", *arguments, is_captured=True))
        found = Measurement(kind=kind, generation=generation, opponent=opponent, table=table)
        self._keep(measurements=(*self.record.measurements, found))
        self._say(measurement_line(self.record, found))
        return found

    def _keep(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        files.write_record(self._folder, self.record)

    def _run(
        self,
        folder: Path,
        module: str,
        *arguments: str,
        beat: Callable[[], None] | None = None,
        is_captured: bool = False,
    ) -> str:
        log = self._folder / LOGS_DIR / f"{self._lineage}.log"
        variables = {name: value for name, value in environment().items() if name not in HIDDEN.split()}
        variables |= {"ZERO_HOME": str(self._home), "PYTHONUNBUFFERED": "1"}
        return run_module(folder, module, arguments, variables, log, beat, is_captured)


def run_module(
    folder: Path,
    module: str,
    arguments: Sequence[str],
    variables: dict[str, str],
    log: Path,
    beat: Callable[[], None] | None = None,
    is_captured: bool = False,
) -> str:
    """Runs `python -m MODULE ARGUMENTS` in `folder`; it ends when this process does, even by `kill -9`.

    Args:
      folder: current folder of the command, whose code it runs.
      module: module to run.
      arguments: of the module.
      variables: environment.
      log: file to which the output is appended, as it comes.
      beat: called every few seconds.
      is_captured: return the standard output, and append it to the log at the end; otherwise return nothing.

    Raises:
      CommandFailedError: it failed; with the end of its output.
    """
    shown = f"{module} {' '.join(arguments)}"
    log.parent.mkdir(parents=True, exist_ok=True)
    connection, ours = os.pipe()
    command = supervised(connection, [sys.executable, "-m", module, *arguments])
    with os.fdopen(ours, "wb") as end, log.open("ab") as file:  # the death of this process closes `end` too
        file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {shown}\n".encode())
        file.flush()
        begin, stdout = file.tell(), subprocess.PIPE if is_captured else file
        with os.fdopen(connection, "rb"):
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=file,
                pass_fds=(connection,),
            )
        try:
            while True:
                try:
                    output = process.communicate(timeout=BEAT_SECONDS)[0] or b""
                    break
                except subprocess.TimeoutExpired:
                    if beat:
                        beat()
        finally:
            end.close()
            process.wait()
        file.write(output)
    if process.returncode:
        tail = log.read_bytes()[begin:].decode(errors="replace").splitlines()
        raise CommandFailedError(shown, process.returncode, [line for line in tail if line.strip()][-NUM_LOG_LINES:])
    return output.decode()


def wait_until_free(workspace: Path) -> None:
    """Waits for processes of a killed call that still write the workspace.

    Raises:
      LineageError: they do not end.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with writer_lock(workspace):
                return
        except LineageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def make_clone(folder: Path, commit: str) -> None:
    """Clones the project at a commit into the folder, unless that was done; complete or not at all."""
    if (folder / PROJECT_CLONE).exists():
        return
    with tempfile.TemporaryDirectory(prefix=".project-", dir=folder) as scratch:
        building = Path(scratch) / PROJECT_CLONE
        git(folder, "clone", "--quiet", "--no-tags", "--single-branch", str(PROJECT_DIR), str(building))
        git(building, "checkout", "--quiet", "-B", "main", commit)
        building.rename(folder / PROJECT_CLONE)


def champion_spec(strength: Strength, name: str) -> str:
    """Player spec of the champion in matches."""
    return f"{name},simulations={strength.simulations}" + (f",{strength.options}" if strength.options else "")


def check_players(params: Params, strength: Strength) -> None:
    """Checks the players of the matches before any generation is made.

    Raises:
      ZeroError: a spec is not valid, the search does not read an option, or GNU Go is missing.
    """
    champion = parse_player(champion_spec(strength, "champion"))
    root = champion.options.get("root", params.search.root)
    for name in champion.options:
        if SEARCH_OPTIONS.get(name) not in (None, root):
            raise ParamsError(
                f"--options {strength.options}: a {root} root does not read {name}; leave it out, for example "
                "--options pass_wins=true"
            )
    for opponent in strength.opponents:
        if parse_player(opponent).kind == "gnugo" and program_path("gnugo") is None:
            raise OpponentError(
                f"{opponent}: GNU Go is not installed; install it (Debian, Ubuntu: `apt install gnugo`)"
            )


def numbers_of(text: str) -> tuple[int, ...]:
    """Different whole numbers from a list separated by commas.

    Raises:
      ParamsError: the text has another format.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ParamsError(f"--seeds {text!r}: give whole numbers separated by commas, such as 11,12,13")
    return tuple(dict.fromkeys(int(part) for part in parts))


def run_seeds(folder: Path, wanted: Setup, seeds: Sequence[int], limits: Limits) -> None:
    """Runs all seeds, or continues them.

    Raises:
      ZeroError: the experiment of the folder has another setup, or another process runs it.
    """
    with locked(folder, f"another process runs the experiment in {folder}; wait for it, or give another --folder"):
        setup = files.keep_setup(folder, wanted)
        if setup.commit != wanted.commit:
            typer.echo(f"note: this experiment runs commit {setup.commit[:12]}, not {wanted.commit[:12]}", err=True)
        make_clone(folder, setup.commit)
        typer.echo(f"output of the commands: {folder / LOGS_DIR}", err=True)
        with progress_of("seeds", "generations") as progress:

            def report() -> None:
                records = [files.read_record(folder, seed) for seed in seeds]
                running = [each.newest for each in records if each.status == "running"]
                done = sum(each.newest for each in records)
                progress(done, done + sum(max(limits.generations - newest, 0) for newest in running))

            def say(line: str) -> None:
                typer.echo(line)
                report()

            report()
            for seed in seeds:
                SeedRun(folder, setup, seed, say).run(limits)
                write_report(folder, setup, files.read_records(folder))


def new_setup(preset: str, change: str, strength: Strength) -> Setup:
    """The setup of a new experiment with the current commit.

    Raises:
      ZeroError: a parameter or a player is not valid, or this machine cannot train the preset.
    """
    text = preset_text(preset)
    recipe = parse_params(resolve_here(text), preset)
    params = (changed(recipe, change) if change else recipe).model_copy(update={"seed": 0})
    check_profile(params.profile, this_machine(text), preset)
    check_players(params, strength)
    if uncommitted := uncommitted_files(PROJECT_DIR):
        typer.echo(f"warning: seeds run committed code; not committed: {', '.join(uncommitted)}", err=True)
    commit, name = git(PROJECT_DIR, "rev-parse", "HEAD").strip(), f"{preset} {change}".strip()
    return Setup(name=name, commit=commit, params=params, strength=strength, machine=describe_machine())


def main(
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "11,12,13",
    preset: Annotated[str, typer.Option(help=f"Preset of all seeds: {', '.join(presets())}.")] = "go9-laptop",
    change: Annotated[str, typer.Option("--set", help="Changed parameters: section.name=value,...")] = "",
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
    goal: Annotated[float, typer.Option(min=0.0, max=1.0, help="Score at which an opponent is reached.")] = 0.55,
    no_stop: Annotated[bool, typer.Option("--no-stop", help="Do not stop when all opponents are reached.")] = False,
    final_match: Annotated[bool, typer.Option("--final-match", help="As --no-stop, and one match at the end.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; report the results so far.")] = False,
) -> None:
    """Trains a preset from nothing with several seeds, and reports how long each takes to the levels of GNU Go.

    An opponent is reached when the champion scores --goal both in a probe and in a confirmation, which is a match with
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
        goal=goal,
    )
    try:
        if not report:
            limits = Limits(generations, hours, not (no_stop or final_match), final_match)
            run_seeds(where, new_setup(preset, change, strength), numbers_of(seeds), limits)
        setup, records = files.read_setup(where), files.read_records(where)
        write_report(where, setup, records)
    except (ZeroError, OSError) as error:
        typer.echo(f"seeds: {error}", err=True)
        raise typer.Exit(1) from None
    Console(width=None if sys.stdout.isatty() else WIDE).print(seeds_table(setup, records))
    raise typer.Exit(any(record.status == "failed" for record in records))


if __name__ == "__main__":
    typer.run(main)
