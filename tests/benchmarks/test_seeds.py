"""Repeatability over seeds: when strength is measured, recovery after a kill, and the report."""

import csv
import io
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import seed_records, seeds
from benchmarks.results import PROJECT_DIR
from benchmarks.seed_records import (
    Generation,
    Health,
    SeedRecord,
    Setup,
    Strength,
    Training,
    keep_setup,
    read_record,
    read_records,
    write_record,
)
from benchmarks.seed_report import (
    CURVE_FILE,
    PLOT_FILE,
    RESULTS_FILE,
    Results,
    curve_csv,
    generation_line,
    seeds_table,
    spread_of,
    summary_of,
    write_report,
)
from benchmarks.seeds import CommandFailedError, Limits, SeedRun, check_players, numbers_of, run_module
from tests.benchmarks.runs import MACHINE
from tests.end_to_end.lineages import ALWAYS
from zero.config.params import parse_params, preset_text
from zero.errors import ParamsError
from zero.evaluation.match import MatchTable
from zero.players.player import PlayerId
from zero.record.costs import StageCosts
from zero.storage.manifests import Colours, MatchResult

STRENGTH = Strength(
    opponents=("gnugo:1", "gnugo:10"),
    simulations=800,
    options="pass_wins=true",
    probe_every=2,
    probe_games=10,
    confirmation_games=20,
    goal=0.55,
)
SETUP = Setup(
    name="smoke",
    commit="0" * 40,
    params=parse_params(preset_text("smoke")),
    strength=STRENGTH,
    machine=MACHINE,
)
LIMITS = Limits(generations=6, hours=None, stops_when_reached=True, has_final_match=False)
OLD_METRICS = '{"value_loss": 0.9, "policy_loss": 3.0, "step": 12}'
TIMES = ("attempts", "seconds", "cpu_seconds", "workers")
WAIT_SECONDS = 600.0


class KilledError(BaseException):
    """Simulates a kill that the program cannot catch."""


class FakeProject:
    """Commands that take no time, recorded; each generation of the lineage is stronger."""

    def __init__(self, scores=None, promoted=True):
        self.scores, self.promoted = scores or {}, promoted
        self.tagged, self.calls, self.made = -1, [], set()
        self.dies_at, self.fails_at = None, None

    def run_module(self, folder, module, arguments, variables, log, beat=None, is_captured=False):
        call = " ".join([module, *arguments])
        self.calls.append(call)
        if beat:
            beat()
        if self.fails_at and self.fails_at in call:
            raise CommandFailedError(call, 1, ["a line", "error: no memory"])
        if self.dies_at and self.dies_at in call:
            raise KilledError
        if arguments[0] == "new":
            self.tagged = 0
        if arguments[0] == "advance":
            self.tagged = int(arguments[-1])
        return self._table(arguments) if is_captured else ""

    def _table(self, arguments):
        generation = int(arguments[1].partition(",")[0][-4:])
        games = int(arguments[arguments.index("--games") + 1])
        wins = round(self.scores.get((arguments[2], generation), 0.0) * games)
        nothing = Colours(wins=0, losses=0, draws=0)
        result = MatchResult(
            wins=wins,
            losses=games - wins,
            draws=0,
            as_black=nothing,
            as_white=nothing,
            unique_games=games,
            score=wins / games,
            interval=(0.0, 1.0),
            mean_length=30.0,
        )
        ids = (PlayerId(name="a", kind="network", settings={}), PlayerId(name="b", kind="gtp", settings={}))
        return MatchTable(players=ids, result=result, forfeits=(0, 0), mean_margin=None).model_dump_json()

    def matches(self):
        """(generation, opponent, games) of the played matches."""
        arguments = [call.split() for call in self.calls if call.startswith("zero match")]
        return [(int(w[2].partition(",")[0][-4:]), w[3], int(w[5])) for w in arguments]


