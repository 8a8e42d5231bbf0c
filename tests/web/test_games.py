"""The recorded games in the JSON interface of the page: the list, replays, SGF, and wrong requests."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.made_games import MADE_SIMULATIONS, made_file_ref
from tests.web.made_record import PARAMS, RULES, WEIGHTS, MadeLineage, add_match, games, network
from tests.web.serving import Client
from zero.data.records import GameColumns, read_records
from zero.data.sgf import read_sgf
from zero.games.planes import write_sample
from zero.games.position import NUM_PLANES, new_history, new_position
from zero.players.networks import weights_of
from zero.record.generation import in_progress
from zero.storage.files import sha256_bytes, write_atomic, write_manifest
from zero.storage.layout import GENERATION_FILE
from zero.storage.manifests import Champion, GameRecord, GenerationId
from zero.web import games as games_module
from zero.web.app import new_app
from zero.web.games import RecordedGames
from zero.web.index import GameIndex, GameRow, Status

THRESHOLD = -0.5


def made(home: Path) -> tuple[MadeLineage, list[GameRecord]]:
    """A lineage whose generation 1 has games, and these games: six of self-play, then four of a match."""
    lineage = MadeLineage(home)
    fast = games(6, 1)
    fast[5].visit_counts[1::2] = 0
    return lineage, lineage.add([fast], games(4, 2, never_resigns=False), THRESHOLD)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Client, MadeLineage, list[GameRecord]]:
    """The application, the lineage and its games. Only read by tests."""
    lineage, records = made(tmp_path_factory.mktemp("recorded"))
    return Client(new_app(lineage.home)), lineage, records


def error_of(app: Client, path: str, status: int) -> str:
    answer = app.get(path)
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"])


def test_the_list_has_the_number_of_games_and_a_part_of_them(recorded) -> None:
    app = recorded[0]
    answer = app.get("/api/games?kind=selfplay&offset=2&limit=3").json()
    assert answer["total"] == 6 and [each["game"] for each in answer["games"]] == [2, 3, 4]
    assert answer["index"] == {"pending": 0, "notes": []}
    first = answer["games"][0]
    assert (first["kind"], first["lineage"], first["generation"], first["black_name"]) == (
        *("selfplay", "made", 1),
        "made/gen-0000",
    )
    assert app.get("/api/games?lineage=&kind=&limit=0").json() == {
        "total": 10,
        "games": [],
        "index": {"pending": 0, "notes": []},
    }, "an empty field of the form is no filter"


def test_the_values_to_filter_by(recorded) -> None:
    app, _, records = recorded
    assert app.get("/api/games/filters").json() == {
        "kinds": ["selfplay", "gating", "match"],
        "lineages": [{"lineage": "made", "first": 1, "last": 1, "num_games": 10}],
        "matches": [],
        "ends": sorted({each.end for each in records}),
        "pending": 0,
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("kind=x", "kind='x' is not a filter of games: Input should be 'selfplay', 'gating' or 'match'"),
        ("generation=-1", "generation='-1' is not a filter of games: Input should be greater than or equal to 0"),
        ("min_moves=many", "min_moves='many' is not a filter of games: Input should be a valid integer"),
        ("colour=B", "colour is not a filter of games; filters are lineage, generation, kind"),
        (f"generation={'9' * 40}", "is not a filter of games: Input should be less than 1000000000"),
    ],
)
def test_a_wrong_filter_is_named(recorded, query: str, message: str) -> None:
    assert message in error_of(recorded[0], f"/api/games?{query}", 400)


def test_a_replay_has_the_stones_after_each_move(recorded) -> None:
    app, _, records = recorded
    data = app.get("/api/games/selfplay/made/1/2").json()
    assert data["board"] == {"game": "go", "rows": 5, "columns": 5, "komi": 0.5}
    stones, captured = list(data["start"]), 0
    position, history = new_position(RULES), new_history(RULES)
    planes = np.zeros((NUM_PLANES, RULES.num_words), np.uint64)
    for number, move in enumerate(data["moves"], 1):
        captured += sum(colour == 0 for _, colour in move["changes"])
        for point, colour in move["changes"]:
            stones[point] = colour
        write_sample(RULES, position, history, records[2].actions, number, 0, planes)
        assert stones == position.board[: RULES.num_points].tolist()
        assert data["names"][move["action"]] == move["name"]
    assert captured > 0, "the game needs a capture"
    assert len(data["moves"]) == len(records[2].actions)
    assert data["ownership"] == records[2].ownership.tolist()


def test_a_replay_has_the_recorded_values_and_visits(recorded) -> None:
    app, _, records = recorded
    data = app.get("/api/games/selfplay/made/1/5").json()
    record = records[5]
    for number, move in enumerate(data["moves"]):
        sign = 1 if number % 2 == 0 else -1
        assert move["colour"] == sign
        assert (move["value"], move["best_value"]) == (record.root_values[number], record.best_values[number])
        assert (move["value_black"], move["best_value_black"]) == (sign * move["value"], sign * move["best_value"])
        visits = {int(action): count for action, count in move["visits"].items()}
        assert visits == {a: int(n) for a, n in enumerate(record.visit_counts[number]) if n}
        assert sum(visits.values()) == (MADE_SIMULATIONS if number % 2 == 0 else 0)


def test_a_replay_names_where_it_is_recorded(recorded) -> None:
    app, lineage, records = recorded
    data = app.get("/api/games/gating/made/1/1").json()
    shard = sha256_bytes(lineage.cached(1, "data/match", "shard-0000.parquet").read_bytes())
    game = data["game"]
    assert (game["shard"], game["path"], game["shard_row"]) == (shard, "data/match/shard-0000.parquet", 1)
    assert data["tag"] == "made/gen-0001" and len(game["commit"]) == 40
    assert data["networks"] == {
        "black": {"sha256": records[7].black, "name": "made/gen-0000"},
        "white": {"sha256": records[7].white, "name": "made/gen-0001"},
    }
    assert (data["neighbours"], data["resign_threshold"]) == ([0, 2], None)
    assert app.get("/api/games/selfplay/made/1/0").json()["resign_threshold"] == THRESHOLD


def test_links_to_the_servers(tmp_path: Path) -> None:
    lineage, _ = made(tmp_path)
    (tmp_path / ".zero/servers.json").write_text(
        '{"mlflow": "http://127.0.0.1:5000", "prefect": "http://127.0.0.1:4200", "web": "http://127.0.0.1:8100"}'
    )
    found = Client(new_app(lineage.home)).get("/api/games/gating/made/1/0").json()["links"]
    assert found == {"mlflow": "http://127.0.0.1:5000/#/models/zero-made", "prefect": "http://127.0.0.1:4200/runs"}


def test_the_sgf_is_the_game(recorded) -> None:
    app, _, records = recorded
    answer = app.get("/api/games/gating/made/1/3/sgf")
    assert answer.headers["content-disposition"] == 'attachment; filename="made-gen-0001-gating-3.sgf"'
    game, record = read_sgf(answer.text), records[9]
    assert game.actions == tuple(record.actions)
    assert (game.black_name, game.event) == (f"made/gen-0000 {record.black[:12]}", "made generation 1, gating")
    assert game.result.startswith("DBW"[record.outcome])
    first = read_sgf(app.get("/api/games/gating/made/1/3/sgf?move=4").text)
    assert first == game._replace(
        actions=game.actions[:4], black_name="made/gen-0000", white_name="made/gen-0001", comment="", result="?"
    )
    refused = app.get(f"/api/games/gating/made/1/3/sgf?move={len(record.actions) + 1}")
    assert (refused.status_code, "is not a move of this game" in refused.text) == (400, True)


def test_a_match_is_replayed_without_values(tmp_path: Path) -> None:
    add_match(tmp_path, "0123abcd")
    app = Client(new_app(tmp_path))
    match = {"match": "~0123abcd", "black": "centre", "white": "pass", "num_games": 4}
    assert app.get("/api/games/filters").json()["matches"] == [match]
    data = app.get("/api/games/match/~0123abcd/0/1").json()
    assert [(move["name"], move["changes"]) for move in data["moves"]] == [
        ("pass", []),
        ("C3", [[12, -1]]),
        ("pass", []),
        ("pass", []),
    ]
    assert set(data["moves"][0]) == {"action", "name", "colour", "changes"}
    assert (data["game"]["score"], data["neighbours"], data["tag"], data["links"]) == ("W+25.5", [0, 2], None, {})
    forfeited = app.get("/api/games/match/~0123abcd/0/3").json()
    assert (forfeited["game"]["score"], forfeited["fault"]) == ("W+F", "pass: no answer")
    answer = app.get("/api/games/match/~0123abcd/0/1/sgf")
    assert answer.headers["content-disposition"] == 'attachment; filename="0123abcd-match-1.sgf"'
    game = read_sgf(answer.text)
    assert (game.black_name, game.white_name, game.result, game.event) == (
        *("pass", "centre", "W+25.5"),
        "match 0123abcd",
    )
    assert read_sgf(app.get("/api/games/match/~0123abcd/0/1/sgf?move=2").text).actions == game.actions[:2]


@pytest.mark.parametrize("move", ["", "-1", "999", "x", "1.5", "²", "9" * 5000, "0" * 20 + "999"])
def test_a_wrong_move_is_named(recorded, move: str) -> None:
    text = error_of(recorded[0], f"/api/games/gating/made/1/0/sgf?move={move}", 400)
    assert text.startswith(f"move={move[:20]!r} is not a move of this game; give 0 to ")


@pytest.mark.parametrize(
    "path", ["gating/made/1/99", "gating/made/9/0", "gating/nobody/1/0", "match/made/1/0", f"gating/made/1/{'9' * 9}"]
)
@pytest.mark.parametrize("end", ["", "/sgf"])
def test_an_unknown_game_is_named(recorded, path: str, end: str) -> None:
    text = error_of(recorded[0], f"/api/games/{path}{end}", 404)
    assert text == f"unknown game {path}; see the list of games"


@pytest.mark.parametrize("number", ["x", "-1", "9" * 30, "9" * 5000], ids=lambda number: number[:10])
def test_a_path_that_is_no_game(recorded, number: str) -> None:
    for path in (f"gating/made/1/{number}", f"gating/made/{number}/0"):
        assert "Not Found" in error_of(recorded[0], f"/api/games/{path}", 404)


def test_missing_and_damaged_data_has_a_remedy(tmp_path: Path) -> None:
    lineage, _ = made(tmp_path)
    app = Client(new_app(lineage.home))
    assert app.get("/api/games").json()["total"] == 10
    remedy = "run `dvc pull` in a folder made by `zero checkout made/gen-0001`"
    shard = lineage.cached(1, "data/match", "shard-0000.parquet")
    data = shard.read_bytes()
    shard.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    found = error_of(app, "/api/games/gating/made/1/0", 400)
    assert found == f"data/match/shard-0000.parquet of made/gen-0001 is damaged; {remedy}"
    shard.unlink()
    found = error_of(app, "/api/games/gating/made/1/0", 400)
    assert found == f"data/match/shard-0000.parquet of made/gen-0001 is not on this machine; {remedy}"


def test_the_network_that_plays_with_overlap_is_found(tmp_path: Path) -> None:
    """It is in a folder of its own inside the champion's."""
    for folder, number in (("state/champion", 0), ("state/champion/selfplay", 1)):
        weights = made_file_ref(WEIGHTS, network(number))
        write_manifest(tmp_path / folder, Champion(generation=number, network=PARAMS.network, weights=weights))
        write_atomic(tmp_path / folder / WEIGHTS, network(number))
    write_manifest(tmp_path, GenerationId(lineage="made", number=2, resign_threshold=-1.0), GENERATION_FILE)
    generation = in_progress(tmp_path)
    for number in (0, 1):
        assert weights_of(generation, sha256_bytes(network(number))) == network(number)
    assert weights_of(generation, sha256_bytes(network(2))) is None


