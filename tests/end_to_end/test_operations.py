"""Rollback and branch of a real lineage: the restored state, the next generations, and crash recovery."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.audit.record import Record
from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import dvc, edit_params, git, killed, run, zero
from zero.lineage.rollback import rollback as roll_back
from zero.lineage.workspace import writer_lock
from zero.record.costs import read_note
from zero.record.ledger import line_digest, read_ledger
from zero.record.provenance import read_envelope
from zero.storage.files import read_manifest, sha256_bytes
from zero.storage.layout import GENERATION_FILE, KEY_FILE, PROVENANCE_FILE
from zero.storage.manifests import Champion, Checkpoint, GameSet, GenerationId, Window
from zero.storage.vcs import dvc as run_dvc

DATES = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
ROLLBACK, BRANCH = ("rollback", "tiny", "tiny/gen-0001"), ("branch", "tiny", "tiny/gen-0001", "kid")
State = tuple[str, str, list[str]]
"""Champion, trainee and files of the window."""


def restored(workspace: Path) -> State:
    champion = read_manifest(workspace / "state/champion", Champion).weights.sha256
    trainee = read_manifest(workspace / "state/trainee", Checkpoint).continued_weights.sha256
    return champion, trainee, [each.shard.file.sha256 for each in window_of(workspace).shards]


def window_of(workspace: Path) -> Window:
    return read_manifest(workspace / "state/replay", Window)


def left_by(record: Record, number: int) -> State:
    """The state that a generation left, read from the ledger and the shards of its window."""
    entry = read_ledger(record.workspace)[number]
    window = Window.model_validate_json(record.cached(number, "data/window", "manifest.json").read_bytes())
    return entry.champion, entry.trainee, [each.shard.file.sha256 for each in window.shards]


@pytest.fixture(scope="module")
def left(recorded: Lineage) -> dict[int, State]:
    """Of generations 1 and 2."""
    return {number: left_by(Record(recorded.home), number) for number in (1, 2)}


class Uninterrupted(NamedTuple):
    """An uninterrupted rollback and branch: the lineage, the rollback's output, and the commits."""

    lineage: Lineage
    shown: dict[str, Any]
    commits: dict[str, str]


def dated(home: Path, *words: str) -> str:
    return zero(home, *words, check=True, **DATES).stdout


