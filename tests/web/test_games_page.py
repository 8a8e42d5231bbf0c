"""The views of the recorded games in a browser: list, filters, pages, replay, accessibility."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.made_games import plain_record
from tests.web.browsing import PHONE, assert_accessible, assert_fits, new_tab
from tests.web.made_record import MadeLineage, add_match, games
from tests.web.serving import serving
from zero.storage.manifests import GameRecord

MANY = 10_000
"""Games of generation 2, of four moves each."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[GameRecord]]:
    """A project, and the games of its generation 1."""
    lineage = MadeLineage(tmp_path_factory.mktemp("recorded"))
    records = lineage.add([games(6, 1)], games(4, 2, never_resigns=False))
    many = [plain_record([12, 11, 13, number % 10], 26, game=number) for number in range(MANY)]
    lineage.add([many], games(2, 3))
    add_match(lineage.home, "0123abcd")
    return lineage.home, records


@pytest.fixture(scope="module")
def address(recorded) -> Iterator[str]:
    with serving(recorded[0]) as served:
        while served.http.get("/api/games/filters").json()["pending"]:
            time.sleep(0.1)
        yield served.url


@pytest.fixture
def page(browser, address: str):
    with new_tab(browser, base_url=address) as page:
        yield page


def open_list(page, query: str = "") -> None:
    page.goto(f"/#/games{query}")
    page.wait_for_selector("table.games a")


def open_game(page, path: str) -> None:
    page.goto(f"/#/games/{path}")
    page.wait_for_selector(".replay-caption")


def shown(page) -> list[str]:
    return [" ".join(each.split()) for each in page.locator("table.games tbody tr").all_inner_texts()]


def wait_for_count(page, text: str) -> None:
    expect(page.locator("[data-count]")).to_have_text(text)


def test_the_list_shows_all_games_and_filters_them(page) -> None:
    open_list(page)
    wait_for_count(page, "10,016 games")
    assert shown(page)[0].startswith("#0 made 2 selfplay")
    assert len(shown(page)) == 200
    page.locator("[name=generation]").fill("1")
    page.locator("[name=kind]").select_option("gating")
    wait_for_count(page, "4 games")
    assert [row.split()[:4] for row in shown(page)] == [[f"#{n}", "made", "1", "gating"] for n in range(4)]
    assert page.url.endswith("#/games?generation=1&kind=gating")
    page.reload()
    wait_for_count(page, "4 games")
    assert page.locator("[name=kind]").input_value() == "gating"
    page.get_by_role("button", name="Clear").click()
    wait_for_count(page, "10,016 games")
    assert page.url.endswith("#/games")


def test_filters_of_games_that_are_not_read_yet_are_kept_and_offered_later(page) -> None:
    def incomplete(route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"lineages": [], "ends": [], "pending": 1})

    page.route("**/api/games/filters", incomplete)
    open_list(page, "?lineage=made&generation=1")
    wait_for_count(page, "10 games")
    lineage = page.locator("[name=lineage]")
    assert lineage.input_value() == "made"
    page.locator("[name=kind]").select_option("gating")
    wait_for_count(page, "4 games")
    assert page.url.endswith("#/games?lineage=made&generation=1&kind=gating")
    page.unroute_all(behavior="wait")
    page.locator("[name=kind]").select_option("selfplay")
    wait_for_count(page, "6 games")
    expect(lineage.locator("option:checked")).to_have_text("made (10012)")
    assert page.locator("[name=kind]").input_value() == "selfplay"


def test_a_field_that_was_being_filled_does_not_undo_a_link(page) -> None:
    """Chromium reports a change when a view is left whose field has the focus."""
    open_list(page)
    page.locator("[name=generation]").focus()
    page.keyboard.type("1")
    page.evaluate("location.hash = '#/ladder'")
    expect(page.get_by_role("heading", level=1)).to_have_text("Ladder")
    assert page.url.endswith("#/ladder")


def test_a_wrong_filter_in_the_address_is_an_error(page) -> None:
    page.goto("/#/games?kind=chess")
    page.wait_for_selector(".error")
    assert "kind='chess' is not a filter of games" in page.locator(".error").inner_text()


def test_ten_thousand_games_are_in_pages(page) -> None:
    open_list(page, "?generation=2&kind=selfplay")
    pages = page.get_by_role("navigation", name="Pages of the list")
    expect(pages).to_have_text("1 to 200 of 10,000games after →")
    pages.get_by_role("link", name="games after").click()
    expect(pages).to_have_text("← games before201 to 400 of 10,000games after →")
    assert [row.split()[0] for row in shown(page)] == [f"#{number}" for number in range(200, 400)]
    pages.get_by_role("link", name="games before").click()
    expect(pages).to_contain_text("1 to 200")
    page.go_back()
    expect(pages).to_contain_text("201 to 400")
    page.goto(f"/#/games?generation=2&kind=selfplay&offset={MANY - 50}")
    expect(pages).to_have_text("← games before9,951 to 10,000 of 10,000")
    assert shown(page)[-1].startswith(f"#{MANY - 1} ")
    page.locator("[name=kind]").select_option("gating")
    wait_for_count(page, "2 games")
    expect(pages).to_be_hidden()
    assert len(shown(page)) == 2 and page.url.endswith("#/games?generation=2&kind=gating"), "it is the first page"