def generation(number, seconds=1800.0, promoted=True, verdict="unknown"):
    costs = {"seconds": 1.0, "cpu_seconds": 3600.0, "gpu_seconds": 0.0, "shards_without_receipt": 0, "workers": ("w",)}
    return Generation(
        number=number,
        attempts=(seconds,),
        promoted=promoted,
        score=0.6,
        champion=f"{number if promoted else 0:064x}",
        training=Training(value_loss=0.5, constant_value_loss=0.98, health=Health(verdict=verdict)),
        costs=StageCosts.model_validate({**costs, "games": 100, "evaluations": 1000, "shards": 1}),
    )


@pytest.fixture
def project(monkeypatch):
    fake = FakeProject()

    def read_generation(home, lineage, number, attempts):
        made = generation(number, promoted=fake.promoted)
        return made.model_copy(update={"attempts": (*attempts[:-1], 1800.0)})

    monkeypatch.setattr(seeds, "run_module", fake.run_module)
    monkeypatch.setattr(seed_records, "newest_tagged", lambda home, lineage: fake.tagged)
    monkeypatch.setattr(seeds, "lineages", lambda home: ["seed-1"] if fake.tagged >= 0 else [])
    monkeypatch.setattr(seeds, "wait_until_free", lambda workspace: None)
    monkeypatch.setattr(seed_records, "read_generation", read_generation)
    return fake


def run_seed(folder, limits=LIMITS):
    SeedRun(folder, SETUP, 1, lambda line: None).run(limits)
    return read_record(folder, 1)


def test_a_good_probe_is_confirmed_before_the_next_level_is_probed(project, tmp_path):
    project.scores = {("gnugo:1", 2): 0.3, ("gnugo:1", 4): 0.6, ("gnugo:10", 4): 0.2, ("gnugo:10", 6): 0.6}
    record = run_seed(tmp_path)
    assert project.matches() == [
        (2, "gnugo:1", 10),
        *((4, "gnugo:1", 10), (4, "gnugo:1", 20), (4, "gnugo:10", 10)),
        *((6, "gnugo:10", 10), (6, "gnugo:10", 20)),
    ]
    assert [call.split()[7] for call in project.calls if "match" in call][:3] == ["1", "1", "2"]  # seeds
    assert record.status == "done" and record.newest == 6
    assert record.hours(4) == 4 * 0.5


def test_a_seed_stops_when_all_levels_are_reached(project, tmp_path):
    project.scores = {("gnugo:1", 2): 1.0, ("gnugo:10", 2): 1.0}
    assert run_seed(tmp_path).newest == 2
    assert run_seed(tmp_path, LIMITS._replace(stops_when_reached=False)).newest == 6  # continues


def test_a_seed_stops_after_the_generation_that_exceeds_its_hours(project, tmp_path):
    assert run_seed(tmp_path, LIMITS._replace(hours=1.2)).newest == 3  # half an hour a generation
    assert project.matches() == [(2, "gnugo:1", 10), (3, "gnugo:1", 10)]


def test_a_champion_is_probed_once(project, tmp_path):
    project.promoted = False
    assert run_seed(tmp_path).newest == 6
    assert project.matches() == [(2, "gnugo:1", 10)]


def test_the_final_match_is_against_the_strongest_opponent(project, tmp_path):
    record = run_seed(tmp_path, LIMITS._replace(has_final_match=True))
    assert project.matches()[-1] == (6, "gnugo:10", 20)
    assert record.measurements[-1].kind == "final"


def test_a_failed_command_is_recorded_and_repeated(project, tmp_path):
    project.fails_at = "dvc repro"
    record = run_seed(tmp_path)
    assert record.status == "failed" and record.newest == 0
    assert record.failures[0].log[-1] == "error: no memory" and record.failures[0].generation == 1
    project.fails_at = None
    record = run_seed(tmp_path)
    assert record.status == "done" and record.newest == 6
    assert len(record.generations[0].attempts) == 2
    assert summary_of(SETUP, [record]).problems == {"crashed": (1,)}


@pytest.mark.parametrize(
    "moment",
    ["zero new", "zero prepare", "dvc repro", "--generation 3", "gen-0004,simulations=800,pass_wins=true gnugo:1 "],
)
def test_a_killed_run_is_continued_with_the_same_result(project, tmp_path, moment):
    project.scores = {("gnugo:1", 4): 0.6, ("gnugo:10", 6): 0.6}
    project.dies_at = moment
    with pytest.raises(KilledError):
        run_seed(tmp_path / "killed")
    project.dies_at = None
    killed = run_seed(tmp_path / "killed")
    project.tagged = -1
    assert without_times([killed]) == without_times([run_seed(tmp_path / "whole")])


