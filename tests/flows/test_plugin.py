"""`prefect deployment run zero-generation` finds its deployment and its server."""

import logging
import sys
from pathlib import Path

import pytest
import yaml
from prefect.plugins import HookContext

from flows.plugin import DEPLOYMENTS, setup_environment, with_slash
from infra.pools import FLOWS
from tests.end_to_end.project import SOURCE_DIR

RUN = ["/some/bin/prefect", "deployment", "run", "zero-generation"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder that we are in."""
    monkeypatch.setenv("ZERO_HOME", str(tmp_path))
    (tmp_path / ".zero").mkdir()
    return tmp_path


def context(api_url: str | None = None) -> HookContext:
    return HookContext(prefect_version="3", api_url=api_url, logger_factory=logging.getLogger)


def test_a_bare_name_is_written_in_full() -> None:
    assert with_slash([*RUN, "--watch"]) == [*RUN[:3], "zero-generation/zero-generation", "--watch"]


def test_every_deployment_has_a_bare_name() -> None:
    deployments = yaml.safe_load((SOURCE_DIR / "prefect.yaml").read_text())["deployments"]
    assert [deployment["name"] for deployment in deployments] == [*DEPLOYMENTS] == [*FLOWS]


def test_a_bare_name_after_options_is_written_in_full() -> None:
    words = ["prefect", "--no-prompt", "deployment", "run", "--watch", "zero-campaign"]
    assert with_slash(words) == [*words[:-1], "zero-campaign/zero-campaign"]


@pytest.mark.parametrize(
    "words",
    [
        ["prefect", "deployment", "run", "zero-generation/zero-generation"],
        ["prefect", "deployment", "run", "another-flow"],
        ["prefect", "flow-run", "ls", "--flow-name", "zero-generation"],
        ["prefect", "deployment", "ls"],
        ["my-program", "deployment", "run", "zero-generation"],
        [],
    ],
)
def test_any_other_command_is_left_alone(words: list[str]) -> None:
    assert with_slash(words) == words


def test_a_parameter_with_the_name_of_a_deployment_is_left_alone() -> None:
    words = [*RUN, "--flow-run-name", "zero-generation"]
    assert with_slash(words)[-1] == "zero-generation"


def test_the_server_of_this_folder_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".zero/servers.json").write_text('{"prefect": "http://127.0.0.1:4207", "mlflow": "http://127.0.0.1:5007"}')
    monkeypatch.setattr(sys, "argv", list(RUN))
    result = setup_environment(ctx=context())
    assert result is not None and result.env == {"PREFECT_API_URL": "http://127.0.0.1:4207/api"}
    assert sys.argv[3] == "zero-generation/zero-generation"


def test_a_server_that_is_configured_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".zero/servers.json").write_text('{"prefect": "http://127.0.0.1:4207"}')
    monkeypatch.setattr(sys, "argv", list(RUN))
    assert setup_environment(ctx=context("https://prefect.example/api")) is None


def test_without_a_server_our_command_ends_with_the_remedy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(RUN))
    with pytest.raises(SystemExit, match="no Prefect server runs here; start it with `make up`"):
        setup_environment(ctx=context())


def test_without_a_server_other_commands_go_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["prefect", "version"])
    assert setup_environment(ctx=context()) is None