def test_the_keyboard_moves_through_the_list_and_opens_a_game(page) -> None:
    open_list(page, "?generation=2&kind=selfplay")
    page.locator("table.games a").first.focus()
    focus = page.locator(":focus")
    for key, expected in (("Tab", "#1"), ("Tab", "#2"), ("Shift+Tab", "#1")):
        page.keyboard.press(key)
        assert focus.inner_text() == expected
    page.keyboard.press("Enter")
    page.wait_for_selector(".replay-caption")
    assert page.url.endswith("#/games/selfplay/made/2/1")


def test_a_click_on_a_row_opens_its_game(page) -> None:
    open_list(page, "?generation=1&kind=gating")
    page.locator("table.games tbody tr").nth(2).locator("td").nth(3).click()
    page.wait_for_selector(".replay-caption")
    assert page.url.endswith("#/games/gating/made/1/2")


def test_the_focus_stays_while_games_are_read(page) -> None:
    requests: list[str] = []

    def incomplete(route) -> None:
        answer = route.fetch()
        requests.append(route.request.url)
        route.fulfill(response=answer, json=answer.json() | {"index": {"pending": 1, "notes": []}})

    page.route("**/api/games?*", incomplete)
    open_list(page, "?generation=1&kind=gating")
    expect(page.locator("[data-count]")).to_have_text("4 games; 1 generation still to read …")
    page.locator("table.games a").nth(2).focus()
    before = len(requests)
    while len(requests) < before + 2:
        page.wait_for_timeout(100)
    assert page.locator(":focus").inner_text() == "#2"
    page.unroute_all(behavior="wait")


def test_a_game_is_replayed_move_by_move(page, recorded) -> None:
    record = recorded[1][2]
    open_list(page, "?generation=1&kind=selfplay")
    page.get_by_role("link", name="Game 2: selfplay of made, generation 1").click()
    caption = page.locator(".replay-caption")
    caption.wait_for()
    num_moves = len(record.actions)
    assert "The start of the game" in caption.inner_text()
    assert page.locator("svg.board .stone").count() == 0
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert f"Move 3 of {num_moves}" in caption.inner_text()
    page.wait_for_url("**?move=3")
    stones = sum(action < 25 for action in record.actions[:3])
    assert page.locator("svg.board .stone").count() == stones
    # White is to move before the fourth move: the recorded value has the other sign for Black.
    cells = page.locator("section", has_text="Value").first.locator("tbody tr").first.locator("td").all_inner_texts()
    value = f"{abs(record.root_values[3]):.3f}"
    assert [cell[1:] for cell in cells] == [value, value] and cells[0][0] != cells[1][0]
    counts = sorted((int(count) for count in record.visit_counts[3] if count), reverse=True)[:10]
    rows = page.locator("section", has_text="Search in this position").locator("tbody tr")
    assert [int(row.split("\t")[1]) for row in rows.all_inner_texts()] == counts
    assert page.locator("svg.board rect.heat").count() == sum(1 for count in record.visit_counts[3][:25] if count)
    page.keyboard.press("End")
    assert "The game is over" in caption.inner_text()
    page.keyboard.press("ArrowLeft")
    assert f"Move {num_moves - 1} of" in caption.inner_text()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(caption).to_contain_text("Move 2 of")
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Moves played").fill("7")
    assert f"Move 7 of {num_moves}" in caption.inner_text()


def test_the_targets_of_a_gumbel_search_are_not_called_visits(page) -> None:
    def gumbel(route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"root": "gumbel"})

    page.route("**/api/games/selfplay/made/1/2", gumbel)
    open_game(page, "selfplay/made/1/2")
    section = page.locator("section", has_text="Search in this position")
    assert section.locator("thead th").all_inner_texts() == ["move", "policy"]
    assert section.locator("tbody tr").first.inner_text().endswith("%")
    assert "visit" not in page.locator("main").inner_text()
    assert page.locator("option", has_text="policy after the search").count() == 1


def test_a_fast_replay_writes_the_address_once(page) -> None:
    page.add_init_script(
        "window.written = 0; const replace = history.replaceState;"
        "history.replaceState = function (...given) { window.written++; return replace.apply(this, given); };"
    )
    open_game(page, "selfplay/made/1/2?move=1.5")
    expect(page.locator(".replay-caption")).to_contain_text("Move 1 of")
    page.wait_for_url("**?move=1")
    before = page.evaluate("window.written")
    page.evaluate(
        "for (let turn = 0; turn < 201; turn++)"
        " dispatchEvent(new KeyboardEvent('keydown', { key: turn % 2 ? 'ArrowLeft' : 'ArrowRight' }))"
    )
    page.wait_for_url("**?move=2")
    assert page.evaluate("window.written") == before + 1


