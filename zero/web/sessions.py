"""The games on the page and their addresses below `/api/sessions`.

| request | effect |
|---|---|
| `GET /api/sessions` | the open games |
| `POST /api/sessions` | starts a game, see `NewGame` |
| `GET /api/sessions/ID` | its state and newest analysis |
| `GET /api/sessions/ID/positions/N` | the stones after N moves |
| `GET /api/sessions/ID/events` | server-sent events `state`, `analysis`, `hint`, `closed` |
| `GET /api/sessions/ID/sgf` | the game as an SGF file |
| `POST /api/sessions/ID/play` | plays `{"action": 40, "moves": 2}`; `moves` on the page are optional |
| `POST /api/sessions/ID/{undo,hint,resume,resign,close}` | the command |
| `POST /api/sessions/ID/stop` | ends the search; `{"version": 7}` of the state on the page is optional |
| `POST /api/sessions/ID/analyse` | sets the analysis engine `{"player": "go9"}`; null ends the analysis |
| `POST /api/sessions/ID/seat` | gives a colour to another player: `{"colour": "white", "player": "gnugo:5"}` |
| `POST /api/sessions/ID/load` | replaces the moves by those of `{"sgf": "(;GM[1]..."}` |
"""

import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from zero.config.params import GameParams
from zero.errors import ParamsError, ZeroError
from zero.web.players import HUMAN, check_spec, player_title

if TYPE_CHECKING:
    from zero.web.engines import Engines
    from zero.web.live_game import LiveGame, Seat

MAX_GAMES = 16
"""Number of games that are open at once."""
IDLE_SECONDS = 3600.0
"""A game is closed after this time without a page that shows it."""
JOIN_SECONDS = 20.0
"""Time that an engine has to end when the server stops."""
Text = Annotated[str, Field(max_length=200)]


class Body(BaseModel):
    """The JSON of a request."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ClockTimes(Body):
    """The time of each player in seconds: at the start, and added after each of its moves."""

    main_seconds: Annotated[float, Field(gt=0.0, le=86_400.0)]
    increment_seconds: Annotated[float, Field(ge=0.0, le=3600.0)] = 0.0


class NewGame(Body):
    """A game to start. Players are `human` or a spec, see `zero.web.players.check_spec`."""

    black: Text = HUMAN
    white: Text
    analysis: Text | None = None
    """A network that analyses the position while a person is to move; None: no analysis."""
    game: GameParams | None = None
    """The game and board; None: those of the first network."""
    seconds: Annotated[float, Field(gt=0.0, le=600.0)] | None = None
    """Time limit of each move of a network."""
    clock: ClockTimes | None = None
    """A player whose time is over loses; None: no clock."""
    sgf: str | None = None
    """A file with the moves so far."""


class MoveBody(Body):
    """A move of a person."""

    action: int
    moves: int | None = None
    """Number of moves of the position that the person saw."""


class StopBody(Body):
    """The end of a search."""

    version: int | None = None
    """Version of the state that the person saw."""


class NewAnalysis(Body):
    """A network that analyses; None: no analysis."""

    player: Text | None


class NewPlayer(Body):
    """Another player for a colour."""

    colour: Literal["black", "white"]
    player: Text


class SgfText(Body):
    """A file."""

    sgf: str


class Nothing(Body):
    """A command without arguments."""


AnyBody = TypeVar("AnyBody", bound=Body)


class Sessions:
    """The open games. Thread-safe."""

    def __init__(self, home: Path) -> None:
        """No game is open; `home` is the project's folder."""
        self._home = home
        self._games: dict[str, LiveGame] = {}
        self._lock = threading.Lock()
        self._engines: Engines | None = None

    def open(self, new: NewGame) -> "LiveGame":
        """Starts a game. If too many are open, the one that was not used for the longest time is closed.

        Raises:
          ZeroError: a player is unknown, the players or the file do not fit together, or engines work in all open
            games.
        """
        from zero.web.game_clock import GameClock
        from zero.web.live_game import LiveGame, Role, Seat  # imports the search, which takes a second

        seats: dict[Role, Seat] = {"black": self.seat(new.black), "white": self.seat(new.white)}
        if new.analysis is not None:
            seats["analysis"] = self.analysis_seat(new.analysis)
        players = [seat.player for seat in seats.values() if seat.player is not None]
        engines = self.engines
        game = engines.game_of(players, new.game)
        clock = None if new.clock is None else GameClock(new.clock.main_seconds, new.clock.increment_seconds)
        with self._lock:
            name = secrets.token_hex(6)
            made = LiveGame(name, engines, game, seats, new.seconds, IDLE_SECONDS, clock, new.sgf)
            try:
                self._make_room()  # after the file was read, which may be refused
            except ZeroError:
                made.close("there is no room for it")
                raise
            self._games[name] = made
        return made

    @property
    def engines(self) -> "Engines":
        """The players and their networks."""
        from zero.web.engines import Engines

        with self._lock:  # two of them would load each network twice
            self._engines = self._engines or Engines(self._home)
            return self._engines

    def seat(self, spec: str) -> "Seat":
        """The seat of a person (`human`) or a player. Its network is read now, so that the lineage may change later.

        Raises:
          ZeroError: there is no such player, or the page may not start it.
        """
        from zero.players.build import resolve_player
        from zero.web.live_game import Seat

        if spec == HUMAN:
            return Seat(HUMAN, "Human", None)
        player = resolve_player(self._home, check_spec(spec), for_session=True)
        return Seat(spec, player.network.id.name if player.network else player_title(player.spec), player)

    def analysis_seat(self, spec: str) -> "Seat":
        """A network for the analysis.

        Raises:
          ZeroError: the player has no network, or does not search.
        """
        seat = self.seat(spec)
        if seat.player is None or seat.player.network is None or not seat.player.network.num_simulations:
            raise ParamsError(f"{spec!r} cannot analyse; choose a network with simulations, such as shipped:go9")
        return seat

    def get(self, name: str) -> "LiveGame":
        """An open game.

        Raises:
          ZeroError: it does not exist, or was closed.
        """
        game = self._games.get(name)
        if game is None or game.is_closed:
            raise ZeroError(
                f"unknown game {name!r}: a game is closed after {IDLE_SECONDS / 60:.0f} minutes without a page, "
                f"when more than {MAX_GAMES} are open, or with the server; start a new one"
            )
        return game

    def all(self) -> "list[LiveGame]":
        """The open games, the last used one first."""
        games = [game for game in self._games.copy().values() if not game.is_closed]
        return sorted(games, key=lambda game: -game.last_use())

    def close(self) -> None:
        """Closes all games and waits for their threads."""
        with self._lock:
            games = [*self._games.values()]
            self._games.clear()
        for game in games:
            game.close("the server was stopped")
        for game in games:
            game.join(JOIN_SECONDS)

    def _make_room(self) -> None:
        """Closes the least recently used game if the new one would be too many."""
        self._games = {game.name: game for game in self.all()}
        if len(self._games) < MAX_GAMES:
            return
        idle = [game for game in self._games.values() if game.is_idle]
        if not idle:
            raise ZeroError(f"{MAX_GAMES} games are open and engines work in all of them; close one")
        last = idle[-1]
        last.close(f"more than {MAX_GAMES} games are open, and this one was not used for the longest time")
        del self._games[last.name]


