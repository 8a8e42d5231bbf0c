"""The flow `zero-shard`: one shard of games on any machine that has this code and reaches the store."""

from pathlib import Path

from prefect import flow, get_run_logger

from flows.reports import ProgressBar
from zero.settings import open_store
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.shards.worker import play_into_store


@flow(name="zero-shard", flow_run_name="{spec.kind}-{spec.first_game}", persist_result=True, result_serializer="json")
def shard(spec: ShardSpec) -> ShardReceipt:
    """Plays a shard into the store, where the weights of its players must be."""
    with open_store(Path.cwd()) as store:
        bar = ProgressBar("shard", spec.kind, "games", spec.num_games, get_run_logger().info)
        return play_into_store(spec, store, lambda done: bar.show(spec.key(), done))
