"""The index of recorded games: its rows, what it reads, damage, and missing data."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.project import git
from tests.web.made_record import MadeLineage, add_match, games, network
from zero.data.records import GameColumns, read_records, read_summaries
from zero.play.moves import FIRST_RESIGNATION
from zero.storage.files import sha256_bytes
from zero.storage.manifests import GameRecord
from zero.web import index as index_module
from zero.web.index import GameFilter, GameIndex, GameRow

THRESHOLD = -0.5
ALL = 10**6


def made(home: Path) -> tuple[MadeLineage, list[list[GameRecord]]]:
    """Generations 0 to 2, and the games of generations 1 and 2."""
    lineage = MadeLineage(home)
    first = lineage.add([games(8, 1), games(8, 2, first_game=8)], games(4, 3), THRESHOLD)
    repeated = games(3, 4) + games(3, 4, first_game=3, never_resigns=False)
    return lineage, [first, lineage.add([repeated], games(4, 5), THRESHOLD)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[MadeLineage, list[list[GameRecord]], GameIndex]:
    """A made lineage, its games, and an index that has all of them. Only read by tests."""
    lineage, records = made(tmp_path_factory.mktemp("recorded"))
    index = GameIndex(lineage.home)
    index.refresh()
    return lineage, records, index


@pytest.fixture
def lineage(tmp_path: Path) -> MadeLineage:
    """A lineage that a test may change."""
    return made(tmp_path)[0]


def rows_of(index: GameIndex, **chosen: object) -> list[GameRow]:
    total, rows = index.find(GameFilter.model_validate(chosen), 0, ALL)
    assert total == len(rows)
    return rows


def filled(home: Path) -> list[GameRow]:
    """The rows of an index after a refresh."""
    index = GameIndex(home)
    index.refresh()
    return rows_of(index)


def test_a_row_has_the_facts_of_its_game(recorded) -> None:
    lineage, records, index = recorded
    rows = rows_of(index)
    assert len(rows) == sum(map(len, records))
    assert [(row.generation, row.kind) for row in rows] == sorted(
        ((row.generation, row.kind) for row in rows), key=lambda each: (-each[0], -ord(each[1][0]))
    ), "the newest generation first, self-play before the match"
    expected = {(n + 1, each.black != each.white, each.game): each for n in range(2) for each in records[n]}
    names = {sha256_bytes(network(number)): lineage.tag(number) for number in range(3)}
    for row in rows:
        record = expected[row.generation, row.kind == "gating", row.game]
        assert row.moves == len(record.actions) and row.end == record.end
        assert (row.result, row.margin) == ("DBW"[record.outcome], record.margin)
        assert (row.black, row.white) == (record.black, record.white)
        assert (row.black_name, row.white_name) == (names[record.black], names[record.white])
        assert bool(row.never_resigns) is record.never_resigns
        assert row.commit == git(lineage.home, "rev-parse", lineage.tag(row.generation)).strip()
        folder, _, name = row.path.rpartition("/")
        data = lineage.cached(row.generation, folder, name).read_bytes()
        assert sha256_bytes(data) == row.shard
        shard = read_records(data, row.path)
        assert int(shard.game[row.shard_row]) == row.game


@pytest.mark.parametrize(
    ("chosen", "test"),
    [
        ({"lineage": "made", "generation": 1}, lambda row: row.generation == 1),
        ({"lineage": "nobody"}, lambda row: False),
        ({"kind": "gating"}, lambda row: row.kind == "gating"),
        ({"result": "W"}, lambda row: row.result == "W"),
        ({"end": "length"}, lambda row: row.end == "length"),
        ({"min_moves": 20, "max_moves": 40}, lambda row: 20 <= row.moves <= 40),
        ({"wrong_resignation": True}, lambda row: row.wrong_resignation),
    ],
)
def test_a_filter_chooses(recorded, chosen, test) -> None:
    index = recorded[2]
    every = rows_of(index)
    assert rows_of(index, **chosen) == [row for row in every if test(row)]


def test_pages_of_the_list_join_to_the_whole(recorded) -> None:
    index = recorded[2]
    every = rows_of(index)
    parts = [index.find(GameFilter(), offset, 7)[1] for offset in range(0, len(every), 7)]
    assert [row for part in parts for row in part] == every


def test_one_game_and_its_neighbours(recorded) -> None:
    index = recorded[2]
    row = index.game("gating", "made", 1, 3)
    assert row is not None and row == rows_of(index, generation=1, kind="gating")[3]
    assert index.neighbours(row) == (2, None)
    assert index.game("gating", "made", 1, 99) is None


def test_the_lineages_and_ends(recorded) -> None:
    _, records, index = recorded
    assert index.lineages() == [("made", 1, 2, sum(map(len, records)))]
    assert index.ends() == sorted({each.end for part in records for each in part})
    assert index.status() == (0, ())


def slow_wrong(record: GameRecord) -> bool:
    """Whether the first player below the threshold did not lose."""
    for move, values in enumerate(zip(record.root_values, record.best_values, strict=True)):
        if move >= FIRST_RESIGNATION and max(values) < THRESHOLD:
            return record.outcome * (1 if move % 2 == 0 else -1) >= 0
    return False


def test_wrong_resignations_are_those_of_the_metrics(recorded) -> None:
    lineage, records, index = recorded
    for number in (1, 2):
        rows = rows_of(index, generation=number, wrong_resignation=True)
        selfplay = [each for each in records[number - 1] if each.black == each.white]
        expected = [each.game for each in selfplay if each.never_resigns and slow_wrong(each)]
        assert [row.game for row in rows] == expected
        metrics = git(lineage.home, "show", f"{lineage.tag(number)}:metrics/selfplay.json")
        assert f'"would_have_won": {len(expected)}' in metrics
    assert rows_of(index, wrong_resignation=True), "the test needs one"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the shards that are read, by name."""
    counts: Counter[str] = Counter()

    def counted(data: bytes, source: str) -> GameColumns:
        counts[source] += 1
        return read_summaries(data, source)

    monkeypatch.setattr(index_module, "read_summaries", counted)
    return counts


