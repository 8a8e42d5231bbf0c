"""The Play view in a real browser: games by clicks and by keys, several tabs, reloads, errors, accessibility."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect
from playwright.sync_api import Page as Tab

from tests.web.browsing import PHONE, TIMEOUT_MS, assert_accessible, assert_fits, new_tab
from tests.web.serving import GO5, GOMOKU5, Page, serving
from zero.errors import ZeroError
from zero.web.engines import Engines

HOSTILE = "<img src=x onerror='window.hacked = true'><script>window.hacked = true</script>"
TRIES = 10


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    with serving(tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with new_tab(browser) as tab:
        yield tab


def cell(tab: Tab, name: str):
    return tab.locator(f'svg.board .cell[aria-label^="{name},"]')


def stones(tab: Tab) -> int:
    return tab.locator("svg.board .stones .stone:not(.preview)").count()


def wait_for_stones(tab: Tab, number: int) -> None:
    expect(tab.locator("svg.board .stones .stone:not(.preview)")).to_have_count(number)


def play_until_a_stone_answers(tab: Tab, name: str) -> str:
    """Plays a point; returns the point of the answer. After a pass of the random player the move is played again."""
    for _ in range(TRIES):
        cell(tab, name).click()
        expect(tab.locator(".moves li")).to_have_count(2)
        if stones(tab) == 2:
            label = tab.locator('svg.board .cell[aria-label*="white stone"]').get_attribute("aria-label")
            return str(label).split(",")[0]
        tab.keyboard.press("u")
        wait_for_stones(tab, 0)
    raise AssertionError(f"{TRIES} passes of the random player")


def test_a_game_from_the_form_by_pointer_keys_and_undo(page, tab):
    tab.goto(page.url)
    expect(tab).to_have_title("Play · zero")
    tab.get_by_label("Game", exact=True).select_option(label="Go 5×5")
    tab.get_by_label("○ White").select_option("random")
    tab.get_by_label("Komi").fill("2.5")
    tab.get_by_role("button", name="Start").click()
    tab.wait_for_url("**/#/play/*")
    expect(tab.get_by_text("Komi 2.5. Score now: W+2.5.")).to_be_visible()
    taken = play_until_a_stone_answers(tab, "C3")
    expect(cell(tab, "C3")).to_have_attribute("aria-label", "C3, black stone")
    target, keys = ("C4", ["ArrowUp"]) if taken != "C4" else ("C2", ["ArrowDown"])
    tab.locator("svg.board").focus()
    for key in (*keys, "Enter"):
        tab.keyboard.press(key)
    expect(cell(tab, target)).to_have_attribute("aria-label", f"{target}, black stone")
    expect(tab.locator(".moves li")).to_have_count(4)
    tab.keyboard.press("u")
    wait_for_stones(tab, 2)
    expect(tab.locator(".moves li")).to_have_count(2)
    tab.keyboard.press("h")
    expect(tab.locator(".hint")).to_contain_text("Hint of Random moves:")
    tab.get_by_role("button", name="Score").click()
    expect(tab.locator(".hint")).to_have_text(re.compile(r"Score now: .*\. Komi 2\.5\. All stones count as alive\."))
    tab.get_by_role("button", name="Resign").click()
    expect(tab.locator(".status")).to_have_text("White wins: Black resigned.")
    tab.keyboard.press("u")
    expect(tab.locator(".status")).to_have_text("Black to move.")
    tab.keyboard.press("p")  # last, because two passes end the game
    expect(tab.locator(".moves li").nth(2)).to_contain_text("pass")
    expect(tab.locator(".moves li")).to_have_count(4)


def test_a_game_with_a_clock_counts_down_and_is_lost_on_time(page, tab):
    tab.goto(page.url)
    tab.get_by_label("Game", exact=True).select_option(label="Go 5×5")
    tab.get_by_label("○ White").select_option("human")
    tab.get_by_label("Clock: minutes of each player").fill("5")
    tab.get_by_label("Seconds added after each move").fill("600")
    tab.get_by_role("button", name="Start").click()
    black, white = (tab.get_by_role("timer", name=f"Time of {colour}") for colour in ("Black", "White"))
    expect(black).to_have_text(re.compile("4:.."))
    expect(white).to_have_text("5:00")
    cell(tab, "C3").click()
    expect(white).to_have_text(re.compile("4:.."))
    expect(black).to_have_text(re.compile("14:.."))
    game = page.start(white="human", game=GO5, clock={"main_seconds": 8})
    tab.goto(f"{page.url}/#/play/{game.name}")
    expect(tab.locator(".status")).to_have_text("White wins: Black lost on time.")
    expect(black).to_have_text("0.0")


def test_a_whole_game_of_gomoku_survives_reloads_and_is_the_same_in_two_tabs(page, tab):
    game = page.start(white="random", game=GOMOKU5)
    address = f"{page.url}/#/play/{game.name}"
    tab.goto(address)
    other = tab.context.new_page()
    other.goto(address)
    for turn in range(25):
        if (state := game.state())["over"]:
            break
        number = len(state["moves"])
        expect(tab.locator(".moves li")).to_have_count(number)
        action = state["legal"][-1]
        if turn % 2:
            tab.locator("svg.board").focus()
            for key in ("Home", *["ArrowDown"] * 4, *["ArrowUp"] * (4 - action // 5), *["ArrowRight"] * (action % 5)):
                tab.keyboard.press(key)
            tab.keyboard.press("Enter")
        else:
            tab.locator("svg.board .cell").nth(action).click()
        game.until(lambda state, number=number: state["over"] or len(state["moves"]) == number + 2)
        if turn == 1:
            tab.reload()
            wait_for_stones(tab, len(game.state()["moves"]))
    wait_for_stones(tab, len(state["moves"]))
    wait_for_stones(other, len(state["moves"]))
    text = {"B": "Black wins.", "W": "White wins.", "0": "The game is over: a draw."}[state["result"][0]]
    for each in (tab, other):
        expect(each.locator(".status")).to_have_text(text)
        assert (each.locator("svg.board .win").count() >= 4) == (state["end"] == "line")
    tab.get_by_role("button", name="first position").click()
    wait_for_stones(tab, 0)
    tab.get_by_role("button", name="last position").click()
    wait_for_stones(tab, len(state["moves"]))


def test_what_a_network_thinks_is_drawn_and_its_lines_can_be_shown(page, tab):
    game = page.start(black="human", white="shipped:go9,simulations=40", analysis="shipped:go9,simulations=40")
    tab.goto(f"{page.url}/#/play/{game.name}")
    expect(tab.locator("svg.board .heat rect").first).to_be_attached()
    expect(tab.get_by_role("meter")).to_be_visible()
    line = tab.locator("button.line").first
    expect(tab.get_by_text("40 visits")).to_be_visible()
    line.hover()
    assert tab.locator("svg.board .ghost").count() >= 1
    expect(tab.locator("svg.board .ghosts .number").first).to_have_text("1")
    tab.get_by_role("button", name="Prior").click()
    expect(tab.locator("svg.board .heat rect")).to_have_count(0)
    assert tab.locator("svg.board .prior rect").count() > 0
    cell(tab, "E5").click()
    wait_for_stones(tab, 2)
    expect(tab.locator(".graph polyline")).to_be_attached()
    analyst = tab.locator("label", has_text="Network").locator("select")
    analyst.select_option("")
    expect(tab.locator("button.line")).to_have_count(0)
    analyst.select_option("shipped:go9")
    expect(tab.locator("button.line").first).to_be_visible()
    assert game.state()["players"]["analysis"]["spec"] == "shipped:go9,simulations=40"
    analyst.select_option("")
    tab.locator("input[type=file]").set_input_files(
        {"name": "a.sgf", "mimeType": "application/x-go-sgf", "buffer": b"(;GM[1]SZ[9]KM[7];B[ee];W[cc])"}
    )
    expect(tab.locator(".graph polyline")).to_have_count(0)


def test_the_ownership_a_time_limit_and_a_position_that_was_taken_back(page, tab):
    tab.goto(page.url)
    tab.get_by_label("Game", exact=True).select_option(label="Go 9×9")
    tab.get_by_label("● Black").select_option("shipped:go9")
    tab.get_by_label("○ White").select_option("human")
    tab.get_by_label("Analysis while you think").select_option("shipped:go9")
    tab.get_by_label("Unit").select_option("seconds")
    tab.get_by_label("A network’s move takes").fill("0.5")
    tab.get_by_role("button", name="Start").click()
    expect(tab.get_by_text("A network’s move takes 0.5 s at most.")).to_be_visible()
    expect(tab.locator(".seat .name").first).to_have_text("shipped:go9, 20000 simulations")
    wait_for_stones(tab, 1)
    tab.get_by_role("button", name="Ownership").click()
    expect(tab.locator("svg.board .ownership rect").first).to_be_attached()
    game = page.start(black="human", white="human", analysis="shipped:go9,simulations=40")
    tab.goto(f"{page.url}/#/play/{game.name}")
    cell(tab, "E5").click()
    expect(tab.get_by_text("move 2, White")).to_be_visible()
    expect(tab.locator("svg.board .heat rect").first).to_be_attached()
    tab.get_by_label("Network").select_option("")
    tab.keyboard.press("Tab")  # away from the list, which takes keys
    tab.keyboard.press("u")
    wait_for_stones(tab, 0)
    cell(tab, "D4").click()
    wait_for_stones(tab, 1)
    expect(tab.locator("svg.board .heat rect")).to_have_count(0)
    expect(tab.locator("button.line")).to_have_count(0)


def test_text_of_a_file_is_shown_as_text(page, tab, tmp_path):
    game = page.start(black="human", white="human", game=GO5)
    tab.goto(f"{page.url}/#/play/{game.name}")
    file = Path(tmp_path, "game.sgf")
    file.write_text(f"(;GM[1]SZ[5]KM[0.5]PB[{HOSTILE}]GC[{HOSTILE}];B[cc];W[dd])")
    tab.locator("input[type=file]").set_input_files(file)
    wait_for_stones(tab, 2)
    assert tab.locator(".source dd").all_inner_texts() == [HOSTILE, HOSTILE]
    assert tab.evaluate("window.hacked") is None
    file.write_text("(;GM[1]SZ[9];B[ee])")
    tab.locator("input[type=file]").set_input_files(file)
    expect(tab.get_by_role("alert")).to_contain_text("the file has a game of Go 9×9, this is Go 5×5")
    assert stones(tab) == 2
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Save SGF").click()
    assert ";B[cc];W[dd]" in Path(download.value.path()).read_text()


def test_a_closed_game_and_a_missing_view_say_what_to_do(page, tab):
    game = page.start(black="human", white="human", game=GO5)
    tab.goto(f"{page.url}/#/play/{game.name}")
    expect(tab.locator(".status")).to_have_text("Black to move.")
    tab.get_by_role("button", name="Resign").click()
    expect(tab.locator(".status")).to_have_text("White wins: Black resigned.")
    tab.get_by_role("button", name="Undo").click()
    expect(tab.locator(".status")).to_have_text("Black to move.")
    game.post("close")
    expect(tab.get_by_role("alert")).to_contain_text("This game was closed: it was closed from a page.")
    expect(tab.get_by_role("button", name="Undo")).to_be_disabled()
    tab.get_by_role("alert").get_by_role("link", name="New game").click()
    expect(tab.get_by_role("button", name="Start")).to_be_visible()
    tab.goto(f"{page.url}/#/play/{game.name}")
    expect(tab.get_by_role("alert")).to_contain_text(f"unknown game '{game.name}'")
    expect(tab.get_by_role("button", name="Start")).to_be_visible()
    tab.goto(f"{page.url}/#/play/%")
    expect(tab.get_by_role("alert")).to_contain_text("unknown game '%'")
    tab.goto(f"{page.url}/#/toString")
    expect(tab).to_have_title("Play · zero")
    expect(tab.get_by_role("button", name="Start")).to_be_visible()
    tab.route("**/ladder.js", lambda route: route.abort())
    tab.get_by_role("link", name="Ladder").click()
    expect(tab.get_by_role("alert")).to_contain_text("The view “Ladder” cannot be shown:")


def test_an_open_game_is_closed_from_the_list(page, tab):
    game = page.start(black="human", white="random", game=GO5)
    tab.goto(page.url)
    item = tab.locator("li", has=tab.locator(f'a[href="#/play/{game.name}"]'))
    item.get_by_role("button", name="Close Go 5×5: Human – Random moves").click()
    expect(item).to_have_count(0)
    assert game.name not in [each["id"] for each in page.http.get("/api/sessions").json()["games"]]


def test_an_earlier_position_takes_no_pass(page, tab):
    game = page.start(black="human", white="human", game=GO5)
    game.post("play", action=12)
    tab.goto(f"{page.url}/#/play/{game.name}")
    expect(tab.get_by_role("button", name="Pass")).to_be_enabled()
    tab.get_by_role("button", name="previous position").click()
    expect(tab.get_by_role("button", name="Pass")).to_be_disabled()
    tab.get_by_role("button", name="next position").click()
    expect(tab.get_by_role("button", name="Pass")).to_be_enabled()


def wait_until_handled(tab: Tab, held: Route, pattern: str) -> None:
    """Lets a request go on, until the page has its answer."""
    with tab.expect_response(pattern) as response:
        held.continue_()
    response.value.finished()
    tab.evaluate("fetch('/api/health').then((answer) => answer.json())")


def wait_for_request(tab: Tab, held: list[Route]) -> Route:
    """The request that is held back."""
    for _ in range(TIMEOUT_MS // 20):
        if held:
            return held.pop()
        tab.wait_for_timeout(20)
    raise AssertionError("no request")


def test_a_late_answer_does_not_bring_an_earlier_position_back(page, tab):
    game = page.start(black="human", white="human", game=GO5)
    for action in (12, 13):
        game.post("play", action=action)
    held: list[Route] = []
    tab.route("**/positions/1", lambda route: held.append(route))
    tab.goto(f"{page.url}/#/play/{game.name}")
    tab.get_by_role("button", name="previous position").click()
    request = wait_for_request(tab, held)
    game.post("play", action=14)
    wait_for_stones(tab, 3)
    wait_until_handled(tab, request, "**/positions/1")
    assert stones(tab) == 3
    expect(tab.get_by_role("button", name="Pass")).to_be_enabled()


def test_two_quick_steps_go_back_two_moves(page, tab):
    game = page.start(black="human", white="human", game=GO5)
    for action in (12, 13, 14):
        game.post("play", action=action)
    tab.goto(f"{page.url}/#/play/{game.name}")
    wait_for_stones(tab, 3)
    tab.get_by_role("button", name="previous position").evaluate("(button) => { button.click(); button.click(); }")
    wait_for_stones(tab, 1)
    expect(tab.get_by_label("Position of the game")).to_have_value("1")


def test_a_game_that_starts_late_does_not_leave_another_view(page, tab):
    held: list[Route] = []
    tab.goto(page.url)
    tab.get_by_label("○ White").select_option("human")
    tab.route("**/api/sessions", lambda route: held.append(route))
    tab.get_by_role("button", name="Start").click()
    request = wait_for_request(tab, held)
    tab.get_by_role("link", name="Ladder").click()
    expect(tab.get_by_role("heading", name="Ladder")).to_be_visible()
    wait_until_handled(tab, request, "**/api/sessions")
    assert tab.url.endswith("#/ladder")


def test_a_page_says_which_search_it_stops(page, tab):
    game = page.start(black="shipped:go9,simulations=20000", white="human")
    tab.goto(f"{page.url}/#/play/{game.name}")
    version = game.state()["version"]
    with tab.expect_request("**/stop") as request:
        tab.get_by_role("button", name="Stop thinking").click()
    assert request.value.post_data_json == {"version": version}
    wait_for_stones(tab, 1)


def test_the_fault_of_an_engine_stays_until_another_player_goes_on(page, tab, monkeypatch):
    def failing(*_: object) -> object:
        raise ZeroError("the player broke")

    monkeypatch.setattr(Engines, "open", failing)
    game = page.start(black="human", white="random", game=GO5)
    tab.goto(f"{page.url}/#/play/{game.name}")
    cell(tab, "C3").click()
    fault = tab.get_by_role("alert")
    expect(fault).to_contain_text("Random moves: the player broke")
    tab.get_by_role("button", name="Score").click()
    expect(tab.locator(".hint")).to_contain_text("Score now:")
    expect(fault).to_contain_text("Random moves: the player broke")
    fault.get_by_label("Player of white").select_option("human")
    fault.get_by_role("button", name="Play on with this player").click()
    expect(tab.locator(".status")).to_have_text("White to move.")
    expect(fault).to_have_count(0)


def test_a_page_that_was_never_visible_has_no_connection(page, tab):
    game = page.start(black="human", white="human", game=GO5)
    tab.add_init_script("Object.defineProperty(document, 'hidden', { get: () => !window.isVisible })")
    tab.goto(f"{page.url}/#/play/{game.name}")
    expect(tab.locator(".status")).to_have_text("Black to move.")
    assert page.sessions.get(game.name).events.num_pages == 0
    tab.evaluate("window.isVisible = true; document.dispatchEvent(new Event('visibilitychange'))")
    game.post("play", action=12)
    wait_for_stones(tab, 1)


def test_pages_fit_a_phone_and_have_no_serious_fault_of_accessibility(page, browser):
    clock = {"main_seconds": 3600, "increment_seconds": 10}
    game = page.start(black="human", white="human", analysis="shipped:go9,simulations=40", clock=clock)
    game.post("play", action=40)
    game.until(lambda state: state["chances"][-1] is not None)
    for scheme in ("light", "dark"):
        with new_tab(browser, color_scheme=scheme, viewport=PHONE, has_touch=True) as tab:
            for path, shown in (("play", "form"), (f"play/{game.name}", "button.line")):
                tab.goto(f"{page.url}/#/{path}")
                tab.locator(shown).first.wait_for()
                assert_fits(tab)
                assert_accessible(tab)
            cell(tab, "D4").tap()
            wait_for_stones(tab, 2)
        game.post("undo")
