"""Recorded games and matches in the web page's JSON interface: the list, the replay, and SGF.

| path | answer |
|---|---|
| `/api/games?lineage=...&offset=0&limit=200` | games that match, see `GameFilter`, and how complete the index is |
| `/api/games/filters` | values to filter by |
| `/api/games/KIND/LINEAGE/GENERATION/GAME` | the moves with stones, values and visits, and where they are recorded |
| `/api/games/KIND/LINEAGE/GENERATION/GAME/sgf` | the game as a file; `?move=N`: its first N moves, without a result |

A recorded value is for the player to move. The replay has each value also for Black. A match records no values.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zero.config.params import GameParams
from zero.data.records import game_record, read_records
from zero.data.sgf import SgfHead, game_to_sgf, moves_to_sgf, result
from zero.errors import LineageError, ParamsError, ZeroError
from zero.evaluation.match import read_game, read_match
from zero.games.coordinates import action_to_name
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.lineage.status import pages_of
from zero.players.board import Board
from zero.record.ledger import generation_tag
from zero.record.lineages import data_cache
from zero.storage.manifests import GameRecord
from zero.web.index import FOLDERS, MAX_GAMES, GameFilter, GameIndex, GameRow, Kind, Number, generation_at, open_reader
from zero.web.matches import MATCH_PREFIX, match_record

PAGE = 200
"""Games in one answer, unless the request says otherwise."""
CACHED_GAMES = 8


class GamePage(GameFilter):
    """The query of a list: a filter and the part to show."""

    offset: Number = 0
    limit: Number = PAGE


class StoredGame(NamedTuple):
    """A game as the record has it."""

    record: GameRecord
    rules: Rules
    game: GameParams
    threshold: float | None = None
    """Resignation threshold of its generation; None in a match and without resignation."""
    root: str | None = None
    """Root rule of its searches. With `gumbel` the recorded counts are an improved policy. None in a match."""
    fault: str = ""
    """Why a player forfeited a match's game."""


def routes(home: Path) -> list[Route]:
    """The routes for the project in `home`."""
    games = RecordedGames(home)

    def listed(request: Request) -> Response:
        return JSONResponse(games.list(dict(request.query_params)))

    def filters(_: Request) -> Response:
        return JSONResponse(games.filters())

    def replay(request: Request) -> Response:
        return JSONResponse(games.replay(games.find(request)))

    def sgf(request: Request) -> Response:
        row = games.find(request)
        source = "" if row.kind == "match" else f"-gen-{row.generation:04d}"
        name = f"{row.lineage.removeprefix(MATCH_PREFIX)}{source}-{row.kind}-{row.game}.sgf"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        text = games.sgf(row, request.query_params.get("move"))
        return Response(text, media_type="application/x-go-sgf", headers=headers)

    one = "/api/games/{kind}/{lineage}/{generation:number}/{game:number}"
    return [
        *(Route("/api/games", listed), Route("/api/games/filters", filters)),
        *(Route(one, replay), Route(f"{one}/sgf", sgf)),
    ]


