"""Games of people and engines on a real server: moves, analysis, several pages, failures, limits, the end."""

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.oracle.gnugo import needs_gnugo
from tests.web.serving import GO5, GOMOKU5, Page, serving
from zero.data.sgf import read_sgf
from zero.errors import ZeroError
from zero.play.single_game import SingleGamePlayer
from zero.players.session import NetworkSession, PlayerSession
from zero.web.broadcast import Broadcast
from zero.web.engines import Engines
from zero.web.live_game import LiveGame
from zero.web.sessions import Sessions

NETWORK = "shipped:go9,simulations=40"
LONG = "shipped:go9,simulations=20000"
C3, D3, PASS = 12, 13, 25
"""Actions on a 5x5 board."""


def gnugo_processes() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.name() == "gnugo"}


def threads_beyond(before: set[threading.Thread]) -> set[threading.Thread]:
    """Threads that are left after a wait: those of AnyIO end soon after their server."""
    deadline = time.monotonic() + 120
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    with serving(tmp_path_factory.mktemp("home")) as served:
        yield served


def test_two_people_play_to_the_end_score_and_take_back(page):
    game = page.start(black="human", white="human", game=GO5)
    game.post("play", action=C3, moves=0)
    state = game.state()
    assert (state["score"], state["game"]["komi"]) == ("B+24.5", 0.5)
    game.post("play", action=PASS)
    game.post("play", action=PASS)
    state = game.state()
    assert (state["over"], state["result"], state["end"], state["legal"]) == (True, "B+24.5", "passes", [])
    assert "the game is over after 3 moves" in game.refused("play", action=D3)
    game.post("undo")
    assert [move["name"] for move in game.state()["moves"]] == ["C3", "pass"]
    assert game.state()["to_play"] == 1 and not game.state()["over"]


def test_illegal_moves_and_moves_of_an_old_page_are_refused(page):
    game = page.start(black="human", white="human", game=GOMOKU5)
    game.post("play", action=C3, moves=0)
    assert game.refused("play", action=D3, moves=0) == (
        "the position has changed since you saw it, perhaps in another tab; look at the board again"
    )
    assert game.refused("play", action=C3).startswith("illegal move C3: there is a black stone")
    assert game.refused("play", action=999).startswith("illegal move 999")
    assert "score" not in game.state()
    assert len(game.state()["moves"]) == 1


def test_a_network_answers_and_shows_what_it_thinks(page):
    game = page.start(white=NETWORK)
    assert game.state()["players"]["white"]["title"] == "shipped:go9, 40 simulations"
    with game.events() as events:
        assert next(events).topic == "state"
        game.post("play", action=40)
        seen = []
        for event in events:
            seen.append(event)
            if event.topic == "state" and len(event.data["moves"]) == 2 and not event.data["thinking"]:
                break
    states = [event.data for event in seen if event.topic == "state"]
    assert (states[0]["to_play"], states[0]["paused"], len(states[0]["moves"])) == (-1, False, 1)
    assert "move" in [state["thinking"] for state in states]
    last = [event.data for event in seen if event.topic == "analysis"][-1]
    assert (last["moves"], last["to_play"], last["simulations"], last["done"]) == (1, -1, 40, True)
    assert len(last["visits"]) == len(last["prior"]) == 81
    assert max(last["visits"]) == 1.0 and last["visits"][40] == 0.0
    assert sum(last["prior"]) == pytest.approx(1.0, abs=0.02)
    assert last["best"][0]["line"][0]["action"] == last["best"][0]["action"]
    assert 0.0 < last["chance"] < 1.0
    assert states[-1]["chances"] == [None, last["chance"], None]


def test_the_analysis_works_while_a_person_thinks_and_can_be_ended(page):
    game = page.start(black="human", white="human", analysis=NETWORK)
    game.until(lambda state: state["chances"][0] is not None)
    analysis = page.http.get(game.path).json()["analysis"]
    assert (analysis["moves"], analysis["simulations"], analysis["done"]) == (0, 40, True)
    game.post("hint")
    with game.events() as events:
        hint = next(event.data for event in events if event.topic == "hint")
    assert 0 <= hint["action"] <= 81 and hint["version"] == game.state()["version"]
    assert page.http.get(game.path).json()["analysis"]["simulations"] == 40, "the hint needs no other search"
    game.post("analyse", player=None)
    assert "analysis" not in game.state()["players"]
    assert game.state()["first_version"] > analysis["version"], "pages drop what the engine thought"
    assert game.refused("hint").startswith("two people play without an engine")
    assert game.refused("analyse", player="random").startswith("'random' cannot analyse")
    game.post("analyse", player=NETWORK)
    game.until(lambda state: state["chances"][0] is not None)


