"""The flow `zero-shard` without a server; with one it is in test_pool.py and in tests/end_to_end."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flows.shard
from tests.shards.played import put_network, smoke_params
from zero.config.params import ProfileParams
from zero.shards.spec import plan_shards
from zero.storage.store import Store


class NoBar:
    """Shows nothing."""

    def __init__(self, *_: object) -> None: ...

    def show(self, *_: object) -> None: ...


def test_a_run_of_shards_is_alone_on_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params, told = smoke_params(), list[Any]()
    digest = put_network(Store(str(tmp_path)), params)
    specs = plan_shards(params, "selfplay", params.selfplay, 1, (digest,))

    @contextlib.contextmanager
    def alone(profile: ProfileParams, say: object) -> Iterator[None]:
        told.append(profile)
        yield
        told.append("given back")

    def play(*_: object, **__: object) -> object:
        told.append("played")
        return type("Receipt", (), {"key": "k", "sha256": "s", "num_games": 1})

    for name, stand_in in {
        "lock_visible_gpus": alone,
        "play_into_store": play,
        "end_with_worker": lambda: None,
        "end_when_given_up": lambda: None,
        "refusing_slowly": contextlib.nullcontext,
        "get_run_logger": logging.getLogger,
        "ProgressBar": NoBar,
    }.items():
        monkeypatch.setattr(flows.shard, name, stand_in)
    flows.shard.shard.fn([spec.model_dump(mode="json") for spec in specs])
    assert told == [specs[0].device, "played", "played", "given back"]
