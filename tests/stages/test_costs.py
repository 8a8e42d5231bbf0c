"""Costs of a generation: they are summed from receipts and stages, and recorded as a git note."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.project import git
from tests.made_games import made_origin, made_params, write_params
from tests.made_generations import made_stage_costs
from zero.record.costs import GenerationCosts, fetch_notes, notes_ref, read_note, write_note
from zero.stages.costs import ProcessCosts, generation_costs, stage_costs
from zero.stages.inputs import read_inputs
from zero.stages.spec import ShardReceipt, read_receipts
from zero.storage.files import canonical_json, canonical_line, sha256_bytes, write_manifest
from zero.storage.layout import COSTS_DIR, GENERATION_FILE
from zero.storage.manifests import FileRef, GameSet, GenerationId, ShardRef
from zero.storage.store import Store

KEYS = ["aa" + "0" * 62, "bb" + "0" * 62]
SHA = sha256_bytes(b"games")
PROJECT_DIR = Path(__file__).resolve().parents[2]


def receipt(key: str, begun: float, seconds: float, worker: str = "here:1") -> ShardReceipt:
    return ShardReceipt(
        key=key,
        sha256=SHA,
        kind="selfplay",
        first_game=0,
        num_games=12,
        num_evaluations=1000,
        worker=worker,
        begun=begun,
        seconds=seconds,
        cpu_seconds=seconds / 2,
        gpu_seconds=0.0,
        pid=1,
    )


def put(store: Store, *receipts: ShardReceipt) -> None:
    for each in receipts:
        store.put_receipt(each.key, each.sha256, each.worker, canonical_json(each))


def line(stage: str, begun: float, seconds: float, cpu: float, worker: str = "here:9") -> ProcessCosts:
    return ProcessCosts(stage=stage, worker=worker, begun=begun, seconds=seconds, cpu_seconds=cpu, gpu_seconds=0.0)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace at the end of generation 3, with two shards of self-play and two of the match."""
    folder = tmp_path / "workspace"
    write_params(folder, made_params())
    write_manifest(folder, GenerationId(lineage="go9", number=3, resign_threshold=-1.0), GENERATION_FILE)
    origin = made_origin("selfplay", 3, "go9")
    for name in ("data/games", "data/match"):
        refs = tuple(
            ShardRef(
                file=FileRef(path=f"{key[:4]}.parquet", sha256=SHA, num_bytes=5),
                key=key if name == "data/games" else sha256_bytes(key.encode()),
                generation=3,
                first_game=0,
                num_games=12,
                num_positions=100,
            )
            for key in KEYS
        )
        write_manifest(folder / name, GameSet(origin=origin, shards=refs, num_games=24, num_positions=200))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def write_lines(workspace: Path, *lines: ProcessCosts, incomplete: bytes = b"") -> None:
    path = workspace / COSTS_DIR / "gen-0003.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(map(canonical_line, lines)) + incomplete)


def test_receipts_are_summed_and_overlapping_time_counts_once(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0), receipt(KEYS[1], 105.0, 10.0, worker="there:2"))
    write_lines(workspace, line("selfplay", 99.0, 2.0, 0.5))
    selfplay = generation_costs(workspace, store, "go9", 3).stages["selfplay"]
    assert selfplay.seconds == 16.0  # 99 to 115
    assert selfplay.cpu_seconds == 5.0 + 5.0 + 0.5
    assert (selfplay.games, selfplay.evaluations, selfplay.shards) == (24, 2000, 2)
    assert selfplay.workers == ("here:1", "here:9", "there:2")


def test_a_shard_that_was_played_twice_costs_twice(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0), receipt(KEYS[0], 200.0, 10.0, worker="there:2"))
    selfplay = generation_costs(workspace, store, "go9", 3).stages["selfplay"]
    assert (selfplay.seconds, selfplay.evaluations, selfplay.games) == (20.0, 2000, 24)


def test_shards_without_a_receipt_are_unknown(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0))
    costs = generation_costs(workspace, store, "go9", 3)
    assert costs.stages["selfplay"].shards_without_receipt == 1
    assert costs.stages["gating"].shards_without_receipt == 2
    assert costs.total().shards_without_receipt == 3


def test_the_last_line_of_each_process_counts_and_an_incomplete_one_does_not(workspace: Path, store: Store) -> None:
    write_lines(
        workspace,
        *(line("training", 100.0, 5.0, 4.0), line("training", 100.0, 10.0, 8.0)),
        line("training", 300.0, 6.0, 5.0, worker="here:10"),
        incomplete=b'{"stage": "training", "sec',
    )
    training = generation_costs(workspace, store, "go9", 3).stages["training"]
    assert (training.seconds, training.cpu_seconds) == (16.0, 13.0)


def test_records_with_an_energy_of_older_versions_are_read() -> None:
    found = receipt(KEYS[0], 100.0, 10.0)
    assert ShardReceipt.model_validate(found.model_dump() | {"joules": 40.0}) == found
    spent = line("training", 100.0, 5.0, 4.0)
    assert ProcessCosts.model_validate(spent.model_dump() | {"joules": None}) == spent
    note = made_costs(1.0).model_dump()
    note["stages"]["training"]["joules"] = 40.0
    assert GenerationCosts.model_validate(note) == made_costs(1.0)


