"""Protects the local page from other pages of the browser, other hosts and large requests: one ASGI middleware.

A page of another site must not play or read games here, so foreign origins and unknown host names (DNS rebinding) are
refused, and requests that change something must be JSON, which forms of other sites cannot send.
"""

import hmac
import ipaddress
import socket
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARDS = ("0.0.0.0", "::")
MAX_BODY_BYTES = 1 << 20
TOO_LARGE = f"the request is too large; it may have {MAX_BODY_BYTES:,} bytes"
SAFE_METHODS = ("GET", "HEAD")
HEADERS = {
    # Vega runs without eval: charts.js gives it the interpreter of expressions.
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """The middleware. It refuses a request with a status and one line of JSON, or passes it on."""

    def __init__(self, app: ASGIApp, host: str, token: str) -> None:
        """Stores the arguments.

        Args:
          app: the application.
          host: name or address that the server was given to listen on.
          token: secret that every request must have; empty if none is needed.
        """
        self._app, self._token = app, token
        self._names = LOOPBACK_NAMES | {host.lower()}
        self._is_open = host in WILDCARDS
        if self._is_open:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page has no WebSocket
            await send({"type": "websocket.close"})
            return
        num_bytes = 0

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                # The files are of one version: a browser must not keep some of them after an update.
                headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith("/api/") else "no-cache")
            await send(message)

        async def receive_limited() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > MAX_BODY_BYTES:
                raise HTTPException(413, TOO_LARGE)  # inside the application, which turns it into a response
            return message

        if response := self._refusal(scope):
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive_limited, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a request that is not passed on; None if it is."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_served(host):
            return _error(421, f"this server is not {host!r}; open the address that `zero web` printed")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return _error(403, f"requests from the page {origin!r} are refused; open the address of `zero web` itself")
        if self._token and not self._has_token(headers, host):
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if scope["path"] == "/" and scope["method"] == "GET" and self._is_token(given):
                redirect = RedirectResponse("/", 303)
                redirect.set_cookie(_cookie_name(host), given, path="/", httponly=True, samesite="strict")
                return redirect
            return _error(401, "this page needs its token; open the address with `?token=` that `zero web` printed")
        if scope["method"] not in SAFE_METHODS:
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                return _error(415, f"{scope['method']} needs the content type application/json")
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
                return _error(413, TOO_LARGE)
        return None

    def _is_served(self, host: str) -> bool:
        """True if the Host header names this server. Any address does if the server listens on all: only names lie."""
        try:
            parts = urlsplit(f"//{host}")
            name, _ = (parts.hostname or "").lower(), parts.port  # an invalid port is a ValueError
            if name in self._names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._is_open

    def _has_token(self, headers: Headers, host: str) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        return self._is_token(cookie_parser(headers.get("cookie", "")).get(_cookie_name(host), ""))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _cookie_name(host: str) -> str:
    """Name of the cookie. It has the port: browsers share cookies between all ports of a host."""
    return f"zero-{urlsplit(f'//{host}').port or 80}"


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)
