"""Settings of the machine."""

import json
from pathlib import Path

import pytest

from zero.config.settings import tracking_uri


@pytest.mark.parametrize(
    ("variable", "addresses", "expected"),
    [
        (None, {}, ""),
        (None, {"mlflow": "http://local"}, "http://local"),
        ("http://given", {"mlflow": "http://local"}, "http://given"),
        ("", {"mlflow": "http://local"}, ""),
    ],
    ids=["no server", "the server of make up", "the variable", "switched off"],
)
def test_the_address_of_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, addresses: dict[str, str], expected: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if variable is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    (tmp_path / ".zero").mkdir()
    (tmp_path / ".zero/servers.json").write_text(json.dumps(addresses))
    assert tracking_uri(tmp_path) == expected