def test_a_link_is_followed_while_the_address_is_to_be_written(page) -> None:
    page.add_init_script(
        "window.late = []; const wait = setTimeout;"
        "window.setTimeout = (call, time, ...rest) => (time === 200 ? late.push(call) : wait(call, time, ...rest));"
    )
    open_game(page, "selfplay/made/1/2?move=5")
    page.evaluate("location.hash = '#/ladder'; for (const call of late) call()")
    expect(page.get_by_role("heading", level=1)).to_have_text("Ladder")
    assert page.url.endswith("#/ladder")


def test_a_game_is_continued_from_a_position(page, recorded) -> None:
    open_game(page, "selfplay/made/1/2?move=5")
    page.get_by_role("link", name="Continue from here").click()
    page.get_by_text("The game begins after move 5 of the recorded game selfplay/made/1/2").wait_for()
    expect(page.get_by_label("Game", exact=True).locator("option:checked")).to_have_text("Go 5×5")
    page.get_by_label("○ White").select_option("human")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".moves li")).to_have_count(5)
    stones = sum(action < 25 for action in recorded[1][2].actions[:5])
    assert page.locator("svg.board .stone:not(.preview)").count() == stones


def test_a_game_on_a_board_that_is_not_offered_is_continued(page) -> None:
    def fewer(route) -> None:
        answer = route.fetch()
        found = answer.json()
        found["boards"] = [board for board in found["boards"] if board["title"] != "Go 5×5"]
        route.fulfill(response=answer, json=found)

    page.route("**/api/players", fewer)
    open_game(page, "selfplay/made/1/2?move=5")
    page.get_by_role("link", name="Continue from here").click()
    expect(page.get_by_label("Game", exact=True).locator("option:checked")).to_have_text("Go 5×5")
    page.get_by_label("○ White").select_option("random")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".moves li").nth(4)).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Go 5×5")


def test_a_replay_links_to_the_record(page, recorded) -> None:
    open_game(page, "gating/made/1/1")
    facts = page.locator("section").last
    record = recorded[1][7]
    for text in ("made/gen-0001", "data/match/shard-0000.parquet, row 1", record.black[:12], record.white[:12]):
        assert text in facts.inner_text()
    with page.expect_download() as download:
        facts.get_by_role("link", name="SGF").click()
    assert download.value.suggested_filename == "made-gen-0001-gating-1.sgf"
    page.get_by_role("link", name="next game").click()
    page.wait_for_url("**/#/games/gating/made/1/2")


@pytest.mark.parametrize("is_secure", [True, False])
def test_a_digest_is_copied_or_else_selected(page, is_secure: bool) -> None:
    if is_secure:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    else:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    open_game(page, "gating/made/1/1")
    button = page.get_by_role("button", name="Copy the commit")
    button.click()
    expect(button).to_have_text("Copied" if is_secure else "Press Ctrl+C")
    text = page.evaluate("navigator.clipboard ? navigator.clipboard.readText() : String(getSelection())")
    code = page.locator("dd", has=button).locator("code")
    assert len(text) == 40 and text == code.get_attribute("title")
    expect(button).to_have_text("Copy")


def test_the_games_of_a_match_are_listed_and_replayed(page) -> None:
    open_list(page)
    page.get_by_label("Lineage or match").select_option(label="centre against pass (4)")
    wait_for_count(page, "4 games")
    assert shown(page)[3].startswith("#3 – – match W+F 0 forfeit pass centre")
    page.get_by_role("link", name="Game 1: match of pass against centre").click()
    caption = page.locator(".replay-caption")
    expect(caption).to_contain_text("The start of the game")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("Move 2 of 4: White C3. Next: Black pass.")
    assert page.locator("svg.board .stone").count() == 1
    assert page.get_by_role("heading", level=2).all_inner_texts() == ["Record"]
    assert ".zero/matches/0123abcd" in page.locator("section").last.inner_text()
    page.get_by_role("link", name="All games of this match").click()
    wait_for_count(page, "4 games")


def test_an_unknown_game_is_an_error(page) -> None:
    page.goto("/#/games/gating/made/1/99")
    page.wait_for_selector(".error")
    assert "unknown game gating/made/1/99; see the list of games" in page.locator(".error").inner_text()


@pytest.mark.parametrize("path", ["games", "games/selfplay/made/1/2?move=9", "games/match/~0123abcd/0/1?move=2"])
def test_the_views_are_accessible_and_fit_a_phone(page, path: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(f"/#/{path}")
    page.wait_for_selector("table tbody td, .replay-caption")
    assert_accessible(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    assert_fits(page)
    assert_accessible(page)
