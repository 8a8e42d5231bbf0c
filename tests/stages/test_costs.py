"""The cost ledger: what receipts and stages say is summed, is noted in git beside the record, and is never in it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.project import git
from tests.parameters import smoke_text
from zero.record.costs import GenerationCosts, fetch_notes, notes_ref, read_note, write_note
from zero.shards.meter import Meter
from zero.shards.spec import ShardReceipt
from zero.stages.costs import StageLine, generation_costs, receipts_of, stage_costs
from zero.storage.files import canonical_json, canonical_line, sha256_bytes, write_manifest
from zero.storage.layout import COSTS_DIR, GENERATION_FILE
from zero.storage.manifests import FileRef, GameSet, GenerationId, Origin, ShardRef
from zero.storage.store import Store

KEYS = ["aa" + "0" * 62, "bb" + "0" * 62]
SHA = sha256_bytes(b"games")
PROJECT_DIR = Path(__file__).resolve().parents[2]


def receipt(
    key: str, begun: float, seconds: float, worker: str = "here:1", joules: float | None = None
) -> ShardReceipt:
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
        joules=joules,
        pid=1,
    )


def put(store: Store, *receipts: ShardReceipt) -> None:
    for each in receipts:
        store.put_receipt(each.key, each.sha256, each.worker, canonical_json(each))


def line(stage: str, begun: float, seconds: float, cpu: float, worker: str = "here:9") -> StageLine:
    return StageLine(
        stage=stage, worker=worker, begun=begun, seconds=seconds, cpu_seconds=cpu, gpu_seconds=0.0, joules=None
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace at the end of generation 3, with two shards of self-play and two of the match."""
    folder = tmp_path / "workspace"
    write_manifest(folder, GenerationId(lineage="go9", number=3, resign_threshold=-1.0), GENERATION_FILE)
    origin = Origin(stage="selfplay", lineage="go9", generation=3, seed=1, params_digest=SHA, engine=SHA, inputs={})
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


def write_lines(workspace: Path, *lines: StageLine, torn: bytes = b"") -> None:
    path = workspace / COSTS_DIR / "gen-0003.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(map(canonical_line, lines)) + torn)


def test_receipts_are_summed_and_time_that_passes_twice_counts_once(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0), receipt(KEYS[1], 105.0, 10.0, worker="there:2"))
    write_lines(workspace, line("selfplay", 99.0, 2.0, 0.5))
    selfplay = generation_costs(workspace, store, 3).stages["selfplay"]
    assert selfplay.seconds == 16.0  # 99 to 115
    assert selfplay.cpu_seconds == 5.0 + 5.0 + 0.5
    assert (selfplay.games, selfplay.evaluations, selfplay.shards) == (24, 2000, 2)
    assert selfplay.workers == ("here:1", "here:9", "there:2")


def test_a_shard_that_was_played_twice_costs_twice(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0), receipt(KEYS[0], 200.0, 10.0, worker="there:2"))
    selfplay = generation_costs(workspace, store, 3).stages["selfplay"]
    assert (selfplay.seconds, selfplay.evaluations, selfplay.games) == (20.0, 2000, 24)


def test_shards_without_a_receipt_are_unknown(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0))
    costs = generation_costs(workspace, store, 3)
    assert costs.stages["selfplay"].shards_without_receipt == 1
    assert costs.stages["gating"].shards_without_receipt == 2
    assert costs.total().shards_without_receipt == 3


def test_of_each_process_the_last_line_counts_and_a_torn_one_does_not(workspace: Path, store: Store) -> None:
    write_lines(
        workspace,
        *(line("training", 100.0, 5.0, 4.0), line("training", 100.0, 10.0, 8.0)),
        line("training", 300.0, 6.0, 5.0, worker="here:10"),
        torn=b'{"stage": "training", "sec',
    )
    training = generation_costs(workspace, store, 3).stages["training"]
    assert (training.seconds, training.cpu_seconds) == (16.0, 13.0)


def test_energy_is_summed_where_it_is_known(workspace: Path, store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0, joules=40.0), receipt(KEYS[1], 100.0, 10.0))
    costs = generation_costs(workspace, store, 3)
    assert costs.stages["selfplay"].joules == costs.total().joules == 40.0
    assert costs.stages["gating"].joules is None


