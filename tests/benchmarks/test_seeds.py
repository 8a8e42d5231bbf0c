"""Repeatability over seeds: when strength is measured, recovery after a kill, and the report."""

import csv
import subprocess
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import gpu, seeds
from benchmarks.results import PROJECT_DIR
from benchmarks.seed_report import (
    CURVE_FILE,
    RESULTS_FILE,
    Seed,
    SeedExperiment,
    SeedGeneration,
    Strength,
    curve_of,
    level_of,
    seeds_table,
    write_curve,
)
from benchmarks.seeds import SeedLimits, SeedRun, new_experiment, open_experiment, read_experiment, read_generation
from benchmarks.setting import numbers_of
from tests.benchmarks.commands import exit_status
from tests.end_to_end.lineages import ALWAYS
from tests.made_generations import made_match
from zero.config.params import parse_params, preset_text
from zero.errors import LineageError, ParamsError
from zero.evaluation.match import FinishedMatch, MatchSpec, MatchTable
from zero.players.player import PlayerId
from zero.storage.files import write_manifest

STRENGTH = Strength(
    opponents=("gnugo:1", "gnugo:10"),
    simulations=800,
    options="pass_wins=true",
    probe_every=2,
    probe_games=10,
    confirmation_games=20,
)
EXPERIMENT = SeedExperiment(
    name="smoke", commit="0" * 40, machine={}, params=parse_params(preset_text("smoke")), strength=STRENGTH
)
LIMITS = SeedLimits(generations=6, hours=None, has_final_match=False)
TIMES = ("attempts", "cpu_hours", "machine", "params")
WAIT_SECONDS = 600.0


class FakeProject:
    """Commands that take no time, recorded; each generation of the lineage is stronger."""

    def __init__(self, scores=None, promoted=True):
        self.scores, self.promoted = scores or {}, promoted
        self.tagged, self.calls, self.made = -1, [], set()
        self.fails_at = None

    def run_zero(self, folder, *arguments, listen, env):
        self._called(" ".join(["zero", *arguments]))
        listen(f"output of {arguments[0]}")
        if arguments[0] == "new":
            self.tagged = 0
        if arguments[0] == "advance":
            self.tagged = int(arguments[-1])

    def run_dvc_stage(self, workspace, stage, listen, progress, with_earlier):
        assert stage == "verification" and with_earlier
        self._called("dvc repro")

    def _called(self, call):
        self.calls.append(call)
        if self.fails_at and self.fails_at in call:
            raise LineageError(f"{call} failed: no memory")

    def read_match(self, folder):
        arguments = self.calls[-1].split()[1:]
        assert arguments[-1] == str(folder)
        generation = int(arguments[1].partition(",")[0][-4:])
        games = int(arguments[arguments.index("--games") + 1])
        wins = round(self.scores.get((arguments[2], generation), 0.0) * games)
        result = made_match(wins, games - wins)
        ids = (PlayerId(name="a", kind="network", settings={}), PlayerId(name="b", kind="gtp", settings={}))
        spec = MatchSpec(game=EXPERIMENT.params.game, players=ids, num_games=games, opening_moves=0, seed=1)
        return FinishedMatch(folder, spec, MatchTable(players=ids, result=result, forfeits=(0, 0), mean_margin=None))

    def matches(self):
        """(generation, opponent, games) of the played matches."""
        arguments = [call.split() for call in self.calls if call.startswith("zero match")]
        return [(int(w[2].partition(",")[0][-4:]), w[3], int(w[5])) for w in arguments]


def generation(number, seconds=1800.0, promoted=True, verdict="unknown"):
    return SeedGeneration(
        number=number,
        attempts=(seconds,),
        promoted=promoted,
        score=0.6,
        champion=f"{number if promoted else 0:064x}",
        policy_loss=None,
        value_loss=0.5,
        constant_value_loss=0.98,
        health=verdict,
        cpu_hours=1.0,
        games=100,
        evaluations=1000,
    )


@pytest.fixture
def project(monkeypatch):
    fake = FakeProject()

    def read_generation(home, lineage, number, attempts):
        made = generation(number, promoted=fake.promoted)
        return made.model_copy(update={"attempts": (*attempts[:-1], 1800.0)})

    for command in ("run_zero", "run_dvc_stage", "read_match"):
        monkeypatch.setattr(seeds, command, getattr(fake, command))
    monkeypatch.setattr(seeds, "newest_tagged", lambda home, lineage: fake.tagged)
    monkeypatch.setattr(seeds, "lineages_here", lambda home: ["seed-1"] if fake.tagged >= 0 else [])
    monkeypatch.setattr(seeds, "wait_until_free", lambda workspace: None)
    monkeypatch.setattr(seeds, "read_generation", read_generation)
    return fake