def test_a_hint_does_not_wait_for_the_end_of_an_analysis_which_then_goes_on(page):
    game = page.start(black="human", white="human", analysis=LONG)
    game.until(lambda state: state["thinking"] == "analysis")
    game.post("hint")
    with game.events() as events:
        hint = next(event.data for event in events if event.topic == "hint")
    assert hint["version"] == game.state()["version"]
    analysis = page.http.get(game.path).json()["analysis"]
    assert analysis["simulations"] < 20_000 and not analysis["done"]
    game.until(lambda state: state["thinking"] == "analysis")
    game.post("close")


def test_undo_ends_a_search_and_drops_its_move(page):
    game = page.start(white=LONG)
    game.post("play", action=40)
    game.until(lambda state: state["thinking"] == "move")
    game.post("undo")
    state = game.until(lambda state: not state["thinking"])
    assert state["moves"] == [] and state["to_play"] == 1


def test_stop_plays_the_best_move_so_far(page):
    game = page.start(black=LONG, white="human")
    game.until(lambda state: state["thinking"] == "move")
    game.post("stop")
    game.until(lambda state: len(state["moves"]) == 1)
    assert page.http.get(game.path).json()["analysis"]["simulations"] < 20_000


def test_seconds_limit_a_move(page):
    game = page.start(black=LONG, white="human", seconds=0.2)
    game.until(lambda state: len(state["moves"]) == 1)
    assert page.http.get(game.path).json()["analysis"]["simulations"] < 20_000


def test_two_pages_see_the_same_and_one_that_vanishes_does_not_block(page):
    game = page.start(black="human", white="human", game=GOMOKU5)
    live = page.sessions.get(game.name)
    with game.events() as first:
        next(first)
        with game.events() as second:
            next(second)
            assert live.events.num_pages == 2
            game.post("play", action=C3)
            assert next(first) == next(second)
        for action in range(8):
            game.post("play", action=action)
        while len(next(first).data["moves"]) < 9:
            pass
    deadline = time.monotonic() + 120
    while live.events.num_pages and time.monotonic() < deadline:
        time.sleep(0.02)
    assert live.events.num_pages == 0


def test_a_slow_page_skips_to_the_newest_state(page):
    game = page.start(black="human", white="human", game=GOMOKU5)
    for action in range(6):
        game.post("play", action=action)
    with game.events() as events:
        assert len(next(events).data["moves"]) == 6


def test_ownership_is_blacks_and_only_of_networks_that_have_it(page):
    game = page.start(black="human", white="human", analysis=NETWORK)
    for action in (40, 81, 30, 81, 50):  # White passes
        game.post("play", action=action)
        number = len(game.state()["moves"])
        game.until(lambda state, number=number: state["chances"][number] is not None)
        owners = page.http.get(game.path).json()["analysis"]["ownership"]
        assert len(owners) == 81 and -1.0 <= min(owners) <= max(owners) <= 1.0
        assert owners[40] > 0.2, "Black's stone, whoever is to move"
    other = page.start(black="human", white="human", analysis="shipped:gomoku8,simulations=8")
    other.until(lambda state: state["chances"][0] is not None)
    assert page.http.get(other.path).json()["analysis"]["ownership"] is None


def test_setting_the_analysis_keeps_a_pause(page):
    game = page.start(white=NETWORK)
    game.post("load", sgf="(;GM[1]SZ[9]KM[7];B[ee])")
    game.post("analyse", player=NETWORK)
    state = game.until(lambda state: state["chances"][1] is not None)
    assert state["paused"] and len(state["moves"]) == 1


