"""Who plays the shards of a run: processes of this machine, or workers of the `zero` pool."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import MissingResult

from zero.errors import StorageError, WorkerError
from zero.params import Params
from zero.shards.executor import Executor, LocalExecutor, Progress, ShardFailedError, num_local_processes
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.storage import Store

SHARD_DEPLOYMENT = "zero-shard/zero-shard"
POLL_SECONDS = 2.0


class RunEndedError(Exception):
    """A shard was given up because its run is over; no reason to play it again."""


class Players:
    """An executor that many tasks share, and that tells the death of a worker from the end of the run."""

    def __init__(self, executor: Executor) -> None:
        """Wraps `executor`."""
        self._executor = executor
        self._over = False

    def play(self, spec: ShardSpec, progress: Progress) -> ShardReceipt:
        """Plays one shard into the store.

        Raises:
          WorkerError: its process died; worth another try.
          RunEndedError: the run is over.
        """
        try:
            if not self._over:
                return self._executor.play(spec, progress)
        except Exception:
            if not self._over:
                raise
        raise RunEndedError(f"{spec.kind} from game {spec.first_game}: given up, the run is over")

    def give_up(self) -> None:
        """From now on no shard is begun, and one that fails is not played again."""
        self._over = True


class PoolExecutor:
    """Plays each shard as a run of the `zero-shard` deployment; its result must be readable here, as the store is."""

    def __init__(self, store: Store) -> None:
        """Plays into `store`, which the workers must use as well."""
        self._store = store

    def play(self, spec: ShardSpec, progress: Progress | None = None) -> ShardReceipt:
        """See `zero.shards.executor.Executor`."""
        run = cast(
            FlowRun,
            run_deployment(
                SHARD_DEPLOYMENT,
                parameters={"spec": spec.model_dump(mode="json")},
                poll_interval=POLL_SECONDS,
                idempotency_key=f"{spec.key()}-{uuid.uuid4()}",  # a second try is a second run
            ),
        )
        if run.state is None or not run.state.is_completed():
            ended = f"run {run.name} of {SHARD_DEPLOYMENT}: {run.state}"
            raise ShardFailedError(ended) if run.state and run.state.is_failed() else WorkerError(ended)
        try:
            receipt = ShardReceipt.model_validate(run.state.result())
        except (MissingResult, OSError, ValueError):
            raise StorageError(
                f"the result of run {run.name} cannot be read here; give all workers one result storage"
            ) from None
        if self._store.get_shard(spec.key()) is None:
            raise StorageError(
                f"run {run.name} did not play into the store {self._store.url}; give every worker the same ZERO_STORE"
            )
        if progress:
            progress(spec.num_games, spec.num_games)
        return receipt


def num_players(params: Params, num_shards: int) -> int:
    """Shards of a run that are played at once: by as many processes of this machine, or as the pool's workers can."""
    return num_shards if params.executor.kind == "pool" else min(num_local_processes(params), num_shards)


@contextlib.contextmanager
def players(workspace: Path, params: Params, store: Store, num_at_once: int) -> Iterator[Players]:
    """Players as the parameters say; leaving ends those of this machine, also in the middle of a game."""
    if params.executor.kind == "pool":
        yield Players(PoolExecutor(store))
        return
    num_gpus = num_at_once if params.profile.device == "cuda" else 0
    with LocalExecutor(workspace, num_at_once, store.url, num_gpus) as executor:
        team = Players(executor)
        try:
            yield team
        finally:
            team.give_up()
