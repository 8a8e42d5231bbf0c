"""What a person sees in Prefect: the report and the table of the progress."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.schemas.actions import ArtifactUpdate

from flows import reports
from flows.reports import Progress, report_text
from tests.flows.examples import costs, decision, recorded
from zero.errors import WorkerError
from zero.storage.files import write_atomic

ARTIFACT = UUID(int=7)


class Page:
    """Stands for Prefect's artifacts and for the client that updates them."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.updates: list[ArtifactUpdate] = []
        self.said: list[str] = []

    def make(self, **fields: Any) -> UUID:
        self.made[fields["key"]] = fields
        return ARTIFACT

    def update_artifact(self, artifact: UUID, changed: ArtifactUpdate) -> None:
        assert artifact == ARTIFACT
        self.updates.append(changed)

    def row(self, stage: str) -> tuple[str, str, str]:
        """State, work done and percent of a stage, as shown now."""
        rows = json.loads(str(self.updates[-1].data)) if self.updates else self.made["tiny-progress"]["table"]
        (row,) = (row for row in rows if row["stage"].endswith(stage))
        return row["state"], row["done"], row["percent"]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    for kind in ("table", "markdown"):
        monkeypatch.setattr(reports, f"create_{kind}_artifact", page.make)
    monkeypatch.setattr(reports, "get_client", lambda sync_client: page)
    return page


def test_the_report_tells_score_interval_games_and_tag() -> None:
    text = report_text(decision(), recorded("http://127.0.0.1:5000/#/experiments/1/runs/2"), None)
    assert text.startswith(
        "# tiny/gen-0003: the challenger scored 58.8% (95 % interval 53.8% to 63.5%) in 400 games, 55% was needed; it "
        "is the new champion\n"
    )
    games = "230 won, 160 lost, 10 drawn (as Black +130 -66 =4, as White +100 -94 =6); 397 unique games of 71 moves"
    assert games in text and "runs/2>" in text and "LINEAGE=tiny" in text


def test_the_report_has_the_costs_of_each_stage_in_order_and_their_sum_if_they_are_known() -> None:
    text = report_text(decision(), recorded(None), costs())
    rows = ("| selfplay | 0:01:40 | 0:03:00 | 24 | 2,400 |", "| gating | 0:00:50 | 0:01:00 | 0 | 0 |")
    assert "\n".join((*rows, "| total | 0:02:30 | 0:04:00 | 24 | 2,400 |")) in text
    assert "Costs" not in report_text(decision(), recorded(None), None)


def test_the_report_links_to_the_web_page_if_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_HOME", str(tmp_path))
    assert "- report: `zero report tiny/gen-0003` writes it\n" in report_text(decision(), recorded(None), None)
    write_atomic(tmp_path / ".zero/servers.json", b'{"web": "http://127.0.0.1:8100"}')
    link = "- report: <http://127.0.0.1:8100/#/lineages/tiny/3>\n"
    assert link in report_text(decision(), recorded(None), None)


def test_the_log_says_what_happened_and_what_to_do_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect.runtime.flow_run.ui_url", "http://127.0.0.1:4200/run", raising=False)
    result, _, _, report, mlflow, play, following = reports.summary(decision(promoted=False), recorded(None))
    assert result.startswith("tiny/gen-0003: the challenger scored 58.8%") and result.endswith("the champion stays")
    assert report == "report: `zero report tiny/gen-0003` writes it"
    assert mlflow == "MLflow run: not written; `zero track tiny` writes it"
    assert "`zero play tiny/gen-0003`" in play and "`make generation LINEAGE=tiny`" in following


def test_each_warning_is_a_paragraph_of_the_report() -> None:
    warned = recorded(None).model_copy(update={"warnings": ("training: it is dead", "the champion is random")})
    text = report_text(decision(promoted=False), warned, None)
    assert "> **Warning:** training: it is dead\n\n> **Warning:** the champion is random\n\n230 won" in text
    assert "Warning" not in report_text(decision(), recorded(None), None)


def test_a_row_adds_up_the_parts_of_its_stage(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "UPDATE_SECONDS", 0.0)
    progress = Progress("tiny", page.said.append)
    progress.begin("selfplay", 24)
    shown = []
    for part, done in (("a", 3), ("b", 3), ("a", 12), ("b", 12)):
        progress.show("selfplay", part, done)
        shown.append(page.row("selfplay")[2])
    assert shown == ["12%", "25%", "62%", "100%"]
    assert page.row("selfplay") == ("running", "24 of 24 games", "100%") and page.row("training")[0] == "waiting"
    assert page.said == ["selfplay: 24 of 24 games"]


def test_a_stage_that_ends_is_done_and_one_that_raises_is_failed(page: Page) -> None:
    with pytest.raises(WorkerError), Progress("tiny", page.said.append) as progress:
        with progress.running("selfplay"):
            assert page.row("selfplay")[0] == "running"
        progress.begin("gating", 16)  # its shards fail, so that the stage itself never runs
        raise WorkerError("every worker died")
    assert page.row("selfplay")[0] == "done" and page.row("gating") == ("failed", "0 of 16 games", "0%")


def test_a_stage_that_runs_again_for_a_later_one_is_done_with_it(page: Page) -> None:
    progress = Progress("tiny", page.said.append)
    with progress.running("selfplay"):
        pass
    with progress.running("replay"):
        progress.begin("selfplay", 12)  # a shard was quarantined
    assert [page.row(stage)[0] for stage in ("selfplay", "replay", "training")] == ["done", "done", "waiting"]


def test_a_table_that_cannot_be_made_stops_nothing_and_is_made_later(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trouble(**_: Any) -> UUID:
        raise ConnectionError("no server")

    monkeypatch.setattr(reports, "create_table_artifact", trouble)
    progress = Progress("tiny", page.said.append)
    assert page.said == ["the table of the progress was not updated: no server"]
    monkeypatch.setattr(reports, "create_table_artifact", page.make)
    progress.begin("selfplay", 12)
    assert page.row("selfplay") == ("running", "0 of 12 games", "0%")


def test_a_part_that_begins_again_counts_from_there(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "UPDATE_SECONDS", 0.0)
    progress = Progress("tiny", page.said.append)
    progress.begin("selfplay", 12)
    progress.show("selfplay", "a", 9)
    progress.show("selfplay", "a", 3)
    assert page.row("selfplay")[1:] == ("3 of 12 games", "25%")


def test_the_server_gets_few_updates(page: Page) -> None:
    progress = Progress("tiny", page.said.append)
    progress.begin("selfplay", 1000)
    before = len(page.updates)
    for done in range(1, 1000):
        progress.show("selfplay", "a", done)
    assert len(page.updates) == before
    progress.show("selfplay", "a", 1000)
    assert len(page.updates) == before + 1