def run_seed(folder, limits=LIMITS):
    if not (folder / RESULTS_FILE).exists():
        write_manifest(folder, EXPERIMENT, RESULTS_FILE)
    SeedRun(folder, 1).run(limits)
    return read_experiment(folder).seed(1)


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
    assert run_seed(tmp_path, LIMITS._replace(has_final_match=True)).newest == 6  # continues


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
    assert record.failures == ("generation 1: dvc repro failed: no memory",)
    assert "output of prepare" in log_of(tmp_path)
    project.fails_at = None
    record = run_seed(tmp_path)
    assert record.status == "done" and record.newest == 6
    assert len(record.generations[0].attempts) == 2
    assert read_experiment(tmp_path).problems == {"crashed": (1,)}


def without_times(models):
    def stripped(tree):
        if isinstance(tree, dict):
            return {name: stripped(value) for name, value in tree.items() if name not in TIMES}
        return [stripped(each) for each in tree] if isinstance(tree, list) else tree

    return stripped([model.model_dump(mode="json") for model in models])


def test_a_folder_has_one_experiment(tmp_path, capsys):
    (tmp_path / "project").mkdir()  # as if it was cloned
    open_experiment(tmp_path, EXPERIMENT)
    open_experiment(tmp_path, EXPERIMENT.model_copy(update={"commit": "1" * 40}))
    assert read_experiment(tmp_path) == EXPERIMENT, "the commit of the first call is kept"
    assert "this experiment runs commit 000000000000, not 111111111111" in capsys.readouterr().err
    for other in (
        {"params": EXPERIMENT.params.model_copy(update={"seed": 7})},
        {"strength": STRENGTH.model_copy(update={"probe_games": 30})},
    ):
        with pytest.raises(ParamsError, match="another --folder"):
            open_experiment(tmp_path, EXPERIMENT.model_copy(update=other))


def test_the_report_has_each_failure_and_the_spread_of_the_times(project, tmp_path):
    project.scores = {("gnugo:1", 2): 0.6, ("gnugo:1", 4): 0.7}
    good = run_seed(tmp_path)
    made = tuple(generation(number, 3600.0, number > 1, "dead") for number in range(1, 7))
    slow = good.model_copy(update={"seed": 2, "generations": made})
    two = read_experiment(tmp_path).with_seed(slow)
    assert two.levels[0].slowest_over_fastest == 2.0
    all_three = two.with_seed(Seed(seed=3, status="failed"))
    assert all_three.problems == {"generation 1 rejected": (2,), "dead training": (2,), "failed": (3,)}
    first, second = all_three.levels
    assert (first.num_reached, second.num_reached) == (2, 0)
    assert (first.fastest, first.median, first.slowest) == (1.0, 2.0, None), "a level not reached counts as infinite"
    assert level_of([good, Seed(seed=3)], "gnugo:1").median is None
    assert seeds_table(all_three).row_count == 3 + 5
    write_manifest(tmp_path, all_three, RESULTS_FILE)
    assert read_experiment(tmp_path) == all_three
    write_curve(tmp_path, all_three)
    with (tmp_path / CURVE_FILE).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(curve_of(all_three)) == 12
    assert [rows[1][name] for name in ("score gnugo:1", "hours", "cpu_hours", "games")] == ["0.6", "1.0", "2.0", "200"]
    assert rows[0]["score gnugo:1"] == rows[0]["policy_loss"] == ""


