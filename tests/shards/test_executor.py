"""The local executor with real workers, each a process of its own."""

import os
import signal
from pathlib import Path

import pytest

from zero.errors import WorkerError
from zero.network.weights import new_network, weights_bytes
from zero.params import Params, parse_params
from zero.presets import preset_text
from zero.shards.executor import LocalExecutor, ShardFailedError, gpu_name, num_local_processes, play_all
from zero.shards.records import read_records
from zero.shards.spec import ShardReceipt, ShardSpec, plan_shards
from zero.storage import Store

PROJECT_DIR = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def params() -> Params:
    return parse_params(preset_text("smoke"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def specs_of(params: Params, store: Store) -> list[ShardSpec]:
    digest = store.put_weights(weights_bytes(new_network(params.network, params.game, params.seed)))
    return plan_shards(params, "selfplay", params.selfplay, 1, (digest,))


@pytest.mark.parametrize(
    ("seen", "names"), [(None, ["0", "1", "2"]), ("3,5", ["3", "5", "3"]), ("GPU-a", ["GPU-a"] * 3), ("", [""] * 3)]
)
def test_a_worker_is_given_one_of_the_gpus_that_are_seen(
    monkeypatch: pytest.MonkeyPatch, seen: str | None, names: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert [gpu_name(number) for number in range(3)] == names


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_shards_are_played_into_the_store_and_the_workers_end(params: Params, store: Store) -> None:
    specs = specs_of(params, store)
    seen: list[tuple[int, int]] = []
    with LocalExecutor(PROJECT_DIR, 1, store.url) as executor:
        receipts = [executor.play(spec, lambda done, total: seen.append((done, total))) for spec in specs]
    assert [r.first_game for r in receipts] == [0, 12]
    assert receipts[0].pid == receipts[1].pid  # one warm worker for both
    assert not is_running(receipts[0].pid)
    assert seen[-1] == (12, 12)
    for spec, receipt in zip(specs, receipts, strict=True):
        shard = store.get_shard(spec.key())
        assert shard is not None and shard.sha256 == receipt.sha256
        assert read_records(shard.data, "shard").num_games == spec.num_games


def test_a_shard_has_a_receipt_of_what_it_cost_and_is_not_played_again(params: Params, store: Store) -> None:
    spec = specs_of(params, store)[0]
    with LocalExecutor(PROJECT_DIR, 1, store.url) as executor:
        first = executor.play(spec)
        (stored,) = store.get_receipts(spec.key())
        assert ShardReceipt.model_validate_json(stored) == first
        assert first.worker.endswith(f":{first.pid}") and first.num_evaluations > 100
        assert first.cpu_seconds > first.seconds / 2 > 0.0  # with the start of the process
        again = executor.play(spec)
    with LocalExecutor(PROJECT_DIR, 1, store.url) as executor:  # its worker died when the shard was in the store
        assert executor.play(spec) == again == first
    assert store.get_receipts(spec.key()) == [stored]


def test_a_shard_that_was_altered_in_the_store_is_played_again(params: Params, store: Store, tmp_path: Path) -> None:
    spec = specs_of(params, store)[0]
    with LocalExecutor(PROJECT_DIR, 1, store.url) as executor:
        first = executor.play(spec)
        next((tmp_path / "store/shards").rglob("*.parquet")).write_bytes(b"no games")
        assert executor.play(spec).begun > first.begun
    shard = store.get_shard(spec.key())
    assert shard is not None and shard.sha256 == first.sha256


def test_a_worker_killed_between_shards_is_replaced(params: Params, store: Store) -> None:
    specs = specs_of(params, store)
    with LocalExecutor(PROJECT_DIR, 1, store.url) as executor:
        first = executor.play(specs[0])
        os.kill(first.pid, signal.SIGKILL)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        second = executor.play(specs[1])
    assert second.pid != first.pid


def test_a_shard_whose_weights_are_missing_is_refused_with_the_reason(params: Params, store: Store) -> None:
    spec = specs_of(params, store)[0].model_copy(update={"weights": ("0" * 64,)})
    with (
        LocalExecutor(PROJECT_DIR, 1, store.url) as executor,
        pytest.raises(ShardFailedError, match="weights 000000000000 are not in the store"),
    ):
        executor.play(spec)


class DyingExecutor:
    """Its worker dies over every shard but every third."""

    def __init__(self) -> None:
        self.calls = 0

    def play(self, spec: ShardSpec, progress: object = None) -> object:
        self.calls += 1
        if self.calls % 3:
            raise WorkerError("the worker died")
        return None


def test_a_shard_is_tried_again_when_its_worker_dies(params: Params, store: Store) -> None:
    executor = DyingExecutor()
    play_all(executor, specs_of(params, store), 1)  # type: ignore[arg-type]
    assert executor.calls == 6


def test_a_worker_of_a_folder_without_the_code_is_an_error_with_its_last_words(
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
    other = params.model_copy(update={"executor": params.executor.model_copy(update={"num_processes": 7})})
    assert num_local_processes(other) == 7
    assert [s.key() for s in specs_of(params, store)] == [s.key() for s in specs_of(other, store)]


def test_how_a_network_is_trained_changes_no_key(params: Params, store: Store) -> None:
    training = {"training_threads": 7, "training_processes": 2, "training_precision": "bf16"}
    other = params.model_copy(update={"profile": params.profile.model_copy(update=training)})
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
        "temperature_moves": 99,
        "dirichlet_concentration": 1.5,
        "dirichlet_fraction": 0.5,
        "forced_playouts": 1.5,
        "full_search_fraction": 0.5,
        "calibration_fraction": 0.9,
        "resign_threshold": -0.75,
    }
    numbers = {"seed", "generation", "first_game", "num_games", "num_slots", "num_simulations", "fast_simulations"}
    assert set(changes) | numbers | {"version"} == set(ShardSpec.model_fields)
    changes |= {name: 7 for name in numbers}
    keys = {spec.model_copy(update={name: value}).key() for name, value in changes.items()}
    assert len(keys | {spec.key()}) == len(changes) + 1