def test_a_game_can_begin_with_a_file(page):
    game = page.start(white="random", game=GO5, sgf="(;GM[1]SZ[5]KM[2.5];B[cc];W[cd];B[bc])")
    state = game.until(lambda state: len(state["moves"]) == 4)
    assert (state["moves"][0]["name"], state["game"]["komi"]) == ("C3", 2.5)
    names = {each["id"] for each in page.http.get("/api/sessions").json()["games"]}
    body = {"white": "random", "game": GO5, "sgf": "(;GM[1]SZ[9];B[ee])"}
    assert "start a game on the board of the file" in page.refused("/api/sessions", body)
    assert {each["id"] for each in page.http.get("/api/sessions").json()["games"]} <= names


@pytest.mark.parametrize(
    ("properties", "komi"),
    [("KM[2.5]", 2.5), ("KM [2.5]", 2.5), ("C[has no KM[0\\]]", 0.5), ("KM[]", 0.5), ("KM[0]", 0.0), ("KM[375]", 0.5)],
)
def test_the_komi_of_a_file_counts_if_it_has_one(page, properties, komi):
    game = page.start(white="human", game=GO5)
    game.post("load", sgf=f"(;GM[1]SZ[5]{properties};B[cc])")
    assert game.state()["game"]["komi"] == komi


def test_no_engine_sees_the_board_before_the_file(page, monkeypatch):
    def slow(game: LiveGame, text: str) -> None:
        time.sleep(0.5)
        load(game, text)

    def positioned(session: PlayerSession, actions: tuple[int, ...]) -> None:
        seen.append(actions)
        set_position(session, actions)

    load, set_position = LiveGame.load, PlayerSession.set_position
    seen: list[tuple[int, ...]] = []
    monkeypatch.setattr(LiveGame, "load", slow)
    monkeypatch.setattr(PlayerSession, "set_position", positioned)
    game = page.start(black="random", white="human", game=GO5, sgf="(;GM[1]SZ[5];B[cc];W[cd])")
    game.until(lambda state: len(state["moves"]) == 3)
    assert seen == [(C3, C3 + 5)]


def test_a_position_that_is_left_while_its_player_is_loaded_is_not_searched(page, monkeypatch):
    def slow(engines: Engines, *arguments: Any) -> object:
        session = load(engines, *arguments)
        loading.set()
        assert may_go_on.wait(120)
        monkeypatch.setattr(SingleGamePlayer, "search", lambda *_, **__: searches.append(1))
        return session

    load, loading, may_go_on = Engines.open, threading.Event(), threading.Event()
    searches: list[int] = []
    monkeypatch.setattr(Engines, "open", slow)
    game = page.start(white=LONG)
    game.post("play", action=40)
    assert loading.wait(120)
    game.post("undo")
    may_go_on.set()
    game.until(lambda state: not state["thinking"])
    assert searches == [] and game.state()["error"] == ""


def test_a_hint_after_a_failed_analysis_is_a_search_that_can_be_interrupted(page, monkeypatch):
    def failing(session: NetworkSession, *arguments: Any) -> object:
        if session.num_simulations != 41:  # a search of an earlier test's game, which goes on
            return search(session, *arguments)
        if not tried:
            tried.append(1)
            raise ZeroError("the network failed")
        searches.append(arguments)
        return search(session, *arguments)

    search = NetworkSession.search
    tried: list[int] = []
    searches: list[tuple[Any, ...]] = []
    monkeypatch.setattr(NetworkSession, "search", failing)
    game = page.start(black="human", white="human", analysis="shipped:go9,simulations=41")
    game.until(lambda state: state["error"])
    game.post("hint")
    with game.events() as events:
        next(event for event in events if event.topic == "hint")
    assert len(searches) == 1


def test_a_failed_analysis_does_not_start_a_paused_game(page, monkeypatch):
    def failing(session: NetworkSession, *arguments: Any) -> object:
        if session.num_simulations == 42:
            raise ZeroError("the network failed")
        return search(session, *arguments)

    search = NetworkSession.search
    monkeypatch.setattr(NetworkSession, "search", failing)
    game = page.start(white="random", game={"name": "go", "size": 9, "komi": 7})
    game.post("load", sgf="(;GM[1]SZ[9]KM[7];B[ee])")
    game.post("analyse", player="shipped:go9,simulations=42")
    state = game.until(lambda state: state["error"])
    assert state["paused"] and len(state["moves"]) == 1


def test_a_closed_game_frees_its_engines(page):
    game = page.start(black="human", white="human", analysis=NETWORK)
    game.until(lambda state: state["chances"][0] is not None)
    live = page.sessions.get(game.name)
    assert [*live._opened] == ["analysis"]
    game.post("close")
    live.join(60)
    assert live._opened == {}


