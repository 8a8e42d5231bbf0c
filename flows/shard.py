"""The flow `zero-shard`: shards of games on any machine that has this code and reaches the store."""

from functools import partial
from pathlib import Path
from typing import Annotated

from prefect import flow, get_run_logger
from prefect.runtime import flow_run
from pydantic import Field

from flows.orphans import alone_on_gpu, end_with_worker, refusing_slowly
from flows.reports import ProgressBar
from zero.settings import open_store
from zero.shards.spec import ShardSpec
from zero.shards.worker import play_into_store


def run_name() -> str:
    """Name of a run in Prefect."""
    specs = flow_run.parameters["specs"]
    first = specs[0] if isinstance(specs[0], dict) else specs[0].model_dump()
    return f"{first['kind']}-{first['first_game']}"


@flow(name="zero-shard", flow_run_name=run_name)
def shard(specs: Annotated[list[ShardSpec], Field(min_length=1)]) -> None:
    """Plays shards into the store, where the weights of their players must be; those that are there are not played."""
    end_with_worker()
    logger = get_run_logger()
    total = sum(spec.num_games for spec in specs)
    with refusing_slowly(), alone_on_gpu(), open_store(Path.cwd()) as store:
        bar = ProgressBar("shard", specs[0].kind, "games", total, logger.info)
        for number, spec in enumerate(specs):
            receipt = play_into_store(spec, store, partial(bar.show, spec.key()), is_first=number == 0)
            bar.show(spec.key(), spec.num_games)
            logger.info(f"shard {receipt.key[:12]} is {receipt.sha256[:12]}: {receipt.num_games} games")