def without_times(models):
    def stripped(tree):
        if isinstance(tree, dict):
            return {name: stripped(value) for name, value in tree.items() if name not in TIMES}
        return [stripped(each) for each in tree] if isinstance(tree, list) else tree

    return stripped([model.model_dump(mode="json") for model in models])


def test_a_folder_has_one_setup(tmp_path):
    assert keep_setup(tmp_path, SETUP) == SETUP
    later = SETUP.model_copy(update={"commit": "1" * 40})
    assert keep_setup(tmp_path, later) == SETUP  # the commit of the beginning is kept
    for other in (
        SETUP.model_copy(update={"params": SETUP.params.model_copy(update={"seed": 7})}),
        SETUP.model_copy(update={"strength": STRENGTH.model_copy(update={"goal": 0.6})}),
    ):
        with pytest.raises(ParamsError, match="another --folder"):
            keep_setup(tmp_path, other)


def test_numbers_that_are_not_written_are_none():
    old = Training.model_validate_json(OLD_METRICS)
    assert (old.value_loss, old.constant_value_loss, old.health.verdict) == (0.9, None, "unknown")
    new = Training.model_validate_json('{"health": {"verdict": "dead", "findings": ["The value head is constant."]}}')
    assert (new.health.verdict, new.health.findings) == ("dead", ("The value head is constant.",))


def test_a_seed_that_does_not_reach_a_level_counts_as_infinite():
    spread = spread_of([2.0, None, 1.0])
    assert (spread.fastest, spread.median, spread.slowest) == (1.0, 2.0, None)
    assert spread_of([None, 1.0]).median is None


def test_the_report_has_each_failure_and_the_spread_of_the_times(project, tmp_path):
    project.scores = {("gnugo:1", 2): 0.6, ("gnugo:1", 4): 0.7}
    good = run_seed(tmp_path)
    slow = good.model_copy(
        update={
            "seed": 2,
            "generations": tuple(generation(number, 3600.0, number > 1, "dead") for number in range(1, 7)),
        }
    )
    never = SeedRecord(seed=3, status="failed")
    for record in (slow, never):
        write_record(tmp_path, record)
    records = read_records(tmp_path)
    summary = summary_of(SETUP, records)
    assert summary.problems == {"generation 1 rejected": (2,), "dead training": (2,), "failed": (3,)}
    first, second = summary.reached
    assert (first.num_reached, first.num_seeds, second.num_reached) == (2, 3, 0)
    assert (first.hours.fastest, first.hours.median, first.hours.slowest) == (1.0, 2.0, None)
    assert summary_of(SETUP, records[:2]).reached[0].slowest_over_fastest == 2.0
    rows = list(csv.DictReader(io.StringIO(curve_csv(SETUP, records))))
    assert len(rows) == 12 and rows[1]["score gnugo:1"] == "0.6" and rows[1]["hours"] == "1.0000"
    assert seeds_table(SETUP, records).row_count == 3 + 5
    write_report(tmp_path, SETUP, records)
    assert Results.model_validate_json((tmp_path / RESULTS_FILE).read_bytes()).seeds == tuple(records)
    assert (tmp_path / CURVE_FILE).read_text() == curve_csv(SETUP, records)
    assert (tmp_path / PLOT_FILE).read_bytes().startswith(b"\x89PNG")
    assert "value loss 0.500 (constant 0.980), training dead" in generation_line(slow, slow.generations[0])


def test_report_runs_nothing(tmp_path):
    keep_setup(tmp_path, SETUP)
    write_record(tmp_path, SeedRecord(seed=5, status="done", generations=(generation(1),)))
    done = call("--report", "--folder", str(tmp_path))
    assert done.exit_code == 0 and "not reached" in done.output
    assert (tmp_path / RESULTS_FILE).exists()
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report"], "has no setup.json"),
        (["--seeds", "1,x"], "give whole numbers"),
        (["--preset", "smoke"], "does not read considered_actions"),
        (["--set", "network.num_chanels=6"], "unknown parameter"),
    ],
)
def test_invalid_arguments_are_one_line(tmp_path, arguments, message):
    done = call(*arguments, "--folder", str(tmp_path / "new"))
    assert done.exit_code == 1 and message in done.output.splitlines()[-1]


