"""The local executor with real worker processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest

from tests.parameters import with_sections
from zero.config.params import Params, parse_params, preset_text
from zero.data.records import read_records
from zero.errors import WorkerError
from zero.network.gpu_lock import LOCKS_VARIABLE, lock_gpus
from zero.network.weights import new_network, weights_bytes
from zero.stages.executor import LocalExecutor, ShardFailedError, num_local_processes, play_all
from zero.stages.spec import ShardReceipt, ShardSpec, plan_shards
from zero.storage.store import Store

PROJECT_DIR = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def params() -> Params:
    return parse_params(preset_text("smoke"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    """An executor with one worker, whose start takes most of the time of a test; each test plays its own seed."""
    with LocalExecutor(PROJECT_DIR, 1, str(tmp_path_factory.mktemp("store"))) as executor:
        yield executor


def specs_of(params: Params, store: Store, seed: int = 1) -> list[ShardSpec]:
    digest = store.put_weights(weights_bytes(new_network(params.network, params.game, params.seed)))
    return plan_shards(params.model_copy(update={"seed": seed}), "selfplay", 1, (digest,))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_shards_are_played_with_receipts_and_not_again_and_the_workers_end(params: Params, store: Store) -> None:
    specs = specs_of(params, store)
    seen: list[tuple[int, int]] = []
    with LocalExecutor(PROJECT_DIR, 1, store.url) as executor:
        first, second = (executor.play(spec, lambda done, total: seen.append((done, total))) for spec in specs)
        assert executor.play(specs[0]) == first
    assert seen[-1] == (12, 12)
    assert first.pid == second.pid and not is_running(first.pid), "one warm worker for both"
    assert first.worker.endswith(f":{first.pid}") and first.num_evaluations > 100
    assert first.cpu_seconds > second.cpu_seconds > 0.0, "the first is charged for the start of the process"
    for spec, receipt in zip(specs, (first, second), strict=True):
        shard = store.get_shard(spec.key())
        assert shard is not None and shard.sha256 == receipt.sha256
        games = read_records(shard.data, "shard")
        assert (games.game[0], games.num_games) == (receipt.first_game, spec.num_games)
        (stored,) = store.get_receipts(spec.key())
        assert ShardReceipt.model_validate_json(stored) == receipt


def test_a_corrupt_shard_in_the_store_is_played_again(params: Params, pool: LocalExecutor) -> None:
    store = Store(pool.store_url)
    spec = specs_of(params, store, seed=2)[0]
    first = pool.play(spec)
    next(Path(store.url, "shards").rglob(f"{spec.key()}.*.parquet")).write_bytes(b"no games")
    assert pool.play(spec).begun > first.begun
    shard = store.get_shard(spec.key())
    assert shard is not None and shard.sha256 == first.sha256


def test_a_worker_killed_between_shards_is_replaced(params: Params, pool: LocalExecutor) -> None:
    specs = specs_of(params, Store(pool.store_url), seed=3)
    first = pool.play(specs[0])
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    assert pool.play(specs[1]).pid != first.pid


def test_a_shard_with_missing_weights_is_rejected_with_the_reason(params: Params, pool: LocalExecutor) -> None:
    spec = specs_of(params, Store(pool.store_url))[0].model_copy(update={"weights": ("0" * 64,)})
    with pytest.raises(ShardFailedError, match="weights 000000000000 are not in the store"):
        pool.play(spec)


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of GPU locks for this test only; the processes see one GPU."""
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    return tmp_path / "locks"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_workers_get_the_gpus_in_turn_and_lock_out_others(
    monkeypatch: pytest.MonkeyPatch, params: Params, store: Store, locks: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    specs = [*specs_of(params, store), *specs_of(params, store, seed=2)]
    taken: list[float] = []

    def take() -> None:
        with lock_gpus(["GPU-a"]):
            taken.append(time.monotonic())

    other = Thread(target=take)
    with LocalExecutor(PROJECT_DIR, 3, store.url, num_gpus=2) as executor, ThreadPoolExecutor(3) as threads:
        pids = {receipt.pid for receipt in threads.map(executor.play, specs[:3])}
        workers = [psutil.Process(pid) for pid in pids]
        used = [worker.environ()["CUDA_VISIBLE_DEVICES"] for worker in workers]
        assert sorted(used) == ["GPU-a", "GPU-a", "GPU-b"]
        for worker in workers:
            assert str(locks / "GPU-a.lock") in [file.path for file in worker.open_files()]
        assert sorted(path.stem for path in locks.iterdir()) == ["GPU-a", "GPU-b"], "the third is not locked"
        other.start()
        time.sleep(1.0)
        assert not taken
        closing = time.monotonic()
    other.join()
    assert taken[0] > closing


def test_an_executor_that_waits_for_a_gpu_can_be_closed(params: Params, store: Store, locks: Path) -> None:
    spec = specs_of(params, store)[0]
    with lock_gpus(["GPU-a"]), ThreadPoolExecutor(1) as threads:
        executor = LocalExecutor(PROJECT_DIR, 1, store.url, num_gpus=1)
        shard = threads.submit(executor.play, spec)
        wait_for(lambda: (locks / "GPU-a.lock").exists())
        executor.close()
        with pytest.raises(ShardFailedError, match="the executor was closed"):
            shard.result(20.0)


def test_a_shard_played_by_the_command_waits_for_the_gpu(
    params: Params, store: Store, locks: Path, tmp_path: Path
) -> None:
    device = params.profile.model_copy(update={"device": "cuda", "backend": "torch"})
    spec = specs_of(params, store)[0].model_copy(update={"device": device})
    (tmp_path / "spec.json").write_text(spec.model_dump_json())
    command = [sys.executable, "-m", "zero", "shard", str(tmp_path / "spec.json")]
    environment = os.environ | {"ZERO_STORE": store.url}
    with (
        lock_gpus(["GPU-a"]),
        subprocess.Popen(command, cwd=PROJECT_DIR, env=environment, stderr=subprocess.PIPE, text=True) as child,
    ):
        assert child.stderr is not None
        assert child.stderr.readline().startswith(f"GPU GPU-a is in use by process {os.getpid()} of ")
        child.kill()


def test_a_shard_is_played_again_after_its_worker_dies(
    params: Params, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[ShardSpec] = []

    def play(_executor: LocalExecutor, spec: ShardSpec, _progress: object) -> None:
        played.append(spec)
        if len(played) % 3:  # two of three workers die
            raise WorkerError("the worker died")

    monkeypatch.setattr(LocalExecutor, "play", play)
    specs = specs_of(params, store)
    play_all(PROJECT_DIR, params, specs, store.url)  # with one process
    assert played == [*[specs[0]] * 3, *[specs[1]] * 3]


def test_a_worker_that_cannot_be_started_may_be_tried_again_and_leaves_no_open_file(
    params: Params, store: Store, tmp_path: Path
) -> None:
    spec = specs_of(params, store)[0]
    before = psutil.Process().num_fds()
    with (
        LocalExecutor(tmp_path / "missing", 1, store.url) as executor,
        pytest.raises(WorkerError, match=r"cannot start a worker in .*missing: No such file or directory; check that"),
    ):
        executor.play(spec)
    assert psutil.Process().num_fds() == before


def test_ctrl_c_while_the_shards_are_submitted_ends_those_in_play(
    params: Params, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, ended = Event(), list[bool]()
    submit, close = ThreadPoolExecutor.submit, LocalExecutor.close

    def interrupt(*arguments: Any) -> Any:
        if arguments[-1] == 1:
            raise KeyboardInterrupt
        return submit(*arguments)

    def end(executor: LocalExecutor) -> None:
        closed.set()
        close(executor)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupt)
    monkeypatch.setattr(LocalExecutor, "close", end)
    monkeypatch.setattr(LocalExecutor, "play", lambda *_: ended.append(closed.wait(10.0)))
    with pytest.raises(KeyboardInterrupt):
        play_all(PROJECT_DIR, params, specs_of(params, store)[:2], store.url)
    assert ended == [True]


PLAY_ALL = """
import sys
from pathlib import Path
from zero.config.params import parse_params, preset_text
from zero.stages.executor import play_all
from zero.stages.spec import ShardSpec
folder, specs, store = sys.argv[1:]
specs = [ShardSpec.model_validate_json(line) for line in Path(specs).open()]
play_all(Path(folder), parse_params(preset_text("smoke")), specs, store, lambda *_: print(flush=True))
"""


def test_ctrl_c_ends_the_shards_in_play_and_starts_no_other(params: Params, store: Store, tmp_path: Path) -> None:
    specs = [spec for seed in range(4) for spec in specs_of(params, store, seed)]
    (tmp_path / "specs").write_text("".join(f"{spec.model_dump_json()}\n" for spec in specs))
    with subprocess.Popen(
        [sys.executable, "-c", PLAY_ALL, str(PROJECT_DIR), str(tmp_path / "specs"), store.url],
        cwd=PROJECT_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout and child.stderr
        child.stdout.readline()  # a shard is in play
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to the workers too
        assert child.stderr.read().endswith("KeyboardInterrupt\n")
    assert sum(store.get_shard(spec.key()) is not None for spec in specs) < len(specs) / 2


def test_a_worker_in_a_folder_without_the_code_is_an_error_with_its_log_tail(
    params: Params, store: Store, tmp_path: Path
) -> None:
    package = tmp_path / "broken" / "zero"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("raise SystemExit('this checkout is broken')")
    (package / "__init__.py").write_text("")
    with (
        LocalExecutor(package.parent, 1, store.url) as executor,
        pytest.raises(WorkerError, match=r"ended with status 1 .* this checkout is broken"),
    ):
        executor.play(specs_of(params, store)[0])


def test_the_number_of_processes_changes_no_key(params: Params, store: Store) -> None:
    other = with_sections(params, executor={"num_processes": 7})
    assert num_local_processes(other) == 7
    assert [s.key() for s in specs_of(params, store)] == [s.key() for s in specs_of(other, store)]


def test_two_processes_share_a_gpu_by_default(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,5")
    given, by_default = (
        with_sections(params, profile={"device": "cuda"}, executor={"num_processes": number}) for number in (4, 0)
    )
    assert (num_local_processes(given), num_local_processes(by_default)) == (4, 6)


def test_how_a_network_is_trained_changes_no_key(params: Params, store: Store) -> None:
    training = {"training_threads": 7, "training_processes": 2, "training_precision": "bf16"}
    other = with_sections(params, profile=training)
    assert [s.key() for s in specs_of(params, store)] == [s.key() for s in specs_of(other, store)]


def test_every_field_of_a_spec_is_in_its_key(params: Params, store: Store) -> None:
    spec = specs_of(params, store)[0]
    changes = {
        "kind": "gating",
        "game": spec.game.model_copy(update={"komi": 3.5}),
        "search": spec.search.model_copy(update={"c_puct": 2.5}),
        "weights": ("1" * 64,),
        "device": spec.device.model_copy(update={"precision": "bf16"}),
        "engine": "2" * 64,
        "lock_file": "3" * 64,
        "profile": {**spec.profile, "torch": "1.0"},
        "play": spec.play.model_copy(update={"temperature_moves": 99}),
        "resign_threshold": -0.75,
    }
    numbers = {"seed", "generation", "first_game", "num_games"}
    assert set(changes) | numbers | {"version"} == set(ShardSpec.model_fields)
    changes |= {name: 7 for name in numbers}
    keys = {spec.model_copy(update={name: value}).key() for name, value in changes.items()}
    assert len(keys | {spec.key()}) == len(changes) + 1