@pytest.fixture(scope="module")
def uninterrupted(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    copy = copy_of(recorded, tmp_path_factory.mktemp("uninterrupted"))
    shown = json.loads(dated(copy.home, *ROLLBACK, "--json"))
    dated(copy.home, *BRANCH)
    tags = ("tiny/gen-0003", "kid/gen-0001")
    return Uninterrupted(copy, shown, {tag: git(copy.home, "rev-parse", tag).strip() for tag in tags})


def test_a_rollback_restores_champion_trainee_and_window(uninterrupted: Uninterrupted, left: dict[int, State]) -> None:
    copy, shown, _ = uninterrupted
    assert shown["tag"] == "tiny/gen-0003"
    assert restored(copy.workspace) == left[1] != left[2]
    assert read_manifest(copy.workspace, GenerationId, GENERATION_FILE).number == 4
    ledger = read_ledger(copy.workspace)
    assert [entry.kind for entry in ledger] == ["start", "decision", "decision", "rollback"]
    assert ledger[3].champion == ledger[1].champion and ledger[3].champion_generation == 1
    source = ledger[3].source
    assert source is not None and (source.tag, source.line) == ("tiny/gen-0001", line_digest(ledger[1]))
    assert source.commit == git(copy.home, "rev-parse", "tiny/gen-0001").strip()
    before = git(copy.home, "for-each-ref")
    assert json.loads(zero(copy.home, *ROLLBACK, "--json").stdout) == shown
    assert git(copy.home, "for-each-ref") == before
    assert "rollback from tiny/gen-0001" in zero(copy.home, "status", "tiny", COLUMNS="160").stdout
    row = zero(copy.home, "status", "tiny", COLUMNS="80").stdout.partition("tiny/gen-0003")[2]
    assert "rollback" in row and "tiny/gen-0001" in row and ledger[3].champion[:12] in row


def test_a_lost_state_is_restored_from_the_record(recorded: Lineage, tmp_path: Path) -> None:
    copy = copy_of(recorded, tmp_path)
    state, metrics = copy.workspace / "state/generation.json", copy.workspace / "metrics/selfplay.json"
    zero(copy.home, "prepare", "tiny")
    before, recorded_metrics = state.read_bytes(), json.loads(metrics.read_bytes())
    recorded_metrics["resignation"]["following"]["threshold"] = -0.5  # as the next generation's self-play may leave it
    metrics.write_text(json.dumps(recorded_metrics))
    state.unlink()
    zero(copy.home, "prepare", "tiny")
    assert state.read_bytes() == before
    assert json.loads(metrics.read_bytes()) == recorded_metrics


def test_restoring_a_workspace_keeps_the_cost_note_of_the_newest_generation(recorded: Lineage, tmp_path: Path) -> None:
    copy = copy_of(recorded, tmp_path)
    before = read_note(copy.home, "tiny", "tiny/gen-0002")
    assert before is not None and before.stages["training"].cpu_seconds > 0.0
    shutil.rmtree(copy.workspace)
    zero(copy.home, "restore", "tiny")
    zero(copy.home, "prepare", "tiny")
    assert read_note(copy.home, "tiny", "tiny/gen-0002") == before


def test_restoring_a_workspace_in_a_clone_of_the_project_fetches_the_cost_notes(
    recorded: Lineage, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(recorded.home), str(clone))
    git(clone, "branch", "lineage/tiny", "origin/lineage/tiny")
    zero(clone, "restore", "tiny")
    workspace = clone / ".zero/workspaces/tiny"
    assert (
        read_note(workspace, "tiny", "tiny/gen-0002") == read_note(recorded.home, "tiny", "tiny/gen-0002") is not None
    )


def test_the_remedy_for_a_wrong_state_works_after_a_rollback(uninterrupted: Uninterrupted, tmp_path: Path) -> None:
    """The commit of a rollback has no `dvc.lock`."""
    copy = copy_of(uninterrupted.lineage, tmp_path)
    (copy.workspace / "state/champion.dvc").write_text(copy.show("tiny/gen-0001", "state/champion.dvc"))
    dvc(copy.workspace, "checkout", "--force", "state/champion")
    refused = zero(copy.home, "prepare", "tiny", check=False)
    assert refused.returncode == 1 and "the champion in" in refused.stderr
    run(["bash", "-c", refused.stderr.split("`")[1]], copy.workspace)
    zero(copy.home, "prepare", "tiny")


@pytest.mark.parametrize("words", ["checkout tiny/gen-0001 FILE", "reproduce tiny/gen-0001 --keep FILE"])
def test_a_file_in_place_of_a_new_folder_is_named(recorded: Lineage, tmp_path: Path, words: str) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    done = zero(recorded.home, *words.replace("FILE", str(file)).split(), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"zero: {file} is a file; name a new folder") and len(done.stderr.splitlines()) == 1
    assert file.read_text() == "mine"


def test_a_generation_after_a_rollback_plays_and_gates_normally(gone_on: Lineage) -> None:
    *_, rolled_back, made = read_ledger(gone_on.workspace)
    assert (rolled_back.kind, made.kind, made.generation) == ("rollback", "decision", 4)
    assert made.decision is not None and made.decision.champion == rolled_back.champion
    generations = {each.shard.generation for each in read_manifest(gone_on.workspace / "data/window", Window).shards}
    assert generations == {1, 4}  # the games of generation 2 are not in it


def test_the_attestations_of_both_are_signed_and_name_their_source(gone_on: Lineage) -> None:
    source = read_ledger(gone_on.workspace)[1]
    for tag in ("tiny/gen-0003", "kid/gen-0001"):
        data, key = (gone_on.show(tag, name).encode() for name in (PROVENANCE_FILE, KEY_FILE))
        envelope = read_envelope(data, tag)
        assert envelope.signed_by(key)
        entry = next(e for e in read_ledger(gone_on.named(tag.partition("/")[0]).workspace) if e.source is not None)
        assert sha256_bytes(envelope.payload) == entry.provenance
        assert envelope.attestation.dependencies["source-provenance"].sha256 == source.provenance


def test_a_branch_goes_on_as_its_lineage_did(recorded: Lineage, gone_on: Lineage) -> None:
    """Equal code, parameters and state: the same games, weights and match; only manifests say another lineage."""
    old, new = recorded.workspace, gone_on.named("kid").workspace
    first, second = read_ledger(new)
    assert (first.kind, first.generation, second.generation) == ("branch", 1, 2)
    for folder in ("data/games", "data/match"):
        assert read_manifest(new / folder, GameSet).shards == read_manifest(old / folder, GameSet).shards
    assert read_manifest(new / "data/window", Window).shards == read_manifest(old / "data/window", Window).shards
    mine, theirs = (read_manifest(each / "models/challenger", Checkpoint) for each in (new, old))
    assert (mine.weights, mine.optimizer) == (theirs.weights, theirs.optimizer)
    for name in ("metrics/selfplay.json", "metrics/training.json", "plots/training.csv"):
        assert gone_on.show("kid/gen-0002", name) == recorded.show("tiny/gen-0002", name)
    shown = gone_on.show("kid/gen-0002", "metrics/gating.json")
    assert shown.replace('"kid"', '"tiny"') == recorded.show("tiny/gen-0002", "metrics/gating.json")
    assert second.decision is not None and not second.decision.promoted


def test_a_branch_has_the_window_of_its_source_as_its_own(
    gone_on: Lineage, left: dict[int, State], tmp_path: Path
) -> None:
    zero(gone_on.home, "checkout", "kid/gen-0001", str(tmp_path / "kid"))
    window = window_of(tmp_path / "kid")
    assert (window.origin.lineage, window.origin.generation, window.origin.stage) == ("kid", 1, "branch")
    assert restored(tmp_path / "kid") == left[1]


@pytest.fixture(scope="module")
def rolled_back(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """By a command that was killed before it committed, a second that was killed before it pushed, and a third."""
    copy = copy_of(recorded, tmp_path_factory.mktemp("rolled-back"))
    for dead_at in ("commit --quiet", "push --quiet --atomic"):
        killed(copy.home, dead_at, *ROLLBACK, **DATES)
    dated(copy.home, *ROLLBACK)
    return copy


def test_a_killed_rollback_is_finished_by_another_one(
    rolled_back: Lineage, uninterrupted: Uninterrupted, left: dict[int, State]
) -> None:
    assert git(rolled_back.home, "rev-parse", "tiny/gen-0003").strip() == uninterrupted.commits["tiny/gen-0003"]
    assert json.loads(zero(rolled_back.home, "prepare", "tiny").stdout)["generation"]["number"] == 4
    assert restored(rolled_back.workspace) == left[1]


def test_a_killed_branch_is_finished_by_a_second_one_and_its_lost_workspace_made_again(
    rolled_back: Lineage, uninterrupted: Uninterrupted
) -> None:
    home, workspace = rolled_back.home, rolled_back.named("kid").workspace
    killed(home, "push --quiet --atomic", *BRANCH, **DATES)
    assert not workspace.exists()
    dated(home, *BRANCH)
    assert git(home, "rev-parse", "kid/gen-0001").strip() == uninterrupted.commits["kid/gen-0001"]
    assert json.loads(zero(home, "prepare", "kid").stdout)["generation"]["number"] == 2
    run(["rm", "-r", str(workspace)], home)
    zero(home, "restore", "kid")
    assert json.loads(zero(home, "prepare", "kid").stdout)["generation"]["number"] == 2


def test_a_dirty_workspace_is_not_rolled_back(lineage: Lineage) -> None:
    path = lineage.workspace / "params.yaml"
    path.write_text(path.read_text() + "\n")
    done = zero(lineage.home, "rollback", "tiny", "tiny/gen-0001", check=False)
    assert done.returncode == 1 and "is dirty: params.yaml is not committed" in done.stderr


def test_a_file_that_changes_during_a_rollback_is_not_committed(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lineage.workspace / "params.yaml"

    def edited(folder: Path, *arguments: str) -> str:
        path.write_text(path.read_text() + "\n")
        return run_dvc(folder, *arguments)

    monkeypatch.setattr("zero.lineage.rollback.dvc", edited)
    with writer_lock(lineage.workspace):
        roll_back(lineage.home, lineage.workspace, "tiny/gen-0001")
    assert "params.yaml" not in git(lineage.workspace, "show", "--name-only", "--format=", "HEAD").split()
    assert " M params.yaml" in git(lineage.workspace, "status", "--porcelain").splitlines()


def test_a_network_of_other_parameters_is_not_restored_and_nothing_is_changed(lineage: Lineage) -> None:
    path = lineage.workspace / "params.yaml"
    path.write_text(edit_params(path.read_text(), network__num_channels=16))
    git(lineage.workspace, "commit", "--quiet", "-m", "wider", "params.yaml")
    before = git(lineage.workspace, "status", "--porcelain")
    done = zero(lineage.home, "rollback", "tiny", "tiny/gen-0001", check=False)
    assert done.returncode == 1
    assert "network.num_channels = 16, but the trainee has 8" in done.stderr
    assert git(lineage.workspace, "status", "--porcelain") == before
    assert [entry.kind for entry in read_ledger(lineage.workspace)] == ["start", "decision", "decision"]