def test_two_first_requests_share_their_networks(tmp_path, monkeypatch):
    def slow(self: Engines, home: Path) -> None:
        made.append(self)
        time.sleep(0.2)

    made: list[Engines] = []
    monkeypatch.setattr(Engines, "__init__", slow)
    sessions = Sessions(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(lambda _: sessions.engines, range(2))] == made * 2


def test_two_engines_play_without_a_page(page):
    game = page.start(black="random", white="random", game=GOMOKU5)
    state = game.until(lambda state: state["over"])
    assert state["end"] in ("line", "full")
    assert game.refused("resign") == "the game is over; undo takes a move back"
    game.post("undo")
    assert game.until(lambda state: state["paused"])["moves"]
    game.post("resume")
    game.until(lambda state: state["over"])


def test_resignation_and_taking_it_back(page):
    game = page.start(white="random", game=GO5)
    game.post("resign")
    assert (game.state()["result"], game.state()["end"]) == ("W+R", "resignation")
    assert game.refused("play", action=C3) == "the game is over by resignation; undo continues it"
    assert read_sgf(page.http.get(f"{game.path}/sgf").text).result == "W+R"
    game.post("undo")
    assert not game.state()["over"]
    assert game.refused("undo") == "no move can be taken back; play one first"


def test_a_person_whose_time_is_over_loses_without_a_move(page):
    game = page.start(white="random", game=GO5, clock={"main_seconds": 0.3})
    state = game.until(lambda state: state["over"])
    assert (state["result"], state["end"]) == ("W+T", "time")
    assert (state["clock"]["black"], state["clock"]["running"]) == (0, None)
    assert read_sgf(page.http.get(f"{game.path}/sgf").text).result == "W+T"


def test_a_move_after_the_time_is_refused_and_undo_gives_the_turn_again(page, monkeypatch):
    game = page.start(white="random", game=GO5, clock={"main_seconds": 600})
    monkeypatch.setattr(page.sessions.get(game.name)._clock, "_now", lambda: time.monotonic() + 601)
    assert game.refused("play", action=C3) == "the game was lost on time; undo continues it"
    assert game.state()["result"] == "W+T"
    game.post("undo")
    state = game.state()
    assert not state["over"] and 500 < state["clock"]["black"] <= 600 and state["clock"]["running"] == 1


def test_the_clock_of_the_player_to_move_runs_and_stands_still_in_a_pause(page):
    game = page.start(black="human", white="random", game=GO5, clock={"main_seconds": 600, "increment_seconds": 100})
    assert game.state()["clock"]["running"] == 1
    game.post("play", action=C3)
    clock = game.until(lambda state: len(state["moves"]) == 2)["clock"]
    assert clock["running"] == 1 and 600 < clock["black"] < 700 and 600 < clock["white"] < 700
    game.post("undo")
    clock = game.state()["clock"]
    assert clock["running"] == 1 and 500 < clock["black"] <= 600 and clock["white"] == 600
    game.post("load", sgf="(;GM[1]SZ[5]KM[0.5];B[cc])")
    state = game.state()
    assert state["paused"] and state["clock"] == {"black": 600, "white": 600, "running": None, "increment": 100}
    assert "clock.main_seconds" in page.refused("/api/sessions", {"white": "random", "clock": {"main_seconds": 0}})


def test_an_engine_whose_time_is_over_loses(page):
    game = page.start(black=LONG, white="human", clock={"main_seconds": 0.5})
    state = game.until(lambda state: state["over"])
    assert (state["result"], state["end"], state["moves"]) == ("W+T", "time", [])
    game.until(lambda state: not state["thinking"])
    game.post("undo")
    state = game.state()
    assert not state["over"] and state["paused"] and state["clock"]["black"] == 0.5
    game.post("play", action=40)
    assert len(game.state()["moves"]) == 1
    game.post("close")


