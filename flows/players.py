"""Who plays the shards of a run: processes of this machine, or workers of the pool `zero-gpu`."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

from flows.pool import RunEndedError, Runs
from zero.config.params import Params
from zero.errors import StorageError, WorkerError
from zero.shards.executor import Executor, LocalExecutor, Progress
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.shards.worker import finished_receipt
from zero.storage.store import Store

SHARD_DEPLOYMENT = "zero-shard/zero-shard"


class Interruption:
    """Lets one thread end what others play."""

    def __init__(self) -> None:
        """Nothing plays yet."""
        self._lock = Lock()
        self._over = False
        self._enders: list[Callable[[], None]] = []

    def ends(self, ender: Callable[[], None]) -> None:
        """From now on `ender` is called when all shall end; at once, where it shall already."""
        with self._lock:
            self._enders.append(ender)
            over = self._over
        if over:
            ender()

    def interrupt(self) -> None:
        """Ends what plays, and what would begin later."""
        with self._lock:
            self._over = True
            enders = list(self._enders)
        for ender in enders:
            ender()


class Players:
    """An executor that many tasks share, and that tells the death of a worker from the end of the run."""

    def __init__(self, executor: Executor, close: Callable[[], None] = lambda: None) -> None:
        """Wraps `executor`, which `close` ends in the middle of a game."""
        self._executor = executor
        self._close = close
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
        """Ends what is being played; no shard is begun any more, and none that fails is played again."""
        self._over = True
        self._close()


class PoolPlayers:
    """Plays shards as runs of the `zero-shard` deployment; the receipts are read from the store, as the games are."""

    def __init__(self, store: Store, runs: Runs) -> None:
        """Plays into `store`, which the workers must use as well."""
        self._store = store
        self._runs = runs
        self._seconds: list[float] = []

    def play(self, specs: Sequence[ShardSpec], key: str) -> list[ShardReceipt]:
        """Plays shards one after the other on one worker; `key` names this try.

        Raises:
          WorkerError: they were not all played, or not all are still there; worth another try, for those that are there
            are not played again.
          StorageError: they were played, but not into this store.
        """
        name = self._runs.run(
            SHARD_DEPLOYMENT, {"specs": [spec.model_dump(mode="json") for spec in specs]}, specs[0].kind, key
        )
        receipts = [finished_receipt(spec, self._store) for spec in specs]
        played = [receipt for receipt in receipts if receipt]
        if not played:
            raise StorageError(
                f"run {name} did not play into the store {self._store.url}; give every worker the same ZERO_STORE"
            )
        if len(played) < len(specs):
            raise WorkerError(
                f"of {len(specs)} shards of run {name} {len(played)} are whole in the store {self._store.url}"
            )
        self._seconds += [receipt.seconds for receipt in played]
        return played

    def seconds_a_shard(self) -> float | None:
        """What a shard took so far, on average; None where none has ended."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else None


@contextlib.contextmanager
def players(workspace: Path, params: Params, store: Store, num_at_once: int) -> Iterator[Players]:
    """Players of this machine; leaving ends them, also in the middle of a game."""
    num_gpus = num_at_once if params.profile.device == "cuda" else 0
    with LocalExecutor(workspace, num_at_once, store.url, num_gpus) as executor:
        team = Players(executor, executor.close)
        try:
            yield team
        finally:
            team.give_up()
