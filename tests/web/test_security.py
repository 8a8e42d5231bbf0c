"""What the page refuses: other hosts, other origins, forms, large bodies, requests without the token."""

import asyncio
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.web.serving import Client
from zero.errors import ParamsError
from zero.web import server
from zero.web.app import new_app
from zero.web.security import MAX_BODY_BYTES, Guard

TOKEN = "a-secret"


async def echo(request: Request) -> JSONResponse:
    return JSONResponse({"length": len(await request.body())})


def client(host: str = "127.0.0.1", token: str = "") -> Client:
    """A small application behind the guard."""
    routes = [Route("/", echo), Route("/api/echo", echo, methods=["GET", "POST"])]
    return Client(Guard(Starlette(routes=routes), host, token))


def raw(app: ASGIApp, kind: str, path: str) -> list[dict[str, Any]]:
    """The messages that answer a request whose path no client has normalised."""
    sent: list[dict[str, Any]] = []
    received = [{"type": "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        if not received:
            await asyncio.sleep(60)  # a client that waits for the response
        return received.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        **{"type": kind, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""},
        **{"headers": [(b"host", b"localhost")], "scheme": "http", "root_path": "", "http_version": "1.1"},
        **{"server": ("localhost", 80), "client": ("127.0.0.1", 1), "extensions": {}},
    }

    async def answer() -> None:
        await app(scope, receive, send)

    asyncio.run(answer())
    return sent


@pytest.mark.parametrize("host", ["localhost:8100", "127.0.0.1:9999", "[::1]:8100", "LOCALHOST", "127.0.0.1"])
def test_loopback_names_are_served_at_any_port(host):
    assert client().get("/api/echo", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8100", "192.168.1.5", "", "[::1", "localhost:x"]
)
def test_other_hosts_are_refused_because_of_dns_rebinding(host):
    answer = client().get("/api/echo", headers={"Host": host})
    assert answer.status_code == 421
    assert "open the address that `zero web` printed" in answer.json()["error"]


def test_a_server_on_all_addresses_accepts_addresses_and_its_own_name_only():
    for host, status in (("192.168.1.5:8100", 200), ("[fe80::1]:8100", 200), ("evil.example", 421)):
        assert client("0.0.0.0").get("/api/echo", headers={"Host": host}).status_code == status
    assert client("box.local").get("/api/echo", headers={"Host": "box.local:8100"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:9999", "http://127.0.0.1:8100", "http://[", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_requests_of_other_pages_are_refused(origin, method):
    assert client().request(method, "/api/echo", headers={"Origin": origin}, json={}).status_code == 403


def test_requests_of_the_page_itself_are_served():
    assert client().post("/api/echo", headers={"Origin": "http://localhost:8100"}, json={}).status_code == 200


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "", "application/jsonp"])
def test_a_form_cannot_change_anything(content_type):
    answer = client().post("/api/echo", headers={"Content-Type": content_type}, content=b"{}")
    assert answer.status_code == 415
    answer = client().request("DELETE", "/api/echo", headers={"Content-Type": content_type})
    assert answer.status_code == 415


def test_json_with_a_character_set_is_json():
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert client().post("/api/echo", headers=headers, content=b"{}").json() == {"length": 2}


async def chunks():
    for _ in range(17):
        yield b"x" * 65536


def test_large_bodies_are_refused_by_their_length_and_while_they_stream():
    headers = {"Content-Type": "application/json"}
    whole = client().post("/api/echo", headers=headers, content=b"x" * MAX_BODY_BYTES)
    assert whole.json() == {"length": MAX_BODY_BYTES}
    announced = client().post("/api/echo", headers=headers, content=b"x" * (MAX_BODY_BYTES + 1))
    lying = client().post("/api/echo", headers={**headers, "Content-Length": "-1"}, content=b"x")
    streamed = client().post("/api/echo", headers=headers, content=chunks())
    assert "content-length" not in streamed.request.headers
    for answer in (announced, lying, streamed):
        assert answer.status_code == 413
        assert "the request is too large; it may have 1,048,576 bytes" in answer.text


def test_every_answer_has_the_headers_also_a_refusal():
    for answer in (client().get("/api/echo"), client().get("/api/echo", headers={"Host": "x"}), client().get("/none")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ") and "unsafe-eval" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert client().get("/api/echo").headers["cache-control"] == "no-store"
    assert client().get("/").headers["cache-control"] == "no-cache", "modules of two versions must not mix"


def test_websockets_are_closed():
    assert raw(client().app, "websocket", "/") == [{"type": "websocket.close"}]


def test_a_token_is_needed_by_every_path():
    for path in ("/", "/api/echo", "/none", "/api/echo?token=a-secret"):
        answer = client(token=TOKEN).get(path)
        assert answer.status_code == 401
        assert TOKEN not in answer.text


@pytest.mark.parametrize("value", ["Bearer a-secret", "bearer  a-secret"])
def test_the_token_is_accepted_as_a_bearer(value):
    assert client(token=TOKEN).get("/api/echo", headers={"Authorization": value}).status_code == 200


@pytest.mark.parametrize("value", ["Bearer", "Bearer x", "Bearer a-secret2", "Basic a-secret", "Bearer é"])
def test_other_tokens_are_not(value):
    assert client(token=TOKEN).get("/api/echo", headers={"Authorization": value.encode()}).status_code == 401


def test_the_printed_address_has_the_token_escaped(tmp_path, monkeypatch):
    def made(home, host, token):
        return SimpleNamespace(run=lambda sockets: [each.close() for each in sockets])

    addresses: list[str] = []
    monkeypatch.setattr(server, "new_server", made)
    server.serve(tmp_path, "127.0.0.1", 0, "a&b #c+%d", addresses.append)
    assert parse_qs(urlsplit(addresses[0]).query) == {"token": ["a&b #c+%d"]} and not urlsplit(addresses[0]).fragment


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("", "a", "--host is empty; leave it out"),
        *(("127.0.0.1", text, "--token has other") for text in ("日本", "a\n")),
    ],
)
def test_a_host_or_a_token_that_cannot_work_is_refused(tmp_path, host, token, message):
    with pytest.raises(ParamsError, match=message):
        server.serve(tmp_path, host, 0, token, lambda _: None)


def test_opening_the_address_with_the_token_sets_a_cookie_for_this_port():
    browser = client(token=TOKEN)
    assert browser.get("/?token=wrong").status_code == 401
    assert browser.post("/?token=a-secret", json={}).status_code == 401
    opened = browser.get("/?token=a-secret")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert opened.headers["set-cookie"] == f"zero-8100={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    cookie = {"Cookie": f"zero-8100={TOKEN}"}
    assert browser.get("/", headers=cookie).status_code == 200
    assert browser.post("/api/echo", headers=cookie, json={}).status_code == 200
    other_port = {"Cookie": f"zero-8101={TOKEN}"}
    assert client(token=TOKEN).get("/", headers=other_port).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"),
        *("/static/%2fetc%2fpasswd", "/static/..\\app.py", "/static/\x00", "/static/"),
    ],
)
def test_only_the_folder_of_static_files_is_served(path, tmp_path):
    app = new_app(tmp_path)
    assert raw(app, "http", "/static/app.js")[0]["status"] == 200
    assert raw(app, "http", unquote(path))[0]["status"] == 404