def test_a_game_is_saved_and_loaded_and_looked_at(page):
    game = page.start(black="human", white="human", game=GO5)
    for action in (C3, D3, PASS):
        game.post("play", action=action)
    answer = page.http.get(f"{game.path}/sgf")
    assert answer.headers["content-disposition"] == f'attachment; filename="zero-{game.name}.sgf"'
    assert read_sgf(answer.text).actions == (C3, D3, PASS)
    other = page.start(black="human", white="human", game=GO5)
    other.post("load", sgf=answer.text.replace("KM[0.5]", "KM[2.5]").replace("GC[]", "GC[<script>alert(1)</script>]"))
    state = other.state()
    assert [move["action"] for move in state["moves"]] == [C3, D3, PASS]
    assert state["game"]["komi"] == 2.5 and state["source"]["comment"] == "<script>alert(1)</script>"
    past = page.http.get(f"{other.path}/positions/1").json()
    assert (past["last"], past["stones"].count(0)) == (C3, 24)
    assert page.http.get(f"{other.path}/positions/4").status_code == 400
    assert page.http.get(f"{other.path}/positions/{'9' * 5000}").status_code == 404


def test_a_file_without_komi_has_that_of_the_game(page):
    game = page.start(black="human", white="human", game=GO5)
    game.post("load", sgf="(;GM[1]SZ[5]KM[2.5];B[cc])")
    game.post("load", sgf="(;GM[1]SZ[5];B[cc])")
    assert game.state()["game"]["komi"] == 0.5


