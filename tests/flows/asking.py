"""What `flows.pool` does on a real Prefect server: `python -m tests.flows.asking`, which prints what it saw as JSON.

There is no worker. This program says to the server what workers would say, and puts what they would put into the store.
"""

import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun, State
from prefect.deployments import run_deployment
from prefect.states import Completed, Crashed, Failed, Pending, Running

from flows import pool, tasks
from flows.orphans import HOPELESS, REFUSED
from flows.players import SHARD_DEPLOYMENT, Interruption
from tests.flows.examples import receipt, spec
from zero.errors import ParamsError, WorkerError
from zero.shards.spec import ShardSpec
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import GenerationId
from zero.storage.store import Store

TURN = GenerationId(lineage="asking", number=1, resign_threshold=-1.0)
OWNER = "asking 0123"
NUM_PODS = 3
PATIENCE_SECONDS = 120.0
PARAMETERS = {"specs": [spec().model_dump(mode="json")]}


def find(client: SyncPrefectClient, part_of_key: str) -> list[FlowRun]:
    """Runs of `zero-shard` whose key has these words, the last one first."""
    runs = client.read_flow_runs(flow_run_filter=FlowRunFilter())
    return [run for run in runs if part_of_key in (run.idempotency_key or "")]


def asked(client: SyncPrefectClient, key: str) -> FlowRun:
    """The run of a key, as soon as it is there."""
    wanted = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
    while not (found := client.read_flow_runs(flow_run_filter=wanted)):
        time.sleep(0.1)
    return found[0]


