"""The players that a game on the page can have: lineages of the project, shipped players, programs, people.

A page of the browser must not start programs or read files, so specs with a command line or a path are refused here.
`zero play` accepts them.
"""

import re
from pathlib import Path

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zero.config.params import PARAMS_FILE, GameParams, GoParams, parse_game, preset_text, presets
from zero.errors import ParamsError, ZeroError
from zero.players.gtp_process import program_path
from zero.players.networks import SHIPPED_DIR, SHIPPED_PREFIX, shipped_players
from zero.players.spec import PlayerSpec, parse_player
from zero.record.ledger import find_workspace, generation_tag, lineages_here, read_ledger

HUMAN = "human"
NETWORK_NAME = re.compile(rf"({SHIPPED_PREFIX})?[a-z][a-z0-9-]{{0,39}}|[a-z][a-z0-9-]{{0,39}}/gen-\d{{4,6}}")
KINDS = ("network", "raw", "gnugo", "rollout", "random")
MAX_SIMULATIONS, MAX_PLAYOUTS = 20_000, 10_000
"""A person waits for a move, and the server for the end of a search that it cannot interrupt (rollouts)."""
GNUGO_LEVELS = (1, 5, 10)
ROLLOUTS = 1000


def check_spec(text: str) -> PlayerSpec:
    """The spec of a player that the page may start.

    Raises:
      ParamsError: it is not a spec, or would run a command, read a file, or search for too long.
    """
    spec = parse_player(text)
    if spec.kind not in KINDS or (spec.has_network and not NETWORK_NAME.fullmatch(spec.argument)):
        raise ParamsError(
            f"{text!r} cannot play on the page, which starts networks of this project, shipped players, gnugo, rollout "
            "and random; use `zero play` for other players"
        )
    if spec.kind == "network":
        spec.int_option("simulations", 0, 0, MAX_SIMULATIONS)
    if spec.kind == "rollout":
        spec.int_argument(ROLLOUTS, 1, MAX_PLAYOUTS)
    return spec


def board_title(game: GameParams) -> str:
    """Name of a game and its board, such as `Go 9×9`."""
    line = getattr(game, "in_a_row", None)
    extra = f", {line} in a row" if line else ", suicide allowed" if getattr(game, "allow_suicide", False) else ""
    return f"{game.name.capitalize()} {game.size}×{game.size}{extra}"


def player_title(spec: PlayerSpec) -> str:
    """Name of a player without a network."""
    if spec.kind == "gnugo":
        return f"GNU Go, level {spec.argument or 10}"
    if spec.kind == "rollout":
        return f"Rollouts, {spec.argument or ROLLOUTS} a move"
    return "Random moves" if spec.kind == "random" else spec.text


class OfferedPlayer(BaseModel):
    """A player that the form for a new game offers."""

    spec: str
    title: str
    group: str
    """Heading of the list."""
    komi: float | None = None
    """Komi that a network was trained with."""
    has_network: bool = False
    """True: it searches with a network, so it can analyse and takes a number of simulations."""


class PlayableBoard(BaseModel):
    """A game on a board, with its players."""

    id: str
    title: str
    game: dict[str, str | int | float | bool]
    """The section `game` of the parameters, with the komi of the first player."""
    players: list[OfferedPlayer] = []


class Offer(BaseModel):
    """All boards and players, and what could not be read."""

    boards: list[PlayableBoard]
    errors: list[str]


def offer(home: Path) -> Offer:
    """All boards of lineages, shipped players and presets, in this order. A lineage that cannot be read is an error."""
    boards: dict[str, PlayableBoard] = {}
    errors = []

    def board_of(game: GameParams) -> PlayableBoard:
        values = game.model_dump()
        key = "-".join(str(value) for name, value in values.items() if name != "komi")
        return boards.setdefault(key, PlayableBoard(id=key, title=board_title(game), game=values))

    def add(game: GameParams, spec: str, title: str, group: str) -> None:
        komi = game.komi if isinstance(game, GoParams) else None
        board_of(game).players.append(OfferedPlayer(spec=spec, title=title, group=group, komi=komi, has_network=True))

    for lineage in lineages_here(home):
        try:
            workspace = find_workspace(home, lineage)  # it may have been moved away since
            game = parse_game((workspace / PARAMS_FILE).read_text(), f"{PARAMS_FILE} of {lineage}")
            ledger = read_ledger(workspace)
        except (ZeroError, OSError, UnicodeDecodeError) as error:
            errors.append(f"lineage {lineage}: {error}")
            continue
        # The newest champion first, each by its first generation.
        firsts = {entry.champion: entry.generation for entry in reversed(ledger)}
        for number, generation in enumerate(firsts.values()):
            tag = generation_tag(lineage, generation)
            add(game, tag, tag if number else f"{tag}, champion", f"Lineage {lineage}")
    for name in shipped_players():
        text = (SHIPPED_DIR / name / PARAMS_FILE).read_text()
        add(parse_game(text), f"{SHIPPED_PREFIX}{name}", f"{name}, shipped", "Shipped with zero")
    for preset in presets():
        board_of(parse_game(preset_text(preset)))
    for board in boards.values():
        board.players += _programs(str(board.game["name"]))
    return Offer(boards=list(boards.values()), errors=errors)


def _programs(game: str) -> list[OfferedPlayer]:
    """Players without a network."""
    specs = [f"rollout:{ROLLOUTS}", "random"]
    if game == "go" and program_path("gnugo"):
        specs = [*(f"gnugo:{level}" for level in GNUGO_LEVELS), *specs]
    return [OfferedPlayer(spec=spec, title=player_title(parse_player(spec)), group="Other players") for spec in specs]


def routes(home: Path) -> list[Route]:
    """The route of the list."""

    def players(_: Request) -> Response:
        return JSONResponse(offer(home).model_dump())

    return [Route("/api/players", players)]