def test_only_new_generations_are_read(lineage: MadeLineage, read: Counter[str]) -> None:
    index = GameIndex(lineage.home)
    index.refresh()
    assert len(read) == 5 and set(read.values()) == {1}
    index.refresh()
    assert sum(read.values()) == 5
    lineage.add([games(2, 6)], games(2, 7))
    index.refresh()
    assert [source for source in read if "gen-0003" in source] == [
        "data/games/shard-0000.parquet of made/gen-0003",
        "data/match/shard-0000.parquet of made/gen-0003",
    ]
    assert sum(read.values()) == 7
    assert rows_of(index) == filled(lineage.home), "another index, which reads all of them"


def test_a_generation_that_was_recorded_again_is_read_again(lineage: MadeLineage, read: Counter[str]) -> None:
    index = GameIndex(lineage.home)
    index.refresh()
    git(lineage.home, "tag", "--force", lineage.tag(2), lineage.tag(1))
    git(lineage.home, "tag", "--delete", lineage.tag(1))
    index.refresh()
    assert {row.generation for row in rows_of(index)} == {2}
    assert {row.commit for row in rows_of(index)} == {git(lineage.home, "rev-parse", lineage.tag(2)).strip()}


def test_a_tag_that_only_a_workspace_has_is_read(lineage: MadeLineage) -> None:
    workspace = lineage.home / ".zero/workspaces/made"
    git(lineage.home, "clone", "--quiet", str(lineage.home), str(workspace))
    git(lineage.home, "tag", "--delete", lineage.tag(2))
    assert {row.generation for row in filled(lineage.home)} == {1, 2}


