"""A real server of the page in this process, on a free port, and requests to its games; requests without a server."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from starlette.types import ASGIApp

from zero.web.server import listen, new_server
from zero.web.sessions import Sessions

GO5 = {"name": "go", "size": 5, "komi": 0.5}
GOMOKU5 = {"name": "gomoku", "size": 5, "in_a_row": 4}
WAIT_SECONDS = 120.0
"""Time limit of waits: the first search of a process may have to compile its kernels."""


class Client:
    """Requests to an application in this process, without a server."""

    def __init__(self, app: ASGIApp, base_url: str = "http://localhost:8100") -> None:
        self.app, self.base_url = app, base_url

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=self.base_url) as http:
                return await http.request(method, path, **arguments)

        return asyncio.run(answer())

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("GET", path, **arguments)

    def post(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("POST", path, **arguments)


class Page:
    """What a page does: requests to one server."""

    def __init__(self, url: str, sessions: Sessions) -> None:
        self.url, self.sessions = url, sessions
        self.http = httpx.Client(base_url=url, timeout=WAIT_SECONDS)

    def start(self, **body: Any) -> "Game":
        """Starts a game of the given players."""
        answer = self.http.post("/api/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return Game(self, answer.json()["id"])

    def refused(self, path: str, body: Any) -> str:
        """The error of a request that must fail."""
        answer = self.http.post(path, json=body)
        assert 400 <= answer.status_code < 500, answer.text
        return str(answer.json()["error"])


class Event(NamedTuple):
    topic: str
    data: dict[str, Any]


class Game(NamedTuple):
    """One game on the server."""

    page: Page
    name: str

    @property
    def path(self) -> str:
        return f"/api/sessions/{self.name}"

    def post(self, command: str, **body: Any) -> Any:
        """Sends a command that must succeed."""
        answer = self.page.http.post(f"{self.path}/{command}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, command: str, **body: Any) -> str:
        return self.page.refused(f"{self.path}/{command}", body)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.page.http.get(self.path).json()["state"]
        return state

    def until(self, is_done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Waits for a state."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_done(state := self.state()):
            assert time.monotonic() < deadline, state
            time.sleep(0.02)
        return state

    @contextlib.contextmanager
    def events(self) -> Iterator[Iterator[Event]]:
        """The events from now on."""
        with httpx.stream("GET", f"{self.page.url}{self.path}/events", timeout=WAIT_SECONDS) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _parsed(answer.iter_lines())


def _parsed(lines: Iterator[str]) -> Iterator[Event]:
    topic = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            topic = value
        elif name == "data":
            yield Event(topic, json.loads(value))


@contextlib.contextmanager
def serving(home: Path) -> Iterator[Page]:
    """A server in a thread; it is stopped as by a signal."""
    listener = listen("127.0.0.1", 0)
    server = new_server(home)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        page = Page(f"http://127.0.0.1:{listener.getsockname()[1]}", server._sessions)
        with page.http:
            yield page
    finally:
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