def test_a_receipt_of_another_version_is_ignored(store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0))
    store.put_receipt(KEYS[0], SHA, "old", b'{"key": "of another time"}')
    assert [each.worker for each in read_receipts(store.get_receipts(KEYS[0]))] == ["here:1"]


def test_the_costs_of_a_killed_stage_are_known(workspace: Path, store: Store) -> None:
    program = f"""
import time
from pathlib import Path
import zero.stages.costs
from zero.stages.inputs import read_inputs
zero.stages.costs.SAMPLE_SECONDS = 0.05
with zero.stages.costs.stage_costs(read_inputs(Path({str(workspace)!r})), "replay"):
    print("begun", flush=True)
    while True:
        pass
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT_DIR, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
    killed = generation_costs(workspace, store, "go9", 3).stages["replay"]
    assert killed.seconds > 0.5 and killed.cpu_seconds > 0.2
    with stage_costs(read_inputs(workspace), "replay"):
        pass
    resumed = generation_costs(workspace, store, "go9", 3).stages["replay"]
    assert resumed.cpu_seconds > killed.cpu_seconds and len(resumed.workers) == 2


def test_a_stage_that_fails_is_counted(workspace: Path, store: Store) -> None:
    with pytest.raises(RuntimeError), stage_costs(read_inputs(workspace), "replay"):
        raise RuntimeError
    assert "replay" in generation_costs(workspace, store, "go9", 3).stages


def test_a_stage_continues_if_its_costs_cannot_be_written(
    workspace: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    (workspace / ".zero").write_text("in the way")
    with stage_costs(read_inputs(workspace), "replay"):
        pass
    assert "costs are not recorded: cannot write" in caplog.text


def test_a_note_can_be_read_by_tag_and_replaced_without_changing_the_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "generation")
    git(tmp_path, "tag", "go9/gen-0003")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert read_note(tmp_path, "go9", "go9/gen-0003") is None
    for cpu_seconds in (1.0, 2.0):
        costs = made_costs(cpu_seconds)
        write_note(tmp_path, commit, costs)
        assert read_note(tmp_path, "go9", "go9/gen-0003") == costs
    assert git(tmp_path, "rev-parse", "go9/gen-0003^{commit}").strip() == commit
    assert read_note(tmp_path, "other", "go9/gen-0003") is None


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    """A project with a commit, and a clone of it."""
    home, clone = tmp_path / "home", tmp_path / "clone"
    home.mkdir()
    git(home, "init", "--quiet")
    git(home, "commit", "--quiet", "--allow-empty", "-m", "generation")
    git(tmp_path, "clone", "--quiet", str(home), str(clone))
    return home, clone


def test_notes_are_fetched_into_a_clone(clones: tuple[Path, Path]) -> None:
    home, clone = clones
    write_note(home, "HEAD", made_costs(1.0))
    assert not git(clone, "for-each-ref", notes_ref("go9"))
    assert read_note(clone, "go9", "HEAD") == made_costs(1.0)
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "next")
    write_note(clone, "HEAD", made_costs(2.0))
    git(clone, "push", "--quiet", "origin", notes_ref("go9"))  # a fast-forward: the clone had fetched the notes
    assert read_note(home, "go9", git(clone, "rev-parse", "HEAD^").strip()) == made_costs(1.0)


def test_new_notes_are_fetched_into_a_clone_that_has_older_ones(tmp_path: Path) -> None:
    home, clone = tmp_path / "home", tmp_path / "clone"
    home.mkdir()
    git(home, "init", "--quiet")
    for message in ("older", "newer"):
        git(home, "commit", "--quiet", "--allow-empty", "-m", message)
    write_note(home, "HEAD^", made_costs(1.0))
    git(tmp_path, "clone", "--quiet", str(home), str(clone))
    fetch_notes(clone, "go9")
    write_note(home, "HEAD", made_costs(2.0))
    assert read_note(clone, "go9", "HEAD", offline=True) is None
    assert read_note(clone, "go9", "HEAD") == made_costs(2.0)


def test_fetching_keeps_notes_that_only_the_clone_has(clones: tuple[Path, Path]) -> None:
    home, clone = clones
    write_note(clone, "HEAD", made_costs(1.0))
    write_note(home, "HEAD", made_costs(2.0))
    fetch_notes(clone, "go9")
    assert read_note(clone, "go9", "HEAD") == made_costs(1.0)


def test_a_folder_that_is_not_a_clone_has_no_notes(tmp_path: Path) -> None:
    assert read_note(tmp_path, "go9", "HEAD") is None


def test_fetching_without_any_note_is_not_an_error(clones: tuple[Path, Path]) -> None:
    _, clone = clones
    fetch_notes(clone, "go9")
    assert read_note(clone, "go9", "HEAD") is None


def made_costs(cpu_seconds: float) -> GenerationCosts:
    """Costs of generation 3 with the given CPU time of training."""
    training = made_stage_costs(seconds=1.5, cpu_seconds=cpu_seconds, workers=("here:1",))
    return GenerationCosts(lineage="go9", generation=3, stages={"training": training})
