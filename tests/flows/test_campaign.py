"""A campaign counts generations and can be stopped between them."""

import fcntl
import logging
from pathlib import Path

import pytest
from prefect.exceptions import ParameterTypeError

from flows import campaign as module
from tests.flows.examples import decision
from zero.lineage.workspace import WRITER_LOCK_FILE, request_stop, stop_requested
from zero.storage.manifests import PromotionDecision


class Loop:
    """Stands for the generations; a stop is asked for in the one named."""

    def __init__(self, workspace: Path, stop_in: int = 0) -> None:
        self.workspace = workspace
        self.stop_in = stop_in
        self.made = 0

    def generation(self, lineage: str, executor: str | None) -> PromotionDecision:
        assert lineage == "tiny" and executor is None
        with (self.workspace / ".git" / WRITER_LOCK_FILE).open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody else may begin a generation
        self.made += 1
        if self.made == self.stop_in:
            request_stop(self.workspace)
        return decision(promoted=self.made == 1)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(module, "find_workspace", lambda home, lineage: tmp_path)
    return tmp_path


def run(loop: Loop, monkeypatch: pytest.MonkeyPatch, num_generations: int) -> list[PromotionDecision]:
    monkeypatch.setattr(module, "generation", loop.generation)
    monkeypatch.setattr(module, "get_run_logger", lambda: logging.getLogger("campaign"))
    return module.campaign.fn("tiny", num_generations)


def test_refused_challengers_count(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = run(Loop(workspace), monkeypatch, 3)
    assert [made.promoted for made in decisions] == [True, False, False]


def test_the_log_follows_the_generations(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "campaign"):
        run(Loop(workspace), monkeypatch, 2)
    score = "the challenger scored 58.8% (95 % interval 53.8% to 63.5%) in 400 games, 55% was needed"
    assert caplog.messages == [
        "the next generation (1 of 2) begins; Prefect shows its progress",
        f"tiny/gen-0003: {score}; it is the new champion",
        "left: 1 of 2, about 0 min; `zero stop tiny` ends it earlier",
        "the next generation (2 of 2) begins; Prefect shows its progress",
        f"tiny/gen-0003: {score}; the champion stays",
        "2 of 2 generations of tiny made",
    ]


def test_a_stop_is_obeyed_after_the_generation_in_hand(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "campaign"):
        assert len(run(Loop(workspace, stop_in=2), monkeypatch, 5)) == 2
    assert [line for line in caplog.messages if line.startswith("left: ")] == [
        "left: 4 of 5, about 0 min; `zero stop tiny` ends it earlier"
    ]
    assert not stop_requested(workspace)


def test_a_stop_from_before_the_campaign_is_forgotten(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request_stop(workspace)
    assert len(run(Loop(workspace), monkeypatch, 2)) == 2


def test_no_generations_are_refused() -> None:
    with pytest.raises(ParameterTypeError, match="num_generations: Input should be greater than or equal to 1"):
        module.campaign.validate_parameters({"lineage": "tiny", "num_generations": 0})