@pytest.mark.parametrize(
    "text, message",
    [
        ("nothing", "not an SGF file"),
        ("(;GM[1]SZ[9];B[ee])", "the file has a game of Go 9×9, this is Go 5×5; start a game on the board of"),
        ("(;GM[4]SZ[5];B[cc])", "the file has a game of Gomoku 5×5, this is Go 5×5"),
        ("(;GM[1]SZ[5];B[cc];W[cc])", "move 2 of the file: illegal move C3: there is a black stone"),
        ("(;GM[1]SZ[5]AB[cc])", "set-up stones or handicap"),
        ("(;GM[1]SZ[5];B[cc", "SGF syntax error in line 1"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(page, text, message):
    game = page.start(black="human", white="human", game=GO5)
    game.post("play", action=C3)
    assert message in game.refused("load", sgf=text)
    assert len(game.state()["moves"]) == 1


def test_an_engine_waits_after_a_file_was_loaded(page):
    game = page.start(white="random", game=GO5)
    game.post("load", sgf="(;GM[1]SZ[5]KM[0.5];B[cc])")
    assert game.state()["paused"]
    game.post("resume")
    game.until(lambda state: len(state["moves"]) == 2)


@pytest.fixture
def published(monkeypatch) -> list[tuple[str, dict[str, Any]]]:
    """Every event that is published. A page may miss one: only the newest of a topic is kept."""

    def recorded(events, topic, payload):
        published.append((topic, payload))
        publish(events, topic, payload)

    published: list[tuple[str, dict[str, Any]]] = []
    publish = Broadcast.publish
    monkeypatch.setattr(Broadcast, "publish", recorded)
    return published


def test_an_engine_that_goes_on_does_not_wait_for_the_end_of_the_analysis(page, published):
    game = page.start(white=NETWORK, analysis=LONG)
    game.post("load", sgf="(;GM[1]SZ[9]KM[7];B[ee])")
    game.until(lambda state: state["thinking"] == "analysis")
    game.post("resume")
    game.until(lambda state: len(state["moves"]) == 2)
    analyses = [data for topic, data in published if topic == "analysis" and "20000" in data["by"]]
    assert max(data["simulations"] for data in analyses if data["moves"] == 1) < 20_000
    game.post("close")


def test_a_late_stop_does_not_end_the_search_of_another_position(page, monkeypatch):
    """The network moves while the request of a page to stop it is on its way."""

    def recorded(session: NetworkSession, *arguments: Any) -> object:
        result = search(session, *arguments)
        if session.num_simulations == 42:  # not a search of an earlier test's game, which goes on
            searches.append(result.num_simulations)
        return result

    search = NetworkSession.search
    searches: list[int] = []
    monkeypatch.setattr(NetworkSession, "search", recorded)
    game = page.start(white="shipped:go9,simulations=42")
    game.post("play", action=40)
    version = game.until(lambda state: len(state["moves"]) == 2)["version"]
    game.post("stop", version=version - 1)
    game.post("hint")
    with game.events() as events:
        next(event for event in events if event.topic == "hint")
    assert searches == [42, 42]


def test_a_network_searches_after_its_analysis_was_stopped(page, published):
    game = page.start(white=NETWORK, analysis=LONG)
    game.post("load", sgf="(;GM[1]SZ[9]KM[7];B[ee])")
    game.until(lambda state: state["thinking"] == "analysis")
    game.post("stop")
    game.until(lambda state: not state["thinking"])
    game.post("resume")
    game.until(lambda state: len(state["moves"]) == 2)
    searches = [data for topic, data in published if topic == "analysis" and "20000" not in data["by"]]
    assert searches[-1]["done"] and searches[-1]["simulations"] >= 40


@needs_gnugo
def test_an_engine_that_dies_leaves_the_game_to_another_player(page):
    game = page.start(white="gnugo:1", game=GO5)
    game.post("play", action=C3)
    game.until(lambda state: len(state["moves"]) == 2)
    game.post("hint")
    with game.events() as events:
        assert next(event for event in events if event.topic == "hint").data["by"] == "GNU Go, level 1"
    for child in psutil.Process().children(recursive=True):
        if child.name() == "gnugo":
            child.kill()
    action = game.state()["legal"][0]
    game.post("play", action=action)
    state = game.until(lambda state: state["error"])
    assert state["error"].startswith("GNU Go, level 1: gnugo:1 failed: gnugo was killed by signal 9")
    assert state["paused"] and len(state["moves"]) == 3
    game.post("seat", colour="white", player="random")
    assert game.until(lambda state: len(state["moves"]) == 4)["error"] == ""


@needs_gnugo
def test_an_engine_that_has_no_colour_any_more_is_ended(page):
    before = gnugo_processes()
    game = page.start(black="gnugo:1", white="human", game=GO5)
    game.until(lambda state: len(state["moves"]) == 1)
    assert gnugo_processes() - before
    game.post("seat", colour="black", player="human")
    deadline = time.monotonic() + 120
    while gnugo_processes() - before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needs_gnugo
def test_two_programs_pause_after_their_move(page):
    game = page.start(black="gnugo:10", white="gnugo:10", game={"name": "go", "size": 19, "komi": 7.5})
    game.until(lambda state: len(state["moves"]) > 1 and state["thinking"] == "move")
    game.post("stop")
    number = len(game.until(lambda state: state["paused"] and not state["thinking"])["moves"])
    game.post("resume")
    game.until(lambda state: len(state["moves"]) > number)
    game.post("close")


@needs_gnugo
def test_a_dead_engine_is_started_again(page):
    game = page.start(black="gnugo:1", white="human", game=GO5)
    game.until(lambda state: len(state["moves"]) == 1)
    for child in psutil.Process().children(recursive=True):
        if child.name() == "gnugo":
            child.kill()
    game.post("play", action=game.state()["legal"][0])
    game.until(lambda state: state["error"])
    game.post("resume")
    assert game.until(lambda state: len(state["moves"]) == 3)["error"] == ""


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "gtp:sh -c 'touch /tmp/x'",
            "leelaz:weights.txt",
            "/etc/passwd",
            "weights.safetensors",
            "models:/zero-go9@champion",
        ),
        *("raw:/etc/passwd", "raw:../x", "shipped:../go9", "tiny/gen-0000/../x"),
    ],
)
def test_commands_and_files_are_no_players_of_the_page(page, spec):
    assert "cannot play on the page" in page.refused("/api/sessions", {"white": spec})


@pytest.mark.parametrize(
    "body, message",
    [
        ({"white": "rollout:999999", "game": GO5}, "rollout must be an integer from 1 to 10000, got '999999'"),
        ({"white": "shipped:go9,simulations=20001"}, "simulations must be an integer from 0 to 20000, got '20001'"),
        ({"white": "shipped:nobody"}, "unknown shipped player 'nobody'"),
        ({"white": "nobody"}, "unknown lineage 'nobody'"),
        ({"black": "shipped:go9", "white": "shipped:gomoku8"}, "the players are for different games: go and gomoku"),
        (
            {"white": "shipped:go9", "game": GO5},
            "the players are for different games: size 9 and 5; choose players for Go 5×5",
        ),
        ({"white": "random", "game": {"name": "go", "size": 50}}, "game.go.size 50: Input should be less than"),
        ({"white": "random", "seconds": 0}, "seconds 0: Input should be greater than 0"),
        ({}, "white"),
    ],
)
def test_a_game_that_cannot_be_started_is_one_line(page, body, message):
    error = page.refused("/api/sessions", body)
    assert message in error and "\n" not in error