def routes(sessions: Sessions) -> list[Route]:
    """The routes of the table above."""

    def listed(_: Request) -> Response:
        return JSONResponse({"games": [game.events.newest("state") for game in sessions.all()]})

    async def opened(request: Request) -> Response:
        new = await body_of(request, NewGame)
        game = await run_in_threadpool(sessions.open, new)
        return JSONResponse(game.events.newest("state"), 201)

    def shown(request: Request) -> Response:
        game = game_of(request)
        game.show()
        events = game.events
        return JSONResponse({"state": events.newest("state"), "analysis": events.newest("analysis")})

    def position(request: Request) -> Response:
        return JSONResponse(game_of(request).position(request.path_params["moves"]))

    def events(request: Request) -> Response:
        game = game_of(request)
        game.show()
        return StreamingResponse(
            game.events.stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    def saved(request: Request) -> Response:
        game = game_of(request)
        headers = {"Content-Disposition": f'attachment; filename="zero-{game.name}.sgf"'}
        return Response(game.sgf(), media_type="application/x-go-sgf", headers=headers)

    def game_of(request: Request) -> "LiveGame":
        return sessions.get(request.path_params["name"])

    def analyse(game: "LiveGame", new: NewAnalysis) -> None:
        game.seat("analysis", None if new.player is None else sessions.analysis_seat(new.player))

    def seat(game: "LiveGame", new: NewPlayer) -> None:
        game.seat(new.colour, sessions.seat(new.player))

    def command(name: str, model: type[AnyBody], run: "Callable[[LiveGame, AnyBody], None]") -> Route:
        async def endpoint(request: Request) -> Response:
            game, body = game_of(request), await body_of(request, model)
            await run_in_threadpool(run, game, body)
            return JSONResponse({})

        return Route(f"/api/sessions/{{name}}/{name}", endpoint, methods=["POST"])

    return [
        Route("/api/sessions", listed, methods=["GET"]),
        Route("/api/sessions", opened, methods=["POST"]),
        Route("/api/sessions/{name}", shown),
        Route("/api/sessions/{name}/positions/{moves:number}", position),
        Route("/api/sessions/{name}/events", events),
        Route("/api/sessions/{name}/sgf", saved),
        command("play", MoveBody, lambda game, move: game.play(move.action, move.moves)),
        command("analyse", NewAnalysis, analyse),
        command("seat", NewPlayer, seat),
        command("load", SgfText, lambda game, body: game.load(body.sgf)),
        command("undo", Nothing, lambda game, _: game.undo()),
        command("hint", Nothing, lambda game, _: game.hint()),
        command("stop", StopBody, lambda game, stop: game.stop(stop.version)),
        command("resume", Nothing, lambda game, _: game.resume()),
        command("resign", Nothing, lambda game, _: game.resign()),
        command("close", Nothing, lambda game, _: game.close("it was closed from a page")),
    ]


async def body_of(request: Request, model: type[AnyBody]) -> AnyBody:
    """The JSON of a request.

    Raises:
      ParamsError: it is not JSON, or not what the model expects.
    """
    try:
        return model.model_validate_json(await request.body() or b"{}")
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"]))
        value = "" if fault["type"] == "json_invalid" else f" {fault['input']!r:.80}"
        raise ParamsError(f"{place or 'the request'}{value}: {fault['msg']}") from None