def until(condition: Callable[[], Any]) -> None:
    """Waits for it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.3)


def one_run(client: SyncPrefectClient, key: str, worker: Callable[[list[str]], Any]) -> dict[str, Any]:
    """A run that `worker` takes meanwhile: how it ended, and what a person was told."""
    said: list[str] = []
    with ThreadPoolExecutor() as threads, pool.Runs(OWNER, said.append) as runs:
        asking = threads.submit(runs.run, SHARD_DEPLOYMENT, PARAMETERS, "selfplay", key)
        did = worker(said)
        try:
            end = asking.result(PATIENCE_SECONDS)
        except WorkerError as error:
            end = str(error)
    return {"end": end, "did": did, "said": said}


def refused_twice(client: SyncPrefectClient) -> dict[str, Any]:
    """Two workers have other code, the third has not."""

    def worker(_said: list[str]) -> str:
        for key in ("refused", "refused-1"):
            client.set_flow_run_state(asked(client, key).id, Failed(name=REFUSED, message="other code"), force=True)
        run = asked(client, "refused-2")
        client.set_flow_run_state(run.id, Completed(), force=True)
        return run.name

    return one_run(client, "refused", worker)


def refused_by_all(client: SyncPrefectClient) -> str:
    """Nobody can do it."""

    def worker(_said: list[str]) -> None:
        for key in ("hopeless", "hopeless-1"):
            client.set_flow_run_state(asked(client, key).id, Failed(name=REFUSED, message="other code"), force=True)
            time.sleep(2 * pool.POLL_SECONDS)

    pool.REFUSED_SECONDS = 0.2
    try:
        return str(one_run(client, "hopeless", worker)["end"])
    except pool.RefusedError as error:
        return f"RefusedError: {error}"


def diverged(client: SyncPrefectClient) -> str:
    """Nobody could do it."""

    def worker(_said: list[str]) -> None:
        end(client, asked(client, "diverged"), Failed(name=HOPELESS, message="the loss is nan"))

    try:
        return str(one_run(client, "diverged", worker)["end"])
    except ParamsError as error:
        return f"ParamsError: {error}"


def not_begun(client: SyncPrefectClient) -> str:
    """A worker takes it, and dies."""

    def worker(_said: list[str]) -> None:
        end(client, asked(client, "taken"), Pending())

    pool.PENDING_SECONDS, usual = 1.0, pool.PENDING_SECONDS
    try:
        return str(one_run(client, "taken", worker)["end"])
    finally:
        pool.PENDING_SECONDS = usual


def left_over(client: SyncPrefectClient) -> dict[str, Any]:
    """Runs of an owner who was killed, one of them playing; one of another owner, and one that has ended."""

    def made(key: str, owner: str) -> FlowRun:
        run = run_deployment(SHARD_DEPLOYMENT, parameters=PARAMETERS, timeout=0, idempotency_key=key, tags=[owner])
        assert isinstance(run, FlowRun)
        return run

    runs = {name: made(f"left-{name}", OWNER) for name in ("waits", "plays", "ended")}
    runs["another's"] = made("left-another", "asking 4567")
    end(client, runs["plays"], Running())
    end(client, runs["ended"], Completed())
    num_left = pool.end_leftovers(OWNER)
    return {"number": num_left, "states": {name: state_of(client, run) for name, run in runs.items()}}


def state_of(client: SyncPrefectClient, run: FlowRun) -> str:
    """Its type."""
    state = client.read_flow_run(run.id).state
    assert state
    return state.type.value


def training(client: SyncPrefectClient) -> dict[str, Any]:
    """A training whose first worker crashes."""
    workspace = Path(tempfile.mkdtemp())
    (workspace / "zero").mkdir()
    (workspace / "zero/__init__.py").touch()
    (workspace / "zero/__main__.py").write_text("import json, sys; print(json.dumps({'words': sys.argv[1:]}))")

    @flow(name="asking")
    def parent() -> None:
        tasks.train_in_pool(workspace, TURN)

    def waiting() -> list[FlowRun]:
        runs = client.read_flow_runs(flow_run_filter=FlowRunFilter())
        return [
            run
            for run in runs
            if "-training-" in (run.idempotency_key or "") and run.state and not run.state.is_final()
        ]

    with ThreadPoolExecutor() as threads:
        playing = threads.submit(parent, return_state=True)
        until(waiting)
        first = waiting()[0]
        end(client, first, Crashed(message="no GPU"))
        until(lambda: [run for run in waiting() if run.id != first.id])
        second = waiting()[0]
        end(client, second, Completed())
        state: State[Any] = playing.result(PATIENCE_SECONDS)
    return {"asked": [first.parameters, second.parameters], "queue": second.work_queue_name, "end": state.type.value}


def deleted(client: SyncPrefectClient) -> dict[str, Any]:
    """No worker is there for a while; then somebody deletes the run."""

    def worker(said: list[str]) -> None:
        run = asked(client, "deleted")
        until(lambda: said)
        client.delete_flow_run(run.id)

    return one_run(client, "deleted", worker)


def put(shard: ShardSpec, store: Store) -> None:
    """Stores a shard that nobody has played."""
    data = b"games"
    played = receipt(shard).model_copy(update={"sha256": sha256_bytes(data), "seconds": 1000.0})
    store.put_receipt(played.key, played.sha256, played.worker, canonical_json(played))
    store.put_shard(played.key, data)


def stage(client: SyncPrefectClient) -> dict[str, Any]:
    """Nine shards: a worker takes two, pods come, one run fails in all its tries."""
    shards = [spec(first_game) for first_game in range(0, 108, 12)]
    store = Store(tempfile.mkdtemp())

    def runs() -> list[FlowRun]:
        return [run for run in find(client, "-selfplay-") if run.parameters["specs"]]

    def waiting() -> list[FlowRun]:
        return [run for run in runs() if run.state and run.state.is_scheduled()]

    @flow(name="asking")
    def parent() -> None:
        tasks.play_in_pool(shards, TURN, "selfplay", store, Interruption(), OWNER)

    with ThreadPoolExecutor() as threads:
        playing = threads.submit(parent, return_state=True)
        until(waiting)
        time.sleep(2 * pool.WIDTH_SECONDS)
        without_workers = [len(run.parameters["specs"]) for run in waiting()]
        client.update_work_pool(pool.POOL, WorkPoolUpdate(concurrency_limit=NUM_PODS))
        until(lambda: len(waiting()) == NUM_PODS + 1)
        with_pods = len(waiting())
        good, bad = waiting()[:2]
        for shard in good.parameters["specs"]:
            put(ShardSpec.model_validate(shard), store)
        end(client, good, Completed())
        until(lambda: len(waiting()) == with_pods)
        bad_shard = bad.parameters["specs"]
        end(client, bad, Crashed(message="no GPU"))
        until(lambda: [run for run in waiting() if run.parameters["specs"] == bad_shard])
        end(client, next(run for run in waiting() if run.parameters["specs"] == bad_shard), Crashed(message="no GPU"))
        state: State[Any] = playing.result(PATIENCE_SECONDS)
    states = sorted(str(run.state_name) for run in runs())
    keys = sorted({str(run.idempotency_key)[36:] for run in runs() if run.parameters["specs"] == bad_shard})
    return {
        "without_workers": without_workers,
        "with_pods": with_pods,
        "end": state.message,
        "states": states,
        "keys": keys,
    }


def end(client: SyncPrefectClient, run: FlowRun, state: State[Any]) -> None:
    """What a worker says when a run has ended."""
    client.set_flow_run_state(run.id, state, force=True)


def main() -> None:
    """All of it, quickly."""
    pool.POLL_SECONDS, pool.AGAIN_SECONDS, pool.LONELY_SECONDS, pool.WIDTH_SECONDS = 0.3, 0.1, 1.0, 1.0
    tasks.play_run = tasks.play_run.with_options(retries=1, retry_delay_seconds=0)
    pool.owner_of = lambda home, lineage: OWNER
    with get_client(sync_client=True) as client:
        seen = {
            "refused": refused_twice(client),
            "hopeless": refused_by_all(client),
            "diverged": diverged(client),
            "taken": not_begun(client),
            "left": left_over(client),
            "training": training(client),
            "deleted": deleted(client),
            "stage": stage(client),
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
