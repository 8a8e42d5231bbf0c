"""Requests to a server that is busy, refuses, or needs a password."""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from infra.pools import answers, api_of_environment, fetch, make_pool


class Server(BaseHTTPRequestHandler):
    """Answers 503 to the first request, 404 below /missing, and else with the credentials."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        missing, busy = self.path.startswith("/missing"), self.path == "/busy" and len(self.requests) == 1
        body = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        self.send_response(404 if missing else 503 if busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Server, "requests", [], raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://zero:p%40ss@127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_busy_server_is_asked_again(url: str) -> None:
    assert fetch(f"{url}/busy") == "zero:p@ss"
    assert Server.requests == ["/busy", "/busy"]


def test_a_busy_server_is_not_healthy(url: str) -> None:
    assert not answers(f"{url}/busy")
    assert Server.requests == ["/busy"]
    assert answers(f"{url}/busy")


def test_an_error_names_the_address_and_no_password(url: str) -> None:
    with pytest.raises(httpx.HTTPStatusError, match=r"^http://127.0.0.1:\d+/missing answers 404 Not Found: ") as caught:
        fetch(f"{url}/missing", patience=0)
    assert "p%40ss" not in str(caught.value)


def test_something_else_than_prefect_is_told(url: str) -> None:
    with pytest.raises(
        ValueError, match="this is not Prefect's API; set PREFECT_API_URL to the server's URL with /api"
    ):
        make_pool(url)


def test_the_environment_gives_the_address_and_the_password() -> None:
    env = {"PREFECT_API_URL": "https://lab.test:1/api/", "PREFECT_API_AUTH_STRING": "zero:a/b#c?d@e"}
    assert httpx.URL(api_of_environment(env)).password == "a/b#c?d@e"
    assert api_of_environment({"PREFECT_API_URL": "http://lab.test/api"}) == "http://lab.test/api"
    assert api_of_environment({"PREFECT_API_AUTH_STRING": "zero:a"}) == ""