def test_the_games_of_a_match_are_rows_after_those_of_lineages(lineage: MadeLineage) -> None:
    before = filled(lineage.home)
    add_match(lineage.home, "0123abcd")
    index = GameIndex(lineage.home)
    index.refresh()
    assert rows_of(index)[: len(before)] == before
    rows = rows_of(index, kind="match")
    assert rows == rows_of(index, lineage="~0123abcd") == rows_of(index)[len(before) :]
    assert [(row.game, row.black_name, row.white_name, row.result, row.end) for row in rows] == [
        (0, "centre", "pass", "B", "passes"),
        (1, "pass", "centre", "W", "passes"),
        (2, "centre", "pass", "B", "passes"),
        (3, "pass", "centre", "W", "forfeit"),
    ]
    assert [(row.moves, row.margin) for row in rows] == [(3, 24.5), (4, -25.5), (3, 24.5), (0, 0.0)]
    assert {row.path for row in rows} == {".zero/matches/0123abcd"}
    assert index.matches() == [("~0123abcd", "centre", "pass", 4)]
    assert [each.lineage for each in index.lineages()] == ["made"] and index.status() == (0, ())


def test_only_finished_matches_are_read_and_a_deleted_one_is_removed(tmp_path: Path) -> None:
    for name in ("finished", "damaged", "running"):
        add_match(tmp_path, name)
    (tmp_path / ".zero/matches/damaged/games/0002.json").write_bytes(b"{")
    (tmp_path / ".zero/matches/running/result.json").unlink()
    index = GameIndex(tmp_path)
    index.refresh()
    assert {row.lineage for row in rows_of(index)} == {"~finished"}
    (note,) = index.status().notes
    assert note.startswith(".zero/matches/damaged: ") and "0002.json is not game 2 of this match" in note
    for name in ("finished", "damaged"):
        (tmp_path / f".zero/matches/{name}/result.json").unlink()
    index.refresh()
    assert rows_of(index) == [] and index.status() == (0, ())


def test_a_result_that_cannot_be_read_does_not_stop_the_index(lineage: MadeLineage) -> None:
    expected = filled(lineage.home)
    add_match(lineage.home, "0123abcd")
    result = lineage.home / ".zero/matches/0123abcd/result.json"
    data = result.read_bytes()
    result.unlink()
    result.mkdir()  # a root user, as in a container, can read a file without permissions
    index = GameIndex(lineage.home)
    index.refresh()
    assert rows_of(index) == expected
    assert index.status().notes == (
        ".zero/matches/0123abcd: result.json cannot be read; check its permissions, or move the folder away",
    )
    result.rmdir()
    result.write_bytes(data)
    index.refresh()
    assert len(rows_of(index)) == len(expected) + 4 and index.status() == (0, ())


def test_the_name_of_a_network_is_that_of_the_own_lineage(recorded) -> None:
    """Two lineages can have trained equal networks, such as one that was copied."""
    index = GameIndex(recorded[0].home)
    index.refresh()
    (row,) = index.find(GameFilter(), limit=1)[1]
    indexed = index._generations["made", 0]
    index._generations["copy", 0] = indexed
    assert index.find(GameFilter(), limit=1)[1] == [row] and row.black_name == "made/gen-0000"
    del index._generations["made", 0]
    assert index.find(GameFilter(), limit=1)[1][0].black_name == "copy/gen-0000"


def test_a_project_without_git_has_no_games(tmp_path: Path) -> None:
    assert filled(tmp_path) == []


