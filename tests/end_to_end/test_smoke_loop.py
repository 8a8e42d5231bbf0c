"""The whole loop on the `smoke` preset, by `dvc repro` and `zero advance`: twice, with equal digests."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.end_to_end.project import dvc, edit_params, environment_of, git, make_project, run, zero
from zero.artifacts import Champion, Checkpoint, GameSet, Window, read_manifest
from zero.presets import preset_text
from zero.record import read_ledger

ALWAYS, ONLY_IF_ALL_ARE_WON = 0.0, 1.0
HARDLY_ANYTHING = [{"from_step": 0, "learning_rate": 1e-6}]


class Lineage(NamedTuple):
    home: Path
    workspace: Path


def make_lineage(home: Path, num_processes: int) -> Lineage:
    make_project(home)
    params = edit_params(preset_text("smoke"), gating__threshold=ALWAYS, executor__num_processes=num_processes)
    (home / "smoke.yaml").write_text(params)
    zero(home, "new", "tiny", "--params", "smoke.yaml")
    return Lineage(home, home / ".zero/workspaces/tiny")


def let_the_next_be_refused(lineage: Lineage) -> None:
    """The next challenger is hardly another player than the champion, and would have to win every game."""
    path = lineage.workspace / "params.yaml"
    changes = {"gating__threshold": ONLY_IF_ALL_ARE_WON, "training__learning_rate": HARDLY_ANYTHING}
    path.write_text(edit_params(path.read_text(), **changes))
    git(lineage.workspace, "commit", "--quiet", "-m", "next", "params.yaml")


def make_generation(lineage: Lineage) -> None:
    zero(lineage.home, "prepare", "tiny")
    dvc(lineage.workspace, "repro")
    zero(lineage.home, "advance", "tiny")


def kill_one_worker(parent: int, killed: threading.Event) -> None:
    """Kills the first process that plays a shard under `parent`, once it has had time to begin."""
    for _ in range(600):
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(parent).children(recursive=True):
                if child.cmdline()[-1:] == ["worker"]:
                    time.sleep(1.0)
                    child.send_signal(signal.SIGKILL)
                    killed.set()
                    return
        time.sleep(0.05)


def make_generation_while_a_worker_dies(lineage: Lineage) -> bool:
    zero(lineage.home, "prepare", "tiny")
    command = [sys.executable, "-m", "dvc", "repro", "selfplay"]
    killed = threading.Event()
    with subprocess.Popen(command, cwd=lineage.workspace, env=environment_of(), stdout=subprocess.DEVNULL) as process:
        killer = threading.Thread(target=kill_one_worker, args=(process.pid, killed))
        killer.start()
        assert process.wait() == 0
        killer.join()
    make_generation(lineage)
    return killed.is_set()


def make_generation_with_a_crash_after_its_commit(lineage: Lineage, number: int) -> None:
    zero(lineage.home, "prepare", "tiny")
    dvc(lineage.workspace, "repro")
    program = f"from pathlib import Path; from zero.registry import _commit; _commit(Path('.'), 'tiny', {number})"
    run([sys.executable, "-c", program], lineage.workspace)
    assert f"tiny/gen-{number:04d}" not in git(lineage.home, "tag")
    zero(lineage.home, "prepare", "tiny")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Two generations on one process: the first challenger promoted, the second refused."""
    lineage = make_lineage(tmp_path_factory.mktemp("first"), num_processes=1)
    make_generation(lineage)
    let_the_next_be_refused(lineage)
    make_generation(lineage)
    return lineage


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """The same on two processes, one of which is killed over a shard, and with a crash in the registry."""
    lineage = make_lineage(tmp_path_factory.mktemp("second"), num_processes=2)
    assert make_generation_while_a_worker_dies(lineage)
    let_the_next_be_refused(lineage)
    make_generation_with_a_crash_after_its_commit(lineage, 2)
    return lineage


@pytest.mark.parametrize("tag", ["tiny/gen-0001", "tiny/gen-0002"])
def test_two_runs_give_equal_locks_metrics_and_curves(first: Lineage, second: Lineage, tag: str) -> None:
    for path in (
        "dvc.lock",
        "metrics/gating.json",
        "metrics/training.json",
        "plots/training.csv",
    ):
        assert git(first.home, "show", f"{tag}:{path}") == git(second.home, "show", f"{tag}:{path}"), path