def test_a_game_goes_on_when_its_lineage_disappears(begun):
    with serving(begun.home) as page:
        game = page.start(white="tiny/gen-0000,simulations=8")
        assert page.refused("/api/sessions", {"white": "tiny/gen-0007"}).startswith(
            "unknown generation 'tiny/gen-0007'"
        )
        shutil.move(begun.workspace, begun.home / "moved")
        shutil.rmtree(begun.home / ".zero/dvc-cache")
        game.post("play", action=C3)
        game.until(lambda state: len(state["moves"]) == 2)
        assert page.refused("/api/sessions", {"white": "tiny"}).startswith("unknown lineage 'tiny'")


def test_the_least_recently_used_game_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr("zero.web.sessions.MAX_GAMES", 2)
    with serving(tmp_path) as page:
        first, second = (page.start(black="human", white="human", game=GO5) for _ in range(2))
        with second.events() as events:
            next(events)
            first.post("play", action=C3)
            page.start(black="human", white="human", game=GO5)
            reason = next(events).data["reason"]
        assert reason == "more than 2 games are open, and this one was not used for the longest time"
        assert second.refused("undo").startswith(f"unknown game '{second.name}': a game is closed after 60 minutes")
        names = [game["id"] for game in page.http.get("/api/sessions").json()["games"]]
        assert len(names) == 2 and first.name in names


def test_a_game_that_cannot_be_started_closes_no_other_one(tmp_path, monkeypatch):
    monkeypatch.setattr("zero.web.sessions.MAX_GAMES", 1)
    with serving(tmp_path) as page:
        first = page.start(black="human", white="human", game=GO5)
        body = {"white": "human", "game": GO5, "sgf": "(;GM[1]SZ[9];B[ee])"}
        assert "start a game on the board of the file" in page.refused("/api/sessions", body)
        assert not first.state()["over"]
        second = page.start(black=LONG, white="human")
        second.until(lambda state: state["thinking"])
        body = {"white": "human", "game": GO5}
        assert page.refused("/api/sessions", body) == "1 games are open and engines work in all of them; close one"
        assert [game["id"] for game in page.http.get("/api/sessions").json()["games"]] == [second.name]


def test_a_game_without_a_page_is_closed_and_one_with_a_page_is_not(tmp_path, monkeypatch):
    def counted(game: LiveGame) -> float:
        looks.append(1)
        return seconds_alone(game)

    seconds_alone = LiveGame._seconds_alone
    looks: list[int] = []
    monkeypatch.setattr(LiveGame, "_seconds_alone", counted)
    with serving(tmp_path) as page:
        game = page.start(black="human", white="human", game=GO5)
        live = page.sessions.get(game.name)
        with game.events() as events:
            next(events)
            live._idle_seconds = 0.05  # now that a page shows it, however long that took
            game.post("stop")  # wakes the thread
            looks.clear()
            deadline = time.monotonic() + 120
            while len(looks) < 10 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert len(looks) >= 10 and page.http.get(game.path).status_code == 200
        while page.http.get(game.path).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert page.http.get(game.path).status_code == 404


def test_nothing_is_left_when_the_server_ends(tmp_path):
    before = set(threading.enumerate())
    with serving(tmp_path) as page:
        for spec, game in ((LONG, None), ("random", GO5), ("human", GO5)):
            page.start(black=spec, white="human", game=game).until(
                lambda state: (
                    state["moves"] or state["thinking"] == "move" or state["players"]["black"]["spec"] == "human"
                )
            )
        assert len(set(threading.enumerate()) - before) > 3
    assert threads_beyond(before) == set()


@needs_gnugo
def test_engines_that_think_are_ended_with_the_server(tmp_path):
    threads, before = set(threading.enumerate()), set(psutil.Process().children(recursive=True))
    with serving(tmp_path) as page:
        game = page.start(black="gnugo:10", white="gnugo:10", game={"name": "go", "size": 19, "komi": 7.5})
        game.until(lambda state: len(state["moves"]) > 1 and state["thinking"] == "move")
    left = {child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}
    assert left <= before
    assert threads_beyond(threads) == set()