def test_missing_and_damaged_data_is_noted_and_read_later(
    lineage: MadeLineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = filled(lineage.home)
    shard = lineage.cached(1, "data/games", "shard-0001.parquet")
    match = lineage.cached(2, "data/match")
    shard_data, match_data = shard.read_bytes(), match.read_bytes()
    shard.write_bytes(shard_data[:-1] + b"x")
    match.unlink()
    index = GameIndex(lineage.home)
    index.refresh()
    assert index.status().notes == (
        "made/gen-0001: data/games/shard-0001.parquet is damaged; run `dvc pull` in a folder made by "
        "`zero checkout made/gen-0001`",
        "made/gen-0002: the games of data/match are not on this machine; run `dvc pull` in a folder made by "
        "`zero checkout made/gen-0002`",
    )
    assert rows_of(index) == [
        row for row in expected if "0001.parquet" not in row.path and (row.generation, row.kind) != (2, "gating")
    ]
    shard.unlink()
    match.write_bytes(match_data)
    index.refresh()
    assert len(index.status().notes) == 2, "incomplete generations are not read again at once"
    monkeypatch.setattr(index_module, "RETRY_SECONDS", 0.0)
    index.refresh()
    assert [note.partition(" is")[0] for note in index.status().notes] == [
        "made/gen-0001: data/games/shard-0001.parquet"
    ]
    shard.write_bytes(shard_data)
    index.refresh()
    assert index.status() == (0, ()) and rows_of(index) == expected


def test_a_generation_of_another_version_is_noted(lineage: MadeLineage) -> None:
    text = git(lineage.home, "show", f"{lineage.tag(2)}:params.yaml").replace("name: go", "name: chess")
    (lineage.home / "params.yaml").write_text(text)
    git(lineage.home, "checkout", "--quiet", "-b", "old", lineage.tag(2), "--force")
    (lineage.home / "params.yaml").write_text(text)
    git(lineage.home, "commit", "--quiet", "-a", "-m", "another game")
    git(lineage.home, "tag", "--force", lineage.tag(2), "HEAD")
    index = GameIndex(lineage.home)
    index.refresh()
    (note,) = index.status().notes
    assert note.startswith("made/gen-0002: ") and "chess" in note
    assert {row.generation for row in rows_of(index)} == {1}


def test_the_newest_generation_is_there_while_older_ones_are_read(
    lineage: MadeLineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, counts = threading.Event(), []

    def slow(data: bytes, source: str) -> GameColumns:
        if "gen-0001" in source:
            may_go_on.wait(60.0)
        return read_summaries(data, source)

    monkeypatch.setattr(index_module, "read_summaries", slow)
    index = GameIndex(lineage.home)
    while not (rows := rows_of(index)):
        index.refresh_soon(wait_seconds=0.1)
    counts.append((Counter(row.generation for row in rows), index.status().pending))
    may_go_on.set()
    index.refresh_soon(wait_seconds=60.0)
    counts.append((Counter(row.generation for row in rows_of(index)), index.status().pending))
    assert counts == [({2: 10}, 2), ({1: 20, 2: 10}, 0)], "generation 0, without games, comes last"


def test_a_request_waits_for_a_short_refresh(lineage: MadeLineage) -> None:
    index = GameIndex(lineage.home)
    index.refresh_soon(wait_seconds=60.0)
    assert len(rows_of(index)) == 30 and index.status().pending == 0


def test_an_error_of_git_is_shown(lineage: MadeLineage) -> None:
    (lineage.home / ".git/HEAD").write_text("broken\n")
    index = GameIndex(lineage.home)
    index.refresh_soon(wait_seconds=60.0)
    (note,) = index.status().notes
    assert "git" in note


def test_a_fault_of_the_program_is_shown(lineage: MadeLineage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "recorded_tags", lambda home: 1 / 0)
    index = GameIndex(lineage.home)
    index.refresh_soon(wait_seconds=60.0)
    assert index.status().notes == ("the index of games failed (ZeroDivisionError); the server's log has the cause",)


def test_a_fault_in_one_generation_does_not_hide_the_others(
    lineage: MadeLineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(data: bytes, source: str) -> GameColumns:
        if "gen-0002" in source:
            raise ValueError(source)
        return read_summaries(data, source)

    monkeypatch.setattr(index_module, "read_summaries", faulty)
    index = GameIndex(lineage.home)
    index.refresh_soon(wait_seconds=60.0)
    assert {row.generation for row in rows_of(index)} == {1}
    assert index.status() == (0, ("made/gen-0002: ValueError; the server's log has the cause",))