def test_report_runs_nothing(tmp_path):
    seed = Seed(seed=5, status="done", generations=(generation(1),))
    write_manifest(tmp_path, EXPERIMENT.with_seed(seed), RESULTS_FILE)
    done = call("--report", "--folder", str(tmp_path))
    assert done.exit_code == 0 and "not reached" in done.output
    assert (tmp_path / CURVE_FILE).exists()
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report"], "has no results.json"),
        (["--seeds", "1,x"], "--seeds '1,x': give whole numbers"),
        (["--preset", "smoke"], "a puct root does not use considered_actions"),
        (["--options", "considered_actions=999"], "considered_actions '999'"),
        (["--options", "pass_wins=maybe"], "pass_wins 'maybe'"),
        (["--simulations", "2000000"], "simulations must be an integer from 0 to 1000000"),
        (["--probe-games", "101"], "games = 101 is odd"),
        (["--confirmation-games", "3"], "games = 3 is odd"),
        (["--opponents", "random,go9"], "--opponents go9: the matches are played in a clone without your lineages"),
        (["--set", "network.num_chanels=6"], "unknown parameter"),
        (["--set", "network.num_chanels=6", "--set", "gating.num_games=2"], "unknown parameter"),
        (["--set", "selfplay.num_games=["], "the value of selfplay.num_games is not YAML"),
        (["--set", "selfplay.num_games=2020-13-45"], "the value of selfplay.num_games is not YAML"),
        (["--preset", "smoke", "--options", "", "--opponents", "gtp:no-such-program"], "no-such-program"),
    ],
)
def test_invalid_arguments_are_one_line(tmp_path, arguments, message, monkeypatch, capsys):
    assert exit_status(monkeypatch, seeds.main, "seeds", *arguments, "--folder", str(tmp_path / "new")) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def call(*arguments):
    app = typer.Typer()
    app.command()(seeds.main)
    return CliRunner().invoke(app, list(arguments))


def test_options_are_checked_against_the_root_of_the_champion():
    gumbel = STRENGTH.model_copy(update={"options": "root=gumbel,considered_actions=16", "opponents": ("random",)})
    assert new_experiment("smoke", "gating.threshold=0.6", gumbel).name == "smoke gating.threshold=0.6"


def test_seeds_are_different_whole_numbers():
    assert numbers_of("--seeds", "3, 1,3") == (3, 1)
    with pytest.raises(ParamsError, match="--seeds '1,': give whole numbers"):
        numbers_of("--seeds", "1,")


def test_the_gpu_command_makes_a_generation_and_computes_its_rate(project, tmp_path, monkeypatch):
    def run(command, **_):
        done = call(*command[3:])
        return subprocess.CompletedProcess(command, done.exit_code, done.output, "")

    monkeypatch.setattr(seeds, "HIDDEN", "")  # keeps the environment of this process
    monkeypatch.setattr(gpu, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))
    earlier = gpu.BenchSection(name="gpu-inference-512", figures=(gpu.Figure(name="", value=5.0, unit=""),))
    report = gpu.Report(device=gpu.FAKE, machine={"commit": "0" * 40}, sections=(earlier,))
    section = gpu.generation(gpu.Bench(tmp_path, True, report, EXPERIMENT.params, 0.0))
    assert [(each.value, each.bound) for each in section.figures] == [(1000 / 1800, 5.0), (100, None), (1800, None)]


def wait_for(is_so):
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_real_seed_that_is_killed_has_the_result_of_an_uninterrupted_one(recorded, tmp_path):
    with ExitStack() as running:
        first = start(tmp_path, running)
        wait_for(lambda: "Running stage 'training'" in log_of(tmp_path))
        first.kill()
        first.wait()
        before = read_experiment(tmp_path).seed(1)
        assert before.status == "running" and len(before.attempts) == 1
        assert start(tmp_path, running).wait() == 0
    record = read_experiment(tmp_path).seed(1)
    (made,), (match,) = record.generations, record.measurements
    assert len(made.attempts) == 2 and made.attempts[0] >= before.attempts[0]
    # Another lineage with the same seed and parameters, whose generation was not interrupted.
    uninterrupted = read_generation(recorded.home, recorded.name, 1, ())
    assert without_times([made]) == without_times([uninterrupted])
    assert record.status == "done" and match.table.result.wins + match.table.result.losses == 2


ARGUMENTS = "--preset smoke --seeds 1 --generations 1 --opponents random --probe-games 2 --confirmation-games 2"


def start(folder, running):
    arguments = [*ARGUMENTS.split(), "--simulations", "2", "--options", "", "--folder", str(folder)]
    arguments += ["--set", f"gating.threshold={ALWAYS},profile.backend=openvino"]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.seeds", *arguments], cwd=PROJECT_DIR, stdout=subprocess.DEVNULL
    )
    running.callback(process.wait)
    running.callback(process.kill)
    return process


def log_of(folder):
    path = folder / "logs/seed-1.log"
    return path.read_text() if path.exists() else ""
