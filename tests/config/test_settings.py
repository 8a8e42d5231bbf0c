"""Settings of the machine."""

import json
import shutil
from pathlib import Path

import pytest

from zero.config.settings import place_of, servers, tracking_uri


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


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"prefect'])
def test_a_spoilt_file_of_addresses_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / ".zero").mkdir()
    (tmp_path / ".zero/servers.json").write_text(text)
    assert servers(tmp_path) == {}


def test_addresses_are_those_of_this_folder_since_the_last_start(tmp_path: Path) -> None:
    here, copy, moved = (tmp_path / name for name in ("here", "copy", "moved"))
    (here / ".zero").mkdir(parents=True)
    addresses = {"prefect": "http://127.0.0.1:4207"}
    (here / ".zero/servers.json").write_text(json.dumps(addresses | {"place": place_of(here)}))
    shutil.copytree(here, copy)
    assert servers(here) == addresses and servers(copy) == {}
    here.rename(moved)
    assert servers(moved) == addresses
    (moved / ".zero/servers.json").write_text(json.dumps(addresses | {"place": f"another start:{moved}"}))
    assert servers(moved) == {}
