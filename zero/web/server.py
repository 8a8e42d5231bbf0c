"""The server of `zero web`: its port, its token, its start and its end."""

import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.concurrency import run_in_threadpool

from zero.errors import ParamsError, ServerError
from zero.web.app import new_app
from zero.web.security import LOOPBACK_NAMES, WILDCARDS
from zero.web.sessions import Sessions

FIRST_PORT, PORTS_TRIED = 8100, 100
SHUTDOWN_SECONDS = 10
"""Time that requests have to end after a signal."""


class WebServer(uvicorn.Server):
    """The server. It closes the games before it stops: their event streams would keep connections open."""

    def __init__(self, config: uvicorn.Config, sessions: Sessions) -> None:
        super().__init__(config)
        self._sessions = sessions

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops to serve."""
        await run_in_threadpool(self._sessions.close)
        await super().shutdown(sockets)


def serve(home: Path, host: str, port: int, token: str, started: Callable[[str], None]) -> None:
    """Serves the page of a project until a signal.

    Args:
      home: the project's folder.
      host: name or address to listen on. One that other machines can reach gets a token.
      port: the port; 0: the first free one from `FIRST_PORT`.
      token: secret that requests must have; empty: a new one if the host needs one.
      started: receives the address of the page, as soon as requests there wait for the server.

    Raises:
      ParamsError: the host is empty, or the token has characters that a cookie cannot have.
      ServerError: the server cannot listen there.
    """
    if not host:
        raise ParamsError("--host is empty; leave it out for this machine alone, or give 0.0.0.0 for all addresses")
    if not (token.isascii() and token.isprintable()):
        raise ParamsError("--token has other characters than printable ASCII; leave it out for a random one")
    if not token and host not in LOOPBACK_NAMES:
        token = secrets.token_urlsafe(24)
    listener = listen(host, port)
    shown = socket.gethostname() if host in WILDCARDS else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}/" + (f"?token={quote(token, safe='')}" if token else "")
    started(url)
    new_server(home, host, token).run(sockets=[listener])


def new_server(home: Path, host: str = "127.0.0.1", token: str = "") -> WebServer:
    """A server of the page; the arguments are those of `new_app`."""
    app = new_app(home, host, token)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return WebServer(config, app.state.sessions)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on the host and the port; 0: the first free port from `FIRST_PORT`.

    Raises:
      ServerError: the port is in use, or the host is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = ""
    for each in [port] if port else range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, each))
            bound.listen()  # at once: with SO_REUSEADDR two programs can bind a port, but only one can listen
            return bound
        except (OSError, TypeError, UnicodeError) as error:  # the last two for a name that no host can have
            bound.close()
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    ports = f"port {port}" if port else f"ports {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1}"
    raise ServerError(f"cannot listen on {host}, {ports}: {reason}; give another --port or --host")
