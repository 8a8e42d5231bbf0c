"""The flow `zero-shard`: shards of games on any machine that has this code and reaches the store."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

from flows.orphans import end_when_given_up, end_with_worker, refusing_slowly, understood
from flows.reports import ProgressBar
from zero.network.gpu_lock import lock_visible_gpus
from zero.shards.spec import ShardSpec
from zero.shards.worker import play_into_store
from zero.storage.store import open_store


def run_name() -> str:
    """Name of a run in Prefect."""
    first = flow_run.parameters["specs"][0]
    return f"{first.get('kind', 'shard')}-{first.get('first_game', '')}"


@flow(name="zero-shard", flow_run_name=run_name)
def shard(specs: Annotated[list[dict[str, Any]], Field(min_length=1)]) -> None:
    """Plays shards into the store, where the weights of their players must be; those that are there are not played.

    Each is a `ShardSpec`. They are read here and not by Prefect's engine: a worker whose code has another one refuses.
    """
    end_with_worker()
    end_when_given_up()
    logger = get_run_logger()
    with refusing_slowly(), open_store(Path.cwd()) as store:
        wanted = [understood(ShardSpec, spec) for spec in specs]
        bar = ProgressBar("shard", wanted[0].kind, "games", sum(spec.num_games for spec in wanted), logger.info)
        with lock_visible_gpus(wanted[0].device, logger.warning):
            for number, spec in enumerate(wanted):
                receipt = play_into_store(spec, store, partial(bar.show, spec.key()), is_first=number == 0)
                bar.show(spec.key(), spec.num_games)
                logger.info(f"shard {receipt.key[:12]} is {receipt.sha256[:12]}: {receipt.num_games} games")
