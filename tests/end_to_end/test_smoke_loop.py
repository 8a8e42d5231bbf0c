"""The complete loop on the `smoke` preset with `dvc repro` and `zero advance`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import dvc, edit_params, environment_of, git, zero
from zero.record.ledger import read_ledger
from zero.storage.files import read_manifest
from zero.storage.manifests import Champion, Checkpoint, GameSet, Window


def test_a_promoted_challenger_is_the_next_champion(recorded: Lineage) -> None:
    start, promoted, _ = read_ledger(recorded.workspace)
    assert promoted.decision is not None and promoted.decision.promoted
    assert promoted.champion == promoted.decision.challenger != start.champion
    assert promoted.champion_generation == 1


def test_training_continues_from_a_refused_challenger(recorded: Lineage) -> None:
    _, promoted, refused = read_ledger(recorded.workspace)
    assert refused.decision is not None and not refused.decision.promoted
    assert refused.champion == promoted.champion
    assert refused.trainee == refused.decision.challenger
    trainee = read_manifest(recorded.workspace / "state/trainee", Checkpoint)
    champion = read_manifest(recorded.workspace / "state/champion", Champion)
    assert (trainee.step, champion.generation) == (24, 1)
    assert trainee.weights.sha256 == refused.trainee


def test_the_window_holds_the_last_games_of_both_generations(recorded: Lineage) -> None:
    window = read_manifest(recorded.workspace / "data/window", Window)
    assert window.num_games == 36
    assert [(s.shard.generation, s.shard.num_games - s.skip_games) for s in window.shards] == [
        (1, 12),
        (2, 12),
        (2, 12),
    ]


def test_the_match_is_balanced_and_its_decision_follows(recorded: Lineage) -> None:
    match = read_manifest(recorded.workspace / "data/match", GameSet)
    decision = read_ledger(recorded.workspace)[1].decision
    assert match.num_games == 16 and decision is not None
    for colours in (decision.match.as_black, decision.match.as_white):
        assert colours.wins + colours.losses + colours.draws == 8
    assert 1 <= decision.match.unique_games <= 16


def test_a_clone_at_a_tag_is_up_to_date_and_makes_its_window_again_to_the_same_lock(
    recorded: Lineage, tmp_path: Path
) -> None:
    """With plain DVC and one stage; test_reproduce covers all stages with `zero reproduce`."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--branch", "tiny/gen-0001", str(recorded.home), str(clone))
    dvc(clone, "pull")
    assert "up to date" in dvc(clone, "repro").stdout
    before = (clone / "dvc.lock").read_bytes()
    again = dvc(clone, "repro", "--force", "--single-item", "replay", ZERO_STORE="off")
    assert "Running stage 'replay'" in again.stdout
    assert (clone / "dvc.lock").read_bytes() == before
    assert git(clone, "status", "--porcelain") == ""


def test_advancing_a_recorded_generation_again_changes_nothing(recorded: Lineage) -> None:
    before = git(recorded.home, "for-each-ref"), git(recorded.workspace, "status", "--porcelain")
    done = zero(recorded.home, "advance", "tiny", "--generation", "2", "--json")
    assert '"tag": "tiny/gen-0002"' in done.stdout
    assert (git(recorded.home, "for-each-ref"), git(recorded.workspace, "status", "--porcelain")) == before


def test_a_generation_that_was_not_played_cannot_be_recorded(recorded: Lineage) -> None:
    done = zero(recorded.home, "advance", "tiny", check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"zero: generation 3 of tiny is not finished; run `dvc repro` in {recorded.workspace} "
        "(if the last call was killed: generation 2 is recorded, and `zero track tiny` writes it to MLflow)"
    ]


def test_status_shows_the_last_decisions(recorded: Lineage) -> None:
    shown = zero(recorded.home, "status", "tiny", COLUMNS="80").stdout
    for word in (
        "tiny/gen-0000    │ start",
        "tiny/gen-0001    │ promoted",
        "tiny/gen-0002    │ refused",
        "next is generation 3",
    ):
        assert word in shown
    champions = [entry.champion[:12] for entry in read_ledger(recorded.workspace)]
    assert all(champion in shown for champion in champions) and "…" not in shown


def test_games_are_written_as_sgf(recorded: Lineage, tmp_path: Path) -> None:
    done = zero(recorded.workspace, "sgf", "data/match", str(tmp_path / "match.sgf"))
    assert done.stdout.startswith("16 games")
    text = (tmp_path / "match.sgf").read_text()
    assert text.count("(;") == 16 and "KM[0.5]" in text


def test_games_are_written_with_the_rules_of_their_workspace(recorded: Lineage, tmp_path: Path) -> None:
    games, out, here = recorded.workspace / "data/match", tmp_path / "match.sgf", tmp_path / "here.sgf"
    other = edit_params((recorded.workspace / "params.yaml").read_text(), game__komi=7.5)
    (tmp_path / "params.yaml").write_text(other)
    zero(tmp_path, "sgf", str(games), str(out))
    zero(recorded.workspace, "sgf", "data/match", str(here))
    assert out.read_text() == here.read_text()
    lost = Path(shutil.copytree(games, tmp_path / "data/match"))
    done = zero(recorded.workspace, "sgf", str(lost), str(tmp_path / "lost.sgf"), check=False)
    assert done.returncode == 1 and f"{tmp_path / 'params.yaml'} changed since the games of {lost}" in done.stderr
    assert "get both with `zero checkout tiny/gen-0002 FOLDER`" in done.stderr
    assert not (tmp_path / "lost.sgf").exists()


def test_a_worker_ends_with_its_parent(recorded: Lineage) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "zero", "worker"], cwd=recorded.workspace, env=environment_of(), stdin=subprocess.PIPE
    )
    assert process.stdin
    spec = zero(recorded.workspace, "plan", "selfplay").stdout.splitlines()[0]
    process.stdin.write(spec.encode() + b"\n")
    process.stdin.flush()
    process.stdin.close()
    assert process.wait(120) == 3
    assert not Path(f"/proc/{process.pid}").exists() or os.name != "posix"