def test_two_runs_write_equal_ledgers_but_for_their_statements(first: Lineage, second: Lineage) -> None:
    """The statements name the commit and the number of processes, in which the two runs differ."""
    ledgers = [read_ledger(lineage.workspace) for lineage in (first, second)]
    mine, theirs = ([entry.model_dump(exclude={"provenance", "previous"}) for entry in ledger] for ledger in ledgers)
    assert mine == theirs


def test_a_promoted_challenger_is_the_next_champion(first: Lineage) -> None:
    start, promoted, _ = read_ledger(first.workspace)
    assert promoted.decision is not None and promoted.decision.promoted
    assert promoted.champion == promoted.decision.challenger != start.champion
    assert promoted.champion_generation == 1


def test_training_goes_on_from_a_refused_challenger(first: Lineage) -> None:
    _, promoted, refused = read_ledger(first.workspace)
    assert refused.decision is not None and not refused.decision.promoted
    assert refused.champion == promoted.champion
    assert refused.trainee == refused.decision.challenger
    trainee = read_manifest(first.workspace / "state/trainee", Checkpoint)
    champion = read_manifest(first.workspace / "state/champion", Champion)
    assert (trainee.step, champion.generation) == (24, 1)
    assert trainee.weights.sha256 == refused.trainee


def test_the_window_holds_the_last_games_of_both_generations(first: Lineage) -> None:
    window = read_manifest(first.workspace / "data/window", Window)
    assert window.num_games == 36
    assert [(s.shard.generation, s.shard.num_games - s.skip_games) for s in window.shards] == [
        (1, 12),
        (2, 12),
        (2, 12),
    ]


def test_the_match_is_balanced_and_its_decision_follows(first: Lineage) -> None:
    match = read_manifest(first.workspace / "data/match", GameSet)
    decision = read_ledger(first.workspace)[1].decision
    assert match.num_games == 16 and decision is not None
    for colours in (decision.match.as_black, decision.match.as_white):
        assert colours.wins + colours.losses + colours.draws == 8
    assert 1 <= decision.match.unique_games <= 16


def test_a_clone_at_a_tag_is_up_to_date_and_recomputes_to_the_same_lock(first: Lineage, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--branch", "tiny/gen-0001", str(first.home), str(clone))
    dvc(clone, "pull")
    assert "up to date" in dvc(clone, "repro").stdout
    before = (clone / "dvc.lock").read_bytes()
    dvc(clone, "repro", "--force", ZERO_STORE="off")
    assert (clone / "dvc.lock").read_bytes() == before
    assert git(clone, "status", "--porcelain") == ""


def test_zero_checkout_gives_a_folder_that_is_up_to_date(first: Lineage, tmp_path: Path) -> None:
    zero(first.home, "checkout", "tiny/gen-0002", str(tmp_path / "copy"))
    assert "up to date" in dvc(tmp_path / "copy", "repro").stdout


def test_advancing_a_recorded_generation_again_changes_nothing(first: Lineage) -> None:
    before = git(first.home, "for-each-ref"), git(first.workspace, "status", "--porcelain")
    done = zero(first.home, "advance", "tiny", "--generation", "2", "--json")
    assert '"tag": "tiny/gen-0002"' in done.stdout
    assert (git(first.home, "for-each-ref"), git(first.workspace, "status", "--porcelain")) == before


def test_a_generation_that_was_not_played_cannot_be_recorded(first: Lineage) -> None:
    done = zero(first.home, "advance", "tiny", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"zero: generation 3 of tiny is not finished; run `dvc repro` in {first.workspace}"
    ]


def test_status_shows_where_the_lineage_stands(first: Lineage) -> None:
    shown = zero(first.home, "status", "tiny", COLUMNS="160").stdout
    for word in ("tiny/gen-0001", "promoted", "tiny/gen-0002", "refused", "next is generation 3"):
        assert word in shown


def test_games_are_written_as_sgf(first: Lineage, tmp_path: Path) -> None:
    done = zero(first.workspace, "sgf", "data/match", str(tmp_path / "match.sgf"))
    assert done.stdout.startswith("16 games")
    text = (tmp_path / "match.sgf").read_text()
    assert text.count("(;") == 16 and "KM[0.5]" in text


def test_a_worker_ends_with_its_parent(first: Lineage) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "zero", "worker"], cwd=first.workspace, env=environment_of(), stdin=subprocess.PIPE
    )
    assert process.stdin
    spec = zero(first.workspace, "plan", "selfplay").stdout.splitlines()[0]
    process.stdin.write(spec.encode() + b"\n")
    process.stdin.flush()
    process.stdin.close()
    assert process.wait(30) == 3
    assert not Path(f"/proc/{process.pid}").exists() or os.name != "posix"
