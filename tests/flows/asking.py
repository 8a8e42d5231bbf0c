"""What `flows.pool` does on a real Prefect server: `python -m tests.flows.asking`, which prints what it saw as JSON.

There is no worker. This program says to the server what workers would say, and puts what they would put into the store.
"""

import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed, Crashed, Failed

from flows import pool, tasks
from flows.orphans import REFUSED
from flows.players import SHARD_DEPLOYMENT, Interruption
from tests.flows.examples import receipt, spec
from zero.artifacts import GenerationId, canonical_json, sha256_bytes
from zero.errors import WorkerError
from zero.shards.spec import ShardSpec
from zero.storage import Store

TURN = GenerationId(lineage="asking", number=1, resign_threshold=-1.0)
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
    with ThreadPoolExecutor() as threads, pool.Runs(said.append) as runs:
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
        tasks.play_in_pool(shards, TURN, "selfplay", store, Interruption())

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
    with get_client(sync_client=True) as client:
        seen = {
            "refused": refused_twice(client),
            "hopeless": refused_by_all(client),
            "deleted": deleted(client),
            "stage": stage(client),
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
