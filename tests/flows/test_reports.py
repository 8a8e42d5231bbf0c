"""What a person sees in Prefect: the table, the decision, the bars."""

from typing import Any
from uuid import UUID

import pytest

from flows import reports
from flows.reports import ProgressBar, decision_text, headline, match_table, report_generation
from tests.flows.examples import decision, recorded

ARTIFACT = UUID(int=7)


class Page:
    """Stands for Prefect's artifacts."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.percent: list[float] = []
        self.said: list[str] = []

    def make(self, **fields: Any) -> UUID:
        self.made[fields["key"]] = fields
        return ARTIFACT

    def update(self, artifact: UUID, progress: float, description: str) -> None:
        assert artifact == ARTIFACT
        self.percent.append(progress)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    page = Page()
    for kind in ("table", "markdown", "link", "progress"):
        monkeypatch.setattr(reports, f"create_{kind}_artifact", page.make)
    monkeypatch.setattr(reports, "update_progress_artifact", page.update)
    return page


def test_the_table_has_both_colours_and_their_sum() -> None:
    assert match_table(decision()) == [
        {"side": "challenger as Black", "games": 200, "wins": 130, "losses": 66, "draws": 4},
        {"side": "challenger as White", "games": 200, "wins": 100, "losses": 94, "draws": 6},
        {"side": "all", "games": 400, "wins": 230, "losses": 160, "draws": 10},
    ]


def test_the_decision_tells_score_interval_unique_games_and_tag() -> None:
    text = decision_text(decision(), recorded("http://127.0.0.1:5000/#/experiments/1/runs/2"))
    for words in ("**58.8%**", "53.9% to 63.5%", "| 397 |", "`tiny/gen-0003`", "LINEAGE=tiny", "runs/2", "promoted"):
        assert words in text


def test_the_log_says_what_happened_and_what_to_do_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect.runtime.flow_run.ui_url", "http://127.0.0.1:4200/run", raising=False)
    won, score, _, mlflow, hint = reports.summary(decision(), recorded(None))
    assert won == (
        "tiny/gen-0003: the new network played 400 games against the champion: 230 won, 160 lost, 10 drawn; it is the "
        "new champion"
    )
    assert score == "score 58.8% (95 % interval 53.9% to 63.5%), 55% is needed; 397 unique games"
    assert mlflow == "in MLflow: not written; `zero track tiny` catches up"
    assert "`zero play tiny/gen-0003`" in hint and "`make generation LINEAGE=tiny`" in hint
    assert reports.summary(decision(promoted=False), recorded(None))[0].endswith("the champion stays")


def test_a_refused_challenger_is_not_called_champion() -> None:
    text = decision_text(decision(promoted=False), recorded(None))
    assert headline(decision(promoted=False)) == "challenger refused with a score of 58.8%"
    assert "becomes the champion" not in text and "zero track tiny" in text


def test_each_warning_is_a_paragraph_of_the_decision() -> None:
    warned = recorded(None).model_copy(update={"warnings": ("training: it is dead", "the champion is random")})
    text = decision_text(decision(promoted=False), warned)
    assert "> **Warning:** training: it is dead\n\n> **Warning:** the champion is random\n\n| | |" in text
    assert "Warning" not in decision_text(decision(), recorded(None))


def test_match_decision_and_link_are_published_under_the_lineages_name(page: Page) -> None:
    report_generation(decision(), recorded("http://127.0.0.1:5000/run"))
    assert sorted(page.made) == ["tiny-decision", "tiny-match", "tiny-mlflow"]
    assert page.made["tiny-mlflow"]["link"] == "http://127.0.0.1:5000/run"


def test_without_tracking_there_is_no_link(page: Page) -> None:
    report_generation(decision(), recorded(None))
    assert sorted(page.made) == ["tiny-decision", "tiny-match"]


def test_a_bar_adds_up_its_parts_and_ends_at_one_hundred(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "UPDATE_SECONDS", 0.0)
    bar = ProgressBar("tiny", "selfplay", "games", 24, page.said.append)
    for part, done in (("a", 3), ("b", 3), ("a", 12), ("b", 12)):
        bar.show(part, done)
    assert page.percent == [12.5, 25.0, 62.5, 100.0]
    assert page.said == ["selfplay: 24 of 24 games"]


def test_a_bar_that_cannot_be_made_stops_nothing_and_is_made_later(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def trouble(**_: Any) -> UUID:
        raise ConnectionError("no server")

    monkeypatch.setattr(reports, "create_progress_artifact", trouble)
    bar = ProgressBar("tiny", "selfplay", "games", 12, page.said.append)
    assert page.said == ["the progress bar was not updated: no server"]
    monkeypatch.setattr(reports, "create_progress_artifact", page.make)
    bar.show("a", 12)
    assert page.made["tiny-selfplay-progress"]["progress"] == 100.0


def test_a_part_that_begins_again_counts_from_there(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "UPDATE_SECONDS", 0.0)
    bar = ProgressBar("tiny", "selfplay", "games", 12, page.said.append)
    for done in (9, 3):
        bar.show("a", done)
    assert page.percent == [75.0, 25.0]


def test_a_bar_asks_the_server_seldom(page: Page) -> None:
    bar = ProgressBar("tiny", "selfplay", "games", 1000, page.said.append)
    for done in range(1, 1000):
        bar.show("a", done)
    assert page.percent == []
    bar.show("a", 1000)
    assert page.percent == [100.0]
