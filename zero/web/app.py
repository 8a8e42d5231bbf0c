"""The application of `zero web`: the page and its JSON interface.

The start does not import the kernels; the first request for recorded games and the first game do. A network is played
by OpenVINO, which needs no torch.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from zero.config.settings import servers
from zero.errors import ZeroError
from zero.web import players
from zero.web.assets import STATIC_DIR, vega_bundle
from zero.web.security import Guard
from zero.web.sessions import Sessions
from zero.web.sessions import routes as session_routes

UNKNOWN = "unknown "
"""Begins the message of an error about something that does not exist, such as `unknown lineage 'x'`."""


class NumberConvertor(IntegerConvertor):
    """A number in a path, `{name:number}`. Starlette's `int` fails on one of more than 4,300 digits."""

    regex = "[0-9]{1,9}"


register_url_convertor("number", NumberConvertor())


class RecordRoutes:
    """The routes of recorded games and of lineages.

    The first request imports their modules, and with them the kernels: that takes seconds, or minutes while another
    process compiles kernels. The page does not wait for it.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._router: Router | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        async with self._lock:
            if self._router is None:
                self._router = await run_in_threadpool(self._new_router)
        await self._router(scope, receive, send)

    def _new_router(self) -> Router:
        from zero.web import games, lineages

        return Router([*games.routes(self._home), *lineages.routes(self._home)])


def new_app(home: Path, host: str = "127.0.0.1", token: str = "") -> Starlette:
    """The application for a project; `app.state.sessions` has its games.

    Args:
      home: the project's folder.
      host: name or address that the server was given to listen on.
      token: secret that requests must have; empty: none.
    """
    sessions = Sessions(home)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(sessions.close)

    def index(_: Request) -> Response:
        return FileResponse(STATIC_DIR / "index.html")

    def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def server_addresses(_: Request) -> Response:
        return JSONResponse(servers(home))

    def vega(_: Request) -> Response:
        return FileResponse(vega_bundle(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    routes: list[Route | Mount] = [
        Route("/", index),
        Route("/api/health", health),
        Route("/api/servers", server_addresses),
        Route("/static/vega.js", vega),
        *players.routes(home),
        *session_routes(sessions),
        Route("/api/{path:path}", RecordRoutes(home)),
        Mount("/static", StaticFiles(directory=STATIC_DIR)),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={ZeroError: _zero_error, HTTPException: _http_error, Exception: _failure},
    )
    app.state.sessions = sessions
    return app


def _zero_error(_: Request, error: Exception) -> Response:
    text = " ".join(str(error).split())
    return JSONResponse({"error": text}, 404 if text.startswith(UNKNOWN) else 400)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{request.url.path}: {error.detail}"}, error.status_code, error.headers)


def _failure(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the server failed ({type(error).__name__}); its log has the cause"}, 500)
