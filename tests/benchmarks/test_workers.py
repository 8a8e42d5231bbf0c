"""The benchmark of workers that sleep: a real flow, Prefect's server, a scheduler, and a few short shards."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import Results, read_results
from benchmarks.sleepers import shard_bytes
from benchmarks.workers import checked_receipt, new_row, times_of_workers
from tests.end_to_end.project import SOURCE_DIR, environment_of
from tests.flows.examples import spec
from zero.errors import StorageError
from zero.stages.spec import ShardReceipt
from zero.storage.files import canonical_json
from zero.storage.store import Store


def receipt(worker: str, begun: float, seconds: float) -> ShardReceipt:
    return ShardReceipt(
        key=spec().key(),
        sha256="0" * 64,
        kind="selfplay",
        first_game=0,
        num_games=2,
        num_evaluations=0,
        worker=worker,
        begun=begun,
        seconds=seconds,
        cpu_seconds=0.0,
        gpu_seconds=0.0,
        pid=1,
    )


def test_times_are_those_between_the_shards_of_a_worker():
    receipts = [receipt("b", 5.0, 2.0), receipt("a", 1.0, 4.0), receipt("a", 5.5, 1.0), receipt("a", 7.0, 9.0)]
    assert times_of_workers(receipts) == ([1.0, 5.0], [0.5, 0.5])


def test_a_row_has_the_median_and_quantiles():
    figure = new_row("gap", "s", *range(100, -1, -1)).figure
    assert figure is not None and (figure.low, figure.median, figure.high) == (5, 50, 95)


def test_a_row_without_values_has_no_figure():
    """Such as the gaps between shards, if each worker plays one."""
    assert new_row("gap", "s").figure is None


def test_a_missing_shard_and_one_with_other_bytes_are_errors(tmp_path: Path):
    store, shard = Store(str(tmp_path)), spec()
    with pytest.raises(StorageError, match="is missing in the store"):
        checked_receipt(shard, store)
    store.put_receipt(shard.key(), "0" * 64, "a", canonical_json(receipt("a", 1.0, 4.0)))
    store.put_shard(shard.key(), shard_bytes(shard))
    assert checked_receipt(shard, store).seconds == 4.0
    store.quarantine_shard(shard.key(), "a test")
    store.put_shard(shard.key(), b"other bytes")
    with pytest.raises(StorageError, match="is wrong in the store"):
        checked_receipt(shard, store)


def measured(out: Path, *words: str) -> Results:
    command = [sys.executable, "-m", "benchmarks.workers", "--out", str(out), *words]
    subprocess.run(command, cwd=SOURCE_DIR, env=environment_of(), check=True, stdout=subprocess.DEVNULL)
    return read_results(out)


def test_shards_are_played_by_prefect_tasks_on_workers_of_which_some_are_killed(tmp_path: Path):
    options = ["--workers", "4", "--processes", "2", "--shards", "16", "--games", "2", "--seconds", "2"]
    rows = {row.name: row for row in measured(tmp_path / "out.json", *options, "--kill-seconds", "4").rows}
    figures = {name: row.figure.median for name, row in rows.items() if row.figure}
    assert 0 < figures["busy"] < 100
    assert 0 < figures["from a free worker to its next shard"] < 60
    assert figures["requests to Prefect's server"] > 0 and figures["rows in Prefect's database"] > 3
    assert figures["killed processes"] >= 1 and "processor time, workers" not in figures
    assert 0 <= figures["shards begun again"] <= 2 * figures["killed processes"], "two workers per process"


def test_without_prefect_shards_are_tasks_of_dask(tmp_path: Path):
    options = ["--workers", "2", "--processes", "1", "--shards", "6", "--games", "1", "--seconds", "1", "--no-prefect"]
    rows = {row.name for row in measured(tmp_path / "out.json", *options).rows}
    assert "processor time, scheduler" in rows and "requests to Prefect's server" not in rows