def test_a_receipt_of_another_version_is_passed_over(store: Store) -> None:
    put(store, receipt(KEYS[0], 100.0, 10.0))
    store.put_receipt(KEYS[0], SHA, "old", b'{"key": "of another time"}')
    assert [each.worker for each in receipts_of(store, KEYS[0])] == ["here:1"]


def test_a_stage_that_is_killed_has_told_what_it_spent(workspace: Path, store: Store) -> None:
    program = f"""
import time
from pathlib import Path
import zero.stages.costs
zero.stages.costs.BEAT_SECONDS = 0.05
with zero.stages.costs.stage_costs(Path({str(workspace)!r}), "replay"):
    print("begun", flush=True)
    while True:
        pass
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT_DIR, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
    killed = generation_costs(workspace, store, 3).stages["replay"]
    assert killed.seconds > 0.5 and killed.cpu_seconds > 0.2
    with stage_costs(workspace, "replay"):
        pass
    resumed = generation_costs(workspace, store, 3).stages["replay"]
    assert resumed.cpu_seconds > killed.cpu_seconds and len(resumed.workers) == 2


def test_a_stage_that_fails_is_counted(workspace: Path, store: Store) -> None:
    with pytest.raises(RuntimeError), stage_costs(workspace, "replay"):
        raise RuntimeError
    assert "replay" in generation_costs(workspace, store, 3).stages


def test_a_stage_goes_on_where_its_costs_cannot_be_written(
    workspace: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    (workspace / ".zero").write_text("in the way")
    with stage_costs(workspace, "replay"):
        pass
    assert "costs are not counted: cannot write" in caplog.text


def test_the_meter_of_a_stage_on_a_gpu_imports_torch_when_its_environment_is_set(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "params.yaml").write_text(smoke_text().replace("device: cpu", "device: cuda"))
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")  # restored at the end also where it was not set
    seen = []

    def meter(device: str, **_: bool) -> Meter:
        seen.append((device, "CUBLAS_WORKSPACE_CONFIG" in os.environ))
        return Meter()

    monkeypatch.setattr("zero.stages.costs.Meter", meter)
    with stage_costs(workspace, "training"):
        pass
    assert seen == [("cuda", True)]


def test_a_note_is_read_by_tag_and_replaced_and_changes_no_commit(tmp_path: Path) -> None:
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


def test_notes_are_fetched_into_a_clone(tmp_path: Path) -> None:
    home, clone = tmp_path / "home", tmp_path / "clone"
    home.mkdir()
    git(home, "init", "--quiet")
    git(home, "commit", "--quiet", "--allow-empty", "-m", "generation")
    write_note(home, "HEAD", made_costs(1.0))
    git(tmp_path, "clone", "--quiet", str(home), str(clone))
    assert not git(clone, "for-each-ref", notes_ref("go9"))
    assert read_note(clone, "go9", "HEAD") == made_costs(1.0)
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "next")
    write_note(clone, "HEAD", made_costs(2.0))
    git(clone, "push", "--quiet", "origin", notes_ref("go9"))  # it goes on from what was there
    assert read_note(home, "go9", git(clone, "rev-parse", "HEAD^").strip()) == made_costs(1.0)


def test_a_folder_that_is_no_clone_has_no_notes(tmp_path: Path) -> None:
    assert read_note(tmp_path, "go9", "HEAD") is None


def test_fetching_where_nothing_was_noted_is_no_error(tmp_path: Path) -> None:
    home, clone = tmp_path / "home", tmp_path / "clone"
    home.mkdir()
    git(home, "init", "--quiet")
    git(home, "commit", "--quiet", "--allow-empty", "-m", "generation")
    git(tmp_path, "clone", "--quiet", str(home), str(clone))
    fetch_notes(clone, "go9")
    assert read_note(clone, "go9", "HEAD") is None


def made_costs(cpu_seconds: float) -> GenerationCosts:
    """Costs of generation 3 that are told apart by their CPU time."""
    stages = {
        "training": {
            "seconds": 1.5,
            "cpu_seconds": cpu_seconds,
            "gpu_seconds": 0.0,
            "joules": None,
            "games": 0,
            "evaluations": 0,
            "shards": 0,
            "shards_without_receipt": 0,
            "workers": ["here:1"],
        }
    }
    return GenerationCosts.model_validate({"lineage": "go9", "generation": 3, "stages": stages})
