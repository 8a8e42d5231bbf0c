"""The application and its server: `zero web` as a program, addresses, errors, and the players that are offered."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.project import environment_of, git
from tests.oracle.gnugo import is_installed
from tests.web.serving import Page, serving
from zero.config.params import preset_text
from zero.errors import ServerError
from zero.web.players import offer
from zero.web.server import listen

LOADED = """
import sys
from pathlib import Path
from zero.web.app import new_app
from zero.web.players import offer
new_app(Path(sys.argv[1]))
assert offer(Path(sys.argv[1])).boards
print(sorted({"torch", "numba", "openvino", "mlflow", "matplotlib"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    home = tmp_path_factory.mktemp("home")
    git(home, "init", "--quiet")
    (home / "params.yaml").write_text(preset_text("smoke"))
    (home / ".zero").mkdir()
    (home / ".zero/servers.json").write_text('{"prefect": "http://127.0.0.1:4207", "other": "x"}')
    with serving(home) as served:
        yield served


@contextlib.contextmanager
def program(home: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`zero web` as a process, and the address that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "zero", "web", *arguments],
        cwd=home,
        env=environment_of(ZERO_HOME=str(home)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("zero web: http://"), process.communicate()[1]
        yield process, line.removeprefix("zero web: ").strip()
    finally:
        process.kill()
        process.communicate()


def test_the_page_and_its_modules_are_served(page):
    index = page.http.get("/")
    assert "<title>zero</title>" in index.text and index.headers["cache-control"] == "no-cache"
    for name, kind in (("app.js", "text/javascript"), ("board.js", "text/javascript"), ("style.css", "text/css")):
        answer = page.http.get(f"/static/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
    assert "server" not in index.headers


def test_errors_are_one_line_of_json(page):
    unknown = page.http.get("/api/none")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "/api/none: Not Found"})
    assert page.http.get("/none").json() == {"error": "/none: Not Found"}
    assert page.http.get("/api/lineages/none").json()["error"].startswith("unknown lineage 'none'")
    assert page.http.get("/api/sessions/none").status_code == 404
    assert page.http.post("/api/sessions", json=[]).status_code == 400
    assert page.http.delete("/api/sessions", headers={"Content-Type": "application/json"}).status_code == 404


def test_the_addresses_of_the_servers_are_those_that_make_up_wrote(page):
    assert page.http.get("/api/servers").json() == {"prefect": "http://127.0.0.1:4207"}
    assert page.http.get("/api/health").json() == {"status": "ok"}


def test_boards_of_shipped_players_and_presets_are_offered(page):
    boards = {board["id"]: board for board in page.http.get("/api/players").json()["boards"]}
    assert boards["go-9-False"]["players"][0] == {
        **{"spec": "shipped:go9", "title": "go9, shipped", "group": "Shipped with zero"},
        **{"komi": 7.0, "has_network": True},
    }
    assert boards["gomoku-8-5"]["title"] == "Gomoku 8×8, 5 in a row"
    assert [player["spec"] for player in boards["gomoku-8-5"]["players"]] == [
        "shipped:gomoku8",
        "rollout:1000",
        "random",
    ]
    assert ("gnugo:10" in {player["spec"] for player in boards["go-19-False"]["players"]}) == is_installed()


def test_a_lineage_that_cannot_be_read_is_an_error_beside_the_others(tmp_path):
    for name, text in (("good", preset_text("go5")), ("broken", "game: {name: chess}"), ("go", preset_text("go5"))):
        record = tmp_path / ".zero/workspaces" / name / "record"
        record.mkdir(parents=True)
        (record / "ledger.jsonl").write_text("{}\n")
        (record.parent / "params.yaml").write_text(text)
    found = offer(tmp_path)
    assert len(found.errors) == 3
    assert found.errors[0].startswith("lineage broken: params.yaml of broken: ")
    assert "is not a ledger entry" in found.errors[2]
    assert any(player.spec == "shipped:go9" for board in found.boards for player in board.players)


def test_the_start_imports_neither_the_kernels_nor_torch(tmp_path):
    done = subprocess.run([sys.executable, "-c", LOADED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_program_prints_its_address_and_ends_while_a_page_listens(tmp_path):
    with program(tmp_path) as (process, url):
        game = httpx.post(
            f"{url}api/sessions", json={"white": "random", "game": {"name": "go", "size": 5}}, timeout=120
        )
        assert game.status_code == 201
        with httpx.stream("GET", f"{url}api/sessions/{game.json()['id']}/events", timeout=120) as events:
            lines = events.iter_lines()
            assert next(lines).startswith("id: ")
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert 'data: {"reason":"the server was stopped"}' in rest
        assert process.wait(120) == -signal.SIGTERM


def test_ctrl_c_ends_the_program_without_a_traceback(tmp_path):
    with program(tmp_path, "--port", "0") as (process, url):
        assert httpx.get(f"{url}api/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        assert process.stderr is not None and process.stderr.read() == ""


def test_a_host_that_others_can_reach_gets_a_token(tmp_path):
    with program(tmp_path, "--host", "0.0.0.0") as (_, url):
        port, token = httpx.URL(url).port, httpx.URL(url).params["token"]
        assert len(token) >= 32
        local = f"http://127.0.0.1:{port}/"
        assert httpx.get(local).status_code == 401
        opened = httpx.get(local, params={"token": token}, follow_redirects=True)
        assert opened.status_code == 200 and opened.url.query == b""


def test_the_next_free_port_is_taken_and_a_given_one_in_use_is_an_error():
    with listen("127.0.0.1", 0) as first, listen("127.0.0.1", 0) as second:
        port = first.getsockname()[1]
        assert port >= 8100 and second.getsockname()[1] != port
        with pytest.raises(ServerError, match=rf"cannot listen on 127\.0\.0\.1, port {port}: Address already in use"):
            listen("127.0.0.1", port)
    with pytest.raises(ServerError, match=r"ports 8100 to 8199: .*give another --port or --host"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(ServerError, match=r"cannot listen on é\.\.b, ports 8100"):
        listen("é..b", 0)
