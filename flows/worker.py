"""Prefect's process worker, for many that share a queue: it asks for work only while it has none, and takes any of it.

Prefect's own asks all the time, also while it plays, and takes the first run of the list. With 64 of them most
questions are for nothing, and all that are idle try the same run: one gets it, and the others ask again.
"""

import os
import random
import sys
from pathlib import Path
from typing import Any

from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.workers.process import ProcessWorker

from flows.begin import LEASH_VARIABLE
from flows.plugin import WORKER_VARIABLE
from flows.processes import Leash

SHARED_MODULES = ("prefect.engine", "flows.shard", "flows.training")
"""What its runs import, each of them."""


class PlayerWorker(ProcessWorker):
    """The type `zero` of workers and pools: `prefect worker start --pool zero-gpu --limit 1`."""

    type = "zero"
    _display_name = "zero"
    _description = "Plays and trains in processes of this machine, one at a time."

    forks = sys.platform == "linux"
    """Elsewhere a run would not find its worker among its ancestors (flows/orphans.py)."""

    async def __aenter__(self) -> "PlayerWorker":
        self._leash = open_leash() if self.forks else None
        await super().__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        try:
            await super().__aexit__(*exc_info)
        finally:
            if self._leash:
                self._leash.close()

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """The runs of the first queue that has any, in any order; none where nothing could be begun."""
        if self._limiter and self._limiter.available_tokens < 1:
            return []
        return any_order(await super()._get_scheduled_flow_runs())


def open_leash() -> Leash:
    """What the runs of this process are forks of, which end when this process does."""
    leash = Leash(Path(__file__).parents[1], SHARED_MODULES)
    os.environ |= {LEASH_VARIABLE: leash.address, WORKER_VARIABLE: str(os.getpid())}
    return leash


def any_order(found: list[WorkerFlowRunResponse]) -> list[WorkerFlowRunResponse]:
    """Those of the first one's queue, shuffled: the server lists the queue that is served first at the beginning."""
    first = [entry for entry in found if entry.work_queue_id == found[0].work_queue_id]
    return random.sample(first, len(first))
