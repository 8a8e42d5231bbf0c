"""Tracking is idempotent, also after it was killed: each generation is there once and complete."""

from typing import Any
from unittest.mock import ANY

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus

from tests.made_generations import recorded_in
from tests.tracking.server import everything
from zero.tracking.backfill import track_generation, tracked_generations

WRITING_CALLS = [
    "create_experiment",
    "create_registered_model",
    "create_run",
    "set_tag",
    "log_batch",
    "log_inputs",
    "log_artifacts",
    "set_terminated",
    "create_logged_model",
    "log_model_artifacts",
    "finalize_logged_model",
    "create_model_version",
    "set_registered_model_alias",
    "log_outputs",
]
"""All writing calls of the client, in the order of their first use."""


def test_a_generation_that_is_tracked_again_replaces_itself(client, server, lineage):
    folders = [lineage.folder(0), lineage.add(promoted=True), lineage.add(promoted=False)]
    for folder in folders:
        track_generation(recorded_in(folder), server.uri)
    before = everything(client, lineage.name)
    for folder in folders[1:]:
        track_generation(recorded_in(folder), server.uri)
    assert everything(client, lineage.name) == before


def test_tracking_that_was_killed_after_any_call_is_repeated(client, server, go9, lineage, monkeypatch):
    lineage.add(promoted=True)
    for name in WRITING_CALLS:
        real = getattr(MlflowClient, name)

        def killed(self: MlflowClient, *args: Any, real: Any = real, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(MlflowClient, name, killed)
            track_generation(recorded_in(lineage.folder(1)), server.uri)
        assert tracked_generations(lineage.name, server.uri) == {}
    track_generation(recorded_in(lineage.folder(1)), server.uri)
    track_generation(recorded_in(lineage.folder(0)), server.uri)
    runs, versions, found, models = everything(client, lineage.name)
    expected = everything(client, "go9")
    assert runs == {key: page for key, page in expected[0].items() if key[0] in ("0", "1")} | {("", "ladder"): ANY}
    assert len(versions) == len(models) == 2
    assert found == {"gen-0000": 1, "gen-0001": 2, "champion": 2, "challenger": 2}
    assert {status for _, status in models} == {LoggedModelStatus.READY}