def test_a_game_is_read_once_for_many_requests(recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    app, read = recorded[0], []

    def counted(data: bytes, source: str) -> GameColumns:
        read.append(source)
        return read_records(data, source)

    monkeypatch.setattr(games_module, "read_records", counted)
    for end in ("", "/sgf", "/sgf?move=1", "/sgf?move=2"):
        assert app.get(f"/api/games/gating/made/1/2{end}").status_code == 200
    assert read == ["data/match/shard-0000.parquet of made/gen-0001"]


WITHOUT_TORCH = """
import sys
from pathlib import Path
from zero.web.games import RecordedGames
from zero.web.index import GameFilter
games = RecordedGames(Path(sys.argv[1]))
games.list({})
_, rows = games._index.find(GameFilter(), limit=1)
print(len(games.replay(rows[0])["moves"]) > 0, "torch" in sys.modules)
"""


def test_the_list_and_a_replay_need_no_torch(recorded) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(recorded[1].home)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True False\n"


def test_a_list_with_nothing_pending_lacks_no_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index may become complete between the two answers."""
    asked: list[str] = []
    monkeypatch.setattr(GameIndex, "refresh_soon", lambda _: None)

    def status(_: GameIndex) -> Status:
        asked.append("status")
        return Status(0, ())

    def find(*_: object) -> tuple[int, list[GameRow]]:
        asked.append("find")
        return 0, []

    monkeypatch.setattr(GameIndex, "status", status)
    monkeypatch.setattr(GameIndex, "find", find)
    RecordedGames(tmp_path).list({})
    assert asked == ["status", "find"]


def test_a_game_that_is_indexed_meanwhile_is_not_called_unknown_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index becomes complete during the request for a game that it lacked at first."""
    asked: list[str] = []
    monkeypatch.setattr(GameIndex, "refresh_soon", lambda _: None)
    monkeypatch.setattr(GameIndex, "game", lambda *_: asked.append("game"))
    monkeypatch.setattr(GameIndex, "status", lambda _: Status(0 if asked else 1, ()))
    error = error_of(Client(new_app(tmp_path)), "/api/games/gating/made/1/2", 404)
    assert error == "unknown game gating/made/1/2; the index lacks 1 generations, so reload in a moment"