class RecordedGames:
    """The recorded games of a project. Its methods run in the threads of the server."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._index = GameIndex(home)
        self._read = lru_cache(CACHED_GAMES)(self._read_game)

    def list(self, query: dict[str, str]) -> dict[str, Any]:
        """A part of the list of games, and the state of the index.

        Raises:
          ParamsError: the query has an unknown filter, or a value that it cannot have.
        """
        try:
            page = GamePage.model_validate({name: value for name, value in query.items() if value})
        except ValidationError as error:
            raise _query_error(error) from None
        self._index.refresh_soon()
        status = self._index.status()  # first, so that nothing pending means that no game is missing
        total, rows = self._index.find(page, page.offset, min(page.limit, MAX_GAMES))
        return {"total": total, "games": [each._asdict() for each in rows], "index": status._asdict()}

    def filters(self) -> dict[str, Any]:
        """The values that games can be filtered by, and how many generations the index lacked."""
        self._index.refresh_soon()
        pending = self._index.status().pending  # first, so that 0 means that no value is missing
        lineages = [each._asdict() for each in self._index.lineages()]
        matches = [each._asdict() for each in self._index.matches()]
        values = {"kinds": get_args(Kind), "lineages": lineages, "matches": matches, "ends": self._index.ends()}
        return values | {"pending": pending}

    def find(self, request: Request) -> GameRow:
        """The game that the path names.

        Raises:
          LineageError: there is none.
        """
        named = request.path_params
        kind, lineage, number, game = (named[name] for name in ("kind", "lineage", "generation", "game"))
        self._index.refresh_soon()
        pending = self._index.status().pending  # first, so that 0 means that there is no such game
        found = self._index.game(kind, lineage, number, game)
        if found is None:
            remedy = (
                f"the index lacks {pending} generations, so reload in a moment" if pending else "see the list of games"
            )
            raise LineageError(f"unknown game {kind}/{lineage}/{number}/{game}; {remedy}")
        return found

    def replay(self, row: GameRow) -> dict[str, Any]:
        """The moves of a game and where they are recorded.

        Raises:
          MoveError: a recorded move is illegal.
          StorageError: the shard is missing or damaged.
        """
        recorded = self._read(row)
        record, rules = recorded.record, recorded.rules
        return {
            "game": row._asdict() | {"score": result(rules, record.outcome, record.margin, record.end)},
            "board": {"game": recorded.game.name, "rows": rules.rows, "columns": rules.columns, "komi": rules.komi},
            "params": recorded.game.model_dump(),
            "names": [action_to_name(rules, action) for action in range(rules.num_actions)],
            "start": Board(rules).stones.tolist(),
            "moves": [*_moves(rules, record, row.kind != "match")],
            "ownership": record.ownership.tolist() if record.ownership.any() else None,
            "resign_threshold": recorded.threshold,
            "root": recorded.root,
            "fault": recorded.fault,
            "tag": None if row.kind == "match" else generation_tag(row.lineage, row.generation),
            "networks": {
                colour: {"sha256": sha256, "name": name}
                for colour, sha256, name in (("black", row.black, row.black_name), ("white", row.white, row.white_name))
            },
            "neighbours": self._index.neighbours(row),
            "links": {} if row.kind == "match" else pages_of(self._home, row.lineage),
        }

    def sgf(self, row: GameRow, move: str | None = None) -> str:
        """The game as SGF; with `move` only its first moves, to go on from there.

        Raises:
          ParamsError: the game is shorter.
          StorageError: the shard is missing or damaged.
        """
        recorded = self._read(row)
        record, names = recorded.record, (row.black_name or "", row.white_name or "")
        event = f"{row.lineage} generation {row.generation}, {row.kind}"
        if row.kind == "match":
            event = f"match {row.lineage.removeprefix(MATCH_PREFIX)}"
        if move is not None:
            actions = record.actions[: _move_number(move, row.moves)].tolist()
            head = SgfHead(event, f"game {row.game} up to move {move}", *names, "")
            return moves_to_sgf(recorded.rules, head, actions, 0, 0.0, None)
        if row.kind == "match":
            head = SgfHead(
                event, f"game {row.game}", *names, ", ".join(filter(None, (f"end: {row.end}", recorded.fault)))
            )
            return moves_to_sgf(
                recorded.rules, head, record.actions.tolist(), record.outcome, record.margin, record.end
            )
        return game_to_sgf(recorded.rules, record, event=event, black_name=names[0], white_name=names[1])

    def _read_game(self, row: GameRow) -> StoredGame:
        if row.kind == "match":
            spec = read_match(self._home / row.path).spec
            game = read_game(self._home / row.path, row.game)
            return StoredGame(match_record(spec, game), rules_of(spec.game), spec.game, fault=game.fault)
        with open_reader(self._home, row.lineage) as reader:
            generation = generation_at(reader, data_cache(self._home), row.lineage, row.generation, row.commit)
            params = generation.read_params()
            folder = FOLDERS[row.kind]
            data = generation.checked_data(folder, row.path.removeprefix(f"{folder}/"), row.shard)
            record = game_record(read_records(data, f"{row.path} of {generation.tag}"), row.shard_row)
            metrics = generation.selfplay_metrics if row.kind == "selfplay" else None
            threshold = metrics.resignation.used.threshold if metrics and metrics.resignation else None
        return StoredGame(record, rules_of(params.game), params.game, threshold, params.search.root)


def _moves(rules: Rules, record: GameRecord, has_searches: bool) -> Iterator[dict[str, Any]]:
    """The moves of a game, with their searches if it has them. `changes`: points that change, with the new colour."""
    board = Board(rules)
    for move, action in enumerate(record.actions.tolist()):
        colour, before = board.to_play, board.stones
        board.play(action)
        after = board.stones
        facts = {
            "action": action,
            "name": action_to_name(rules, action),
            "colour": colour,
            "changes": [[point, int(after[point])] for point in np.flatnonzero(after != before).tolist()],
        }
        if not has_searches:
            yield facts
            continue
        visited = np.flatnonzero(record.visit_counts[move])
        value, best_value = float(record.root_values[move]), float(record.best_values[move])
        yield facts | {
            "value": value,
            "best_value": best_value,
            "value_black": colour * value,
            "best_value_black": colour * best_value,
            "visits": {str(each): int(record.visit_counts[move, each]) for each in visited},
        }


def _move_number(text: str, last: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) > last:
        raise ParamsError(f"move={text[:20]!r} is not a move of this game; give 0 to {last}")
    return int(text)


def _query_error(error: ValidationError) -> ZeroError:
    fault = error.errors()[0]
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return ParamsError(f"{name} is not a filter of games; filters are {', '.join(GamePage.model_fields)}")
    return ParamsError(f"{name}={fault['input']!r} is not a filter of games: {fault['msg']}")
