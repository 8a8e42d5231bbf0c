"""Real shards of the `smoke` preset, played in this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from tests.parameters import smoke
from zero.config.params import Params, parse_params
from zero.data.records import GameColumns, read_records
from zero.network.weights import new_network, weights_bytes
from zero.stages.spec import ShardSpec, plan_shards
from zero.stages.worker import play_into_store
from zero.storage.manifests import NO_RESIGNATION
from zero.storage.store import Store


class PlayedShard(NamedTuple):
    """A shard, its specification and its games."""

    spec: ShardSpec
    data: bytes
    games: GameColumns


def smoke_params(**changes: Mapping[str, object]) -> Params:
    """The `smoke` preset with sections changed, as `selfplay={"num_games": 8}`; a changed `game` is replaced."""
    tree = smoke()
    for section, fields in changes.items():
        tree[section] = dict(fields) if section == "game" else tree[section] | dict(fields)
    return parse_params(yaml.safe_dump(tree))


def put_network(store: Store, params: Params, seed: int = 1) -> str:
    return store.put_weights(weights_bytes(new_network(params.network, params.game, seed)))


def play_shards(
    folder: Path, params: Params, kind: Literal["selfplay", "gating"], threshold: float = NO_RESIGNATION
) -> list[PlayedShard]:
    """All shards of a stage of generation 1."""
    store = Store(str(folder))
    weights = tuple(put_network(store, params, seed) for seed in (1, 2))
    if kind == "selfplay":
        specs = plan_shards(params, kind, 1, weights[:1], threshold)
    else:
        specs = plan_shards(params, kind, 1, weights)
    played = []
    for spec in specs:
        play_into_store(spec, store)
        shard = store.get_shard(spec.key())
        assert shard is not None
        played.append(PlayedShard(spec, shard.data, read_records(shard.data, "shard")))
    return played
