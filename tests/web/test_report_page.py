"""Reports, lineages and ladders in headless chromium."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.web.browsing import PHONE, assert_accessible, assert_fits, new_tab
from tests.web.made_lineage import PARAMS_TEXT, advance, make_lineage, make_project
from tests.web.serving import serving
from tests.web.test_lineages import write_ladder
from zero.evaluation.elo import Fit
from zero.evaluation.tournament import play_tournament, write_tournament
from zero.web.assets import vega_bundle
from zero.web.report import report_html, report_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = make_project(tmp_path_factory.mktemp("project"))
    make_lineage(home, "go9", ["start", "promoted", "refused", "rollback", "promoted"])
    make_lineage(home, "kid", ["branch", "refused"], source="go9/gen-0001")
    write_ladder(home, "go9")
    write_ladder(home, "kid")
    (home / "params.yaml").write_text(PARAMS_TEXT)
    fit = Fit(pairs=3, ratings=2, deviance=4, ratio=4, pair=("x", "random"), expected=0.5, found=0.7)
    played = play_tournament(home, ("random", "rollout:4"), 2)
    write_tournament(home, played.model_copy(update={"fits": (fit,)}))
    return home


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    """Address of a server of the page."""
    with serving(home) as served:
        yield f"{served.url}/"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with new_tab(browser) as page:
        yield page


def marks(page: Page, card: str) -> int:
    """Number of lines, points and bars in the chart of a card."""
    section = page.locator("section.card", has=page.get_by_role("heading", name=card, exact=True))
    expect(section.locator(".chart svg")).to_be_visible()
    return section.locator(".chart svg :is(.mark-line, .mark-symbol, .mark-rect, .mark-rule).role-mark path").count()


def test_the_file_shows_charts_and_tables_without_a_network(home, page, tmp_path):
    (tmp_path / "report.html").write_bytes(report_html(report_of(home, "go9")))
    page.context.set_offline(True)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    charts = ("Decision", "Value loss", "Policy loss and total loss", "How the games ended", "Length of the games")
    assert all(marks(page, card) for card in (*charts, "Costs"))
    expect(page.get_by_role("table", name="results of the challenger by colour")).to_contain_text("70.0 %")
    expect(page.get_by_role("table", name="digests")).to_contain_text("ledger")
    health = page.locator("section.card", has=page.get_by_role("heading", name="Health of the training"))
    expect(health).to_contain_text("healthy explained variance 31.0 %")
    expect(health).to_contain_text("Every check passed.")
    assert page.locator(".openings svg.board").count() == page.locator(".openings figcaption").count() > 0
    assert [each for each in requests if not each.startswith(("file:", "data:"))] == []
    assert_accessible(page)


def test_without_vega_the_tables_are_there(home, page, tmp_path):
    html = report_html(report_of(home, "go9")).decode().replace(vega_bundle().read_text(), "")
    (tmp_path / "report.html").write_text(html)
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.get_by_text("The chart cannot be drawn").first).to_be_visible()
    expect(page.get_by_role("table", name="costs by stage")).to_contain_text("1:01:40")


def test_what_is_not_recorded_says_so(url, page):
    page.goto(f"{url}#/lineages/go9/2")
    expect(page.get_by_role("heading", name="go9/gen-0002", exact=True)).to_be_visible()
    expect(page.get_by_text("The costs: not recorded.")).to_be_visible()
    expect(page.get_by_text("The games are not on this machine.").first).to_be_visible()


def test_a_generation_without_self_play_says_so(home, url, page, tmp_path):
    found = report_of(home, "go9")
    assert found.selfplay
    none = found.selfplay.model_copy(update={"num_games": 0, "ended": {}, "lengths": None})
    html = report_html(found.model_copy(update={"selfplay": none, "openings": None}))
    (tmp_path / "report.html").write_bytes(html)
    page.goto((tmp_path / "report.html").as_uri())
    ends = page.get_by_role("table", name="ends and results of the games")
    expect(ends.get_by_role("columnheader")).to_have_text(["result", "match"])
    expect(page.get_by_text("No games of self-play.")).to_be_visible()
    text = page.locator("main").inner_text()
    assert "NaN" not in text and "The games are not on this machine." not in text


def test_a_generation_without_self_play_is_no_point_of_a_curve(url, page):
    def change(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        found["nodes"][1] |= {"games": 0, "game_length": 0.0}
        route.fulfill(response=answer, json=found)

    page.route("**/api/lineages/go9", change)
    page.goto(f"{url}#/lineages/go9")
    lengths = page.get_by_role("table", name="length of the games", include_hidden=True)
    expect(lengths.locator("tbody th")).to_have_text(["2", "4"])


def test_a_table_is_copied_as_text(url, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{url}#/lineages/go9/4")
    page.get_by_role("button", name="Copy the table: results of the challenger by colour").click()
    expect(page.get_by_role("status")).to_have_text("Copied")
    lines = str(page.evaluate("navigator.clipboard.readText()")).splitlines()
    assert lines[-1].split("\t") == ["all", "20", "14", "6", "0", "70.0 %"]


def test_the_graph_leads_to_reports_by_keyboard(url, page):
    page.goto(f"{url}#/lineages/go9")
    graph = page.get_by_role("group", name="generations of go9")
    expect(graph).to_be_visible()
    names = [str(link.get_attribute("aria-label")) for link in graph.get_by_role("link").all()]
    assert names == [
        "go9/gen-0000, random network",
        "go9/gen-0001, promoted, score 70.0 %",
        "go9/gen-0002, refused, score 30.0 %",
        "go9/gen-0003, rollback to go9/gen-0001",
        "go9/gen-0004, promoted, score 70.0 %",
        "lineage kid branches from go9/gen-0001",
    ]
    assert graph.locator(".edge.champion").count() == 2 and graph.locator(".edge.restored").count() == 2
    assert all(marks(page, card) for card in ("Score against the champion", "Value loss"))
    ladder = page.get_by_role("main").get_by_role("link", name="ladder", exact=True)
    expect(ladder).to_have_attribute("href", "#/ladder")
    assert_accessible(page)
    graph.get_by_role("link").nth(3).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="go9/gen-0004", exact=True)).to_be_visible()


def test_names_of_branches_are_inside_the_graph_and_do_not_overlap(url, page):
    def change(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        found["branches"] = [
            {"lineage": f"a-rather-long-name-{number}", "source": f"go9/gen-000{number % 5}"} for number in range(8)
        ]
        found["nodes"][0] |= {"kind": "branch", "parent": "another-rather-long-name/gen-0012"}
        route.fulfill(response=answer, json=found)

    page.route("**/api/lineages/go9", change)
    page.goto(f"{url}#/lineages/go9")
    graph = page.get_by_role("group", name="generations of go9")
    expect(graph).to_be_visible()
    whole, *names = [each.bounding_box() for each in (graph, *graph.locator(".foreign text").all())]
    assert whole is not None and len(names) == 9
    for name in names:
        assert name is not None
        assert whole["x"] <= name["x"] and name["x"] + name["width"] <= whole["x"] + whole["width"]
    for one, other in itertools.combinations(names, 2):
        assert one is not None and other is not None
        is_beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        assert is_beside or abs(one["y"] - other["y"]) >= 20


def test_two_generations_side_by_side(url, page):
    page.goto(f"{url}#/lineages/go9")
    page.get_by_label("generation to compare with").select_option("1")
    page.get_by_role("button", name="Compare").click()
    numbers = page.get_by_role("table", name="numbers of the generation")
    expect(numbers.get_by_role("columnheader")).to_have_text(["number", "go9/gen-0004", "go9/gen-0001"])
    expect(page.get_by_role("heading", name="Decision: go9/gen-0001")).to_be_visible()
    assert marks(page, "Value loss") == 4, "two lines of each generation"


def test_the_list_and_the_ladder(url, page):
    page.goto(f"{url}#/lineages")
    expect(page.get_by_role("link", name="go9/gen-0001")).to_be_visible()
    assert_accessible(page)
    page.goto(f"{url}#/ladder")
    assert marks(page, "Ratings of the champions")
    expect(page.get_by_role("table", name="kid: first = 0")).to_contain_text("80 to 160")
    expect(page.get_by_text("go, 5 x 5; the curve is of players with 20 simulations a move.").first).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="no group has an anchor").first).to_be_visible()
    expect(page.get_by_text("fit: 3 pairs for 2 ratings")).to_be_visible()
    assert_accessible(page)
    page.get_by_label("games of self-play").check()
    expect(page.get_by_role("img", name="Ratings of the champions over games of self-play")).to_be_visible()


def test_ladders_with_different_anchors_are_not_comparable(url, page):
    found = page.request.get(f"{url}api/ladder").json()
    page.route("**/api/ladder", lambda route: route.fulfill(json=found))
    note = page.get_by_text("only ratings of one game with the same anchor can be compared")
    for references, notes in ((("GNU Go", "GNU Go"), 0), (("GNU Go", "rollout MCTS"), 1)):
        for ladder, reference in zip(found["ladders"], references, strict=True):
            ladder["scales"][0] |= {"reference": reference, "is_anchor": True}
        page.goto(f"{url}#/ladder")
        page.reload()
        expect(page.get_by_role("heading", name="Ratings of the champions")).to_be_visible()
        expect(note).to_have_count(notes)


def test_a_score_of_a_tournament_opens_its_games(url, page):
    page.goto(f"{url}#/ladder")
    page.get_by_role("table", name="Tournament: go").get_by_role("link").first.click()
    expect(page.locator("[data-count]")).to_have_text("2 games")
    page.get_by_role("link", name="Game 1: match of rollout MCTS, 4 playouts against random").click()
    expect(page.locator(".replay-caption")).to_contain_text("The start of the game")


@pytest.mark.parametrize("path", ["lineages", "lineages/go9", "lineages/go9/4", "lineages/go9/4?compare=1", "ladder"])
def test_a_phone_shows_everything_without_scrolling_sideways(url, page, path):
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    page.goto(f"{url}#/{path}")
    expect(page.get_by_role("table").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert_fits(page)
    assert_accessible(page)


def test_a_lineage_that_goes_on_or_vanishes_is_announced(home, url, page):
    make_lineage(home, "other", ["start", "refused"])
    page.clock.install()
    page.goto(f"{url}#/lineages/other")
    expect(page.get_by_role("heading", name="Lineage other")).to_be_visible()
    advance(home, "other")
    page.clock.fast_forward(20_000)
    expect(page.get_by_role("status")).to_have_text("other has gone on: its newest generation is other/gen-0002.")
    page.get_by_role("button", name="Show it").click()
    expect(page.get_by_role("link", name="other/gen-0002, refused, score 30.0 %")).to_be_visible()
    num_warnings = page.get_by_text("Warning: ").count()
    assert num_warnings
    shutil.move(home / ".zero/workspaces/other", home / "moved")
    page.clock.fast_forward(20_000)
    expect(page.get_by_role("alert")).to_contain_text("unknown lineage 'other'; known are: go9, kid")
    expect(page.get_by_text("Warning: ")).to_have_count(num_warnings)
    shutil.move(home / "moved", home / ".zero/workspaces/other")
    page.clock.fast_forward(20_000)
    expect(page.get_by_role("alert")).to_have_count(0)
    shutil.rmtree(home / ".zero/workspaces/other")


def test_two_late_answers_announce_a_lineage_once(home, url, page):
    make_lineage(home, "late", ["start", "refused"])
    page.clock.install()
    page.goto(f"{url}#/lineages/late")
    expect(page.get_by_role("heading", name="Lineage late")).to_be_visible()
    held: list[Route] = []
    page.route("**/api/lineages/late", lambda route: held.append(route))
    for number in (1, 2):
        page.clock.fast_forward(16_000)
        for _ in range(1000):
            if len(held) == number:
                break
            page.evaluate("fetch('/api/health').then((answer) => answer.json())")
    advance(home, "late")
    for route in held:
        with page.expect_response("**/api/lineages/late") as response:
            route.continue_()
        response.value.finished()
        page.evaluate("fetch('/api/health').then((answer) => answer.json())")
    expect(page.get_by_role("button", name="Show it")).to_have_count(1)
    assert len(held) == 2
    shutil.rmtree(home / ".zero/workspaces/late")


def test_charts_of_a_view_that_was_left_are_freed(url, page):
    page.add_init_script(
        "window.listening = 0; for (const [name, step] of [['addEventListener', 1], ['removeEventListener', -1]]) {"
        "  const original = window[name];"
        "  window[name] = function (kind, ...rest) {"
        "    if (kind === 'resize') window.listening += step;"
        "    return original.call(window, kind, ...rest); }; }"
    )
    counts = []
    for _ in range(3):
        page.goto(f"{url}#/lineages/go9")
        assert all(marks(page, card) for card in ("Score against the champion", "Value loss"))
        assert marks(page, "Length of the games")
        counts.append(page.evaluate("window.listening"))
        page.goto(f"{url}#/lineages")
        expect(page.get_by_role("heading", name="Lineages")).to_be_visible()
    assert 0 < counts[0] == counts[1] == counts[2]
