"""The pool's own worker: when it asks, and what of the answer it takes."""

from uuid import uuid4

import anyio
import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.workers.base import BaseWorker

from flows.worker import PlayerWorker, any_order
from infra.pools import WORKER_TYPE


class NotToBeAskedError(Exception):
    """A worker asked the server."""


class Client:
    """A server that must not be asked."""

    async def get_scheduled_flow_runs_for_work_pool(self, **_: object) -> None:
        raise NotToBeAskedError


async def runs_for(num_busy: int) -> list[WorkerFlowRunResponse]:
    """What a worker that may do two runs at once gets, with so many in hand."""
    worker = PlayerWorker(work_pool_name="zero-gpu", limit=2)
    worker._client = Client()  # type: ignore[assignment]
    worker._limiter = anyio.CapacityLimiter(2)
    for run in range(num_busy):
        worker._limiter.acquire_on_behalf_of_nowait(run)
    return await worker._get_scheduled_flow_runs()


def scheduled(*queues: int) -> list[WorkerFlowRunResponse]:
    """Runs of these queues, in the order in which the server lists them."""
    pool, ids = uuid4(), {queue: uuid4() for queue in queues}
    return [
        WorkerFlowRunResponse(work_pool_id=pool, work_queue_id=ids[queue], flow_run=FlowRun(flow_id=uuid4()))
        for queue in queues
    ]


def test_a_worker_asks_for_work_only_while_it_can_begin_some() -> None:
    assert anyio.run(runs_for, 2) == []
    with pytest.raises(NotToBeAskedError):
        anyio.run(runs_for, 1)


def test_it_takes_any_run_of_the_queue_that_is_served_first() -> None:
    found = scheduled(1, 1, 1, 1, 2, 2)
    seen = {any_order(found)[0].flow_run.id for _ in range(200)}
    assert seen == {entry.flow_run.id for entry in found[:4]}
    assert {entry.flow_run.id for entry in any_order(found)} == seen
    assert any_order([]) == []


def test_prefect_finds_it_by_the_type_of_the_pool() -> None:
    assert BaseWorker.get_worker_class_from_type(WORKER_TYPE) is PlayerWorker