def call(*arguments):
    import typer

    app = typer.Typer()
    app.command()(seeds.main)
    return CliRunner().invoke(app, list(arguments))


def test_seeds_are_different_whole_numbers():
    assert numbers_of("3, 1,3") == (3, 1)
    with pytest.raises(ParamsError, match="--seeds"):
        numbers_of("1,")


def test_options_are_checked_against_the_root_of_the_champion():
    gumbel = STRENGTH.model_copy(update={"options": "root=gumbel,considered_actions=16", "opponents": ("random",)})
    check_players(SETUP.params, gumbel)
    with pytest.raises(ParamsError, match="puct"):
        check_players(SETUP.params, gumbel.model_copy(update={"options": "considered_actions=16"}))


CALLER = """
import os, sys
from pathlib import Path
from benchmarks.seeds import run_module
run_module(Path(sys.argv[1]), sys.argv[2], [], dict(os.environ), Path(sys.argv[1]) / "log")
"""
SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open("pids.part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.part", "pids")
time.sleep(600)
"""


def test_a_command_and_its_children_end_when_their_caller_is_killed(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path), "sleeper"], cwd=PROJECT_DIR)
    wait_for(lambda: (tmp_path / "pids").exists())
    caller.kill()
    caller.wait()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    wait_for(lambda: not any(is_running(pid) for pid in pids))


def test_a_failed_command_returns_the_end_of_its_output(tmp_path):
    (tmp_path / "failing.py").write_text("import sys\nprint('out')\nsys.exit('no memory')\n")
    log = tmp_path / "logs" / "log"
    with pytest.raises(CommandFailedError, match="status 1") as error:
        run_module(tmp_path, "failing", [], dict(os.environ), log)
    assert set(error.value.log) == {"out", "no memory"} and "failing" in log.read_text()


def test_captured_output_is_also_in_the_log(tmp_path):
    (tmp_path / "saying.py").write_text("print('{}')\n")
    assert run_module(tmp_path, "saying", [], dict(os.environ), tmp_path / "log", is_captured=True) == "{}\n"
    assert run_module(tmp_path, "saying", [], dict(os.environ), tmp_path / "log") == ""
    assert (tmp_path / "log").read_text().splitlines().count("{}") == 2


def wait_for(is_so):
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_real_seed_that_is_killed_has_the_result_of_an_uninterrupted_one(recorded, tmp_path):
    with ExitStack() as running:
        first = start(tmp_path, running)
        wait_for(lambda: "Running stage 'training'" in log_of(tmp_path))
        first.kill()
        first.wait()
        before = read_record(tmp_path, 1)
        assert before.status == "running" and len(before.attempts) == 1
        assert start(tmp_path, running).wait() == 0
    record = read_record(tmp_path, 1)
    (made,), (match,) = record.generations, record.measurements
    assert len(made.attempts) == 2 and made.attempts[0] >= before.attempts[0]
    # Another lineage with the same seed and parameters, whose generation was not interrupted.
    uninterrupted = seed_records.read_generation(recorded.home, recorded.name, 1, ())
    assert without_times([made]) == without_times([uninterrupted])
    assert record.status == "done" and match.table.result.wins + match.table.result.losses == 2


ARGUMENTS = "--preset smoke --seeds 1 --generations 1 --opponents random --probe-games 2 --confirmation-games 2"


def start(folder, running):
    arguments = [*ARGUMENTS.split(), "--simulations", "2", "--options", "", "--folder", str(folder)]
    arguments += ["--set", f"gating.threshold={ALWAYS}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.seeds", *arguments], cwd=PROJECT_DIR, stdout=subprocess.DEVNULL
    )
    running.callback(process.wait)
    running.callback(process.kill)
    return process


def log_of(folder):
    path = folder / "logs/seed-1.log"
    return path.read_text() if path.exists() else ""
