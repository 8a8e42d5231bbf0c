"""Stage replay: the games of the window, and what happens to shards that are rejected."""

import csv
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from tests.made_games import GO5, LINEAGE, made_params, replace_shard, write_games, write_params, write_workspace
from tests.parameters import with_sections
from zero.config.params import GoParams, Params
from zero.data.quarantine import has_missing_shards
from zero.data.window import read_window
from zero.errors import ParamsError, StorageError
from zero.games.rules import rules_of
from zero.stages import replay
from zero.stages.inputs import read_inputs
from zero.stages.replay import ReplayMetrics, window_size
from zero.storage.files import read_manifest, sha256_bytes, sha256_file, write_manifest
from zero.storage.layout import GENERATION_FILE
from zero.storage.manifests import GameRecord, GameSet, GenerationId, ShardRef, Window, WindowShard
from zero.storage.store import Store

RULES = rules_of(GO5)


def run(folder: Path) -> Window:
    return replay.run(read_inputs(folder), Store(str(folder / "store")))


def window_of(games: int) -> Params:
    return with_sections(made_params(), replay={"window_games": games})


def next_generation(folder: Path, number: int, num_shards: int = 2) -> list[GameRecord]:
    """Rolls the window forward as the registry does, and plays."""
    shutil.rmtree(folder / "state/replay")
    shutil.copytree(folder / "data/window", folder / "state/replay")
    shutil.rmtree(folder / "data/games")
    return write_games(folder, number, num_shards)


def games_in(folder: Path) -> list[bytes]:
    columns = read_window(read_manifest(folder / "data/window", Window), folder / "data/window", RULES)
    offsets = columns.move_offsets
    return [columns.actions[a:b].tobytes() for a, b in pairwise(offsets)]


def sequences(games: list[GameRecord]) -> list[bytes]:
    return [game.actions.tobytes() for game in games]


def test_the_first_window_is_the_first_games(tmp_path):
    games = write_workspace(tmp_path, window_of(100))
    window = run(tmp_path)
    assert window == read_manifest(tmp_path / "data/window", Window)
    assert (window.num_games, window.num_positions) == (6, sum(len(game.actions) for game in games))
    assert games_in(tmp_path) == sequences(games)
    assert window.origin.generation == 1
    assert set(window.origin.inputs) == {"data/games", "state/replay"}


def test_a_window_grows_with_the_generations_oldest_game_first(tmp_path):
    games = write_workspace(tmp_path, window_of(100))
    for number in (2, 3):
        run(tmp_path)
        games += next_generation(tmp_path, number)
    window = run(tmp_path)
    assert games_in(tmp_path) == sequences(games)
    names = [entry.shard.file.path for entry in window.shards]
    assert names == [f"gen-{g:04d}-shard-{s:04d}.parquet" for g in (1, 2, 3) for s in (0, 1)]
    assert sorted(path.name for path in (tmp_path / "data/window").iterdir()) == sorted([*names, "manifest.json"])


@pytest.mark.parametrize(
    ("size", "num_shards", "skip"), [(9, 3, 0), (8, 3, 1), (7, 3, 2), (6, 2, 0), (2, 1, 1), (1, 1, 2)]
)
def test_only_the_last_games_are_kept(tmp_path, size, num_shards, skip):
    games = write_workspace(tmp_path, window_of(size))
    run(tmp_path)
    games += next_generation(tmp_path, 2)
    window = run(tmp_path)
    assert games_in(tmp_path) == sequences(games)[-size:]
    assert window.num_games == size
    assert window.num_positions == sum(len(game.actions) for game in games[-size:])
    assert (len(window.shards), window.shards[0].skip_games) == (num_shards, skip)
    assert len(list((tmp_path / "data/window").glob("*.parquet"))) == num_shards


def held(*counts: tuple[int, int]) -> list[WindowShard]:
    """Rows of a window with these (generation, number of games)."""
    shards = [ShardRef.model_construct(generation=made_in, num_games=count) for made_in, count in counts]
    return [WindowShard.model_construct(shard=shard, skip_games=0) for shard in shards]


@pytest.mark.parametrize(
    ("fraction", "generation", "size"),
    [(1.0, 1, 10), (1.0, 7, 50), (0.5, 1, 10), (0.5, 2, 10), (0.5, 3, 15), (0.35, 3, 11), (0.5, 10, 50), (0.5, 11, 50)],
)
def test_the_window_grows_with_the_games_of_the_lineage(fraction, generation, size):
    params = with_sections(window_of(50), replay={"window_fraction": fraction}, selfplay={"num_games": 10})
    assert window_size(params, generation, held((1, min(50, 10 * (generation - 1))))) == size


@pytest.mark.parametrize(
    ("num_games", "fraction", "generation", "imported", "size"),
    [(0, 1.0, 1, 30, 30), (0, 1.0, 1, 80, 50), (0, 0.5, 1, 30, 15), (10, 1.0, 2, 25, 45), (10, 0.5, 2, 25, 23)],
)
def test_imported_games_count_as_games_of_the_lineage(num_games, fraction, generation, imported, size):
    params = with_sections(window_of(50), replay={"window_fraction": fraction}, selfplay={"num_games": num_games})
    old = held((0, imported), (1, num_games * (generation - 1)))
    assert window_size(params, generation, old) == size


@pytest.mark.parametrize(
    ("num_games", "fraction", "before", "size"),
    [(2, 1.0, 30, 32), (2, 1.0, 49, 50), (0, 1.0, 30, 30), (0, 0.5, 30, 30), (0, 0.5, 60, 50)],
)
def test_games_stay_if_later_generations_play_fewer(num_games, fraction, before, size):
    """Generation 9 after generations of ten games."""
    params = with_sections(window_of(50), replay={"window_fraction": fraction}, selfplay={"num_games": num_games})
    assert window_size(params, 9, held((0, 10), (1, before - 10))) == size


def test_dropped_games_do_not_return_with_a_larger_window(tmp_path):
    games = write_workspace(tmp_path, window_of(4))
    run(tmp_path)
    games += next_generation(tmp_path, 2)
    write_params(tmp_path, window_of(100))
    run(tmp_path)
    assert games_in(tmp_path) == sequences(games)[2:]


def test_running_twice_gives_the_same_bytes(tmp_path):
    write_workspace(tmp_path, window_of(5))
    run(tmp_path)
    metrics = tmp_path / "metrics/replay.json"
    before = {path.name: sha256_file(path) for path in (*(tmp_path / "data/window").iterdir(), metrics)}
    (tmp_path / "data/window/gen-0000-stray.parquet").write_bytes(b"left by an interrupted run")
    run(tmp_path)
    assert {path.name: sha256_file(path) for path in (*(tmp_path / "data/window").iterdir(), metrics)} == before


def assert_rejected(folder: Path, message: str) -> None:
    """Asserts that the stage fails and changes neither the window nor the metrics."""
    window_dir = folder / "data/window"
    metrics = folder / "metrics/replay.json"
    before = sorted(window_dir.iterdir()) if window_dir.exists() else None
    metrics_before = metrics.read_bytes() if metrics.exists() else None
    with pytest.raises(StorageError, match=message):
        run(folder)
    assert (sorted(window_dir.iterdir()) if window_dir.exists() else None) == before
    assert (metrics.read_bytes() if metrics.exists() else None) == metrics_before


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_corrupt_games_are_rejected(tmp_path):
    write_workspace(tmp_path, window_of(100))
    flip_a_byte(tmp_path / "data/games/shard-0001.parquet")
    assert_rejected(tmp_path, r"shard-0001\.parquet is corrupt.*run `dvc repro` to play it again")
    assert has_missing_shards(tmp_path, "data/games")
    assert (tmp_path / ".zero/quarantine/gen-0001-games-shard-0001.parquet").exists()


def change_first_shard(folder: Path, **update: object) -> None:
    games = read_manifest(folder / "data/games", GameSet)
    first = games.shards[0].model_copy(update=update)
    write_manifest(folder / "data/games", games.model_copy(update={"shards": (first, *games.shards[1:])}))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"num_games": 4}, "holds 3 games and .* its manifest says 4"),
        ({"num_positions": 1}, "its manifest says 3 and 1"),
        ({"first_game": 1}, "not numbered from 1"),
    ],
)
def test_a_shard_that_contradicts_its_manifest_is_rejected(tmp_path, update, message):
    write_workspace(tmp_path, window_of(100))
    change_first_shard(tmp_path, **update)
    assert_rejected(tmp_path, message)


def test_a_game_set_that_does_not_add_up_is_rejected(tmp_path):
    write_workspace(tmp_path, window_of(100))
    games = read_manifest(tmp_path / "data/games", GameSet)
    write_manifest(tmp_path / "data/games", games.model_copy(update={"num_games": 7}))
    assert_rejected(tmp_path, "declares num_games 7, but its shards have 6")


def test_games_of_another_board_are_rejected(tmp_path):
    write_workspace(tmp_path, window_of(100))
    other = GoParams(name="go", size=6, komi=0.5, allow_suicide=False)
    write_params(tmp_path, with_sections(window_of(100), game=other))
    assert_rejected(tmp_path, "its games have 26 actions, the parameters' game has 37")


def test_games_of_another_generation_are_rejected(tmp_path):
    write_workspace(tmp_path, window_of(100))
    write_manifest(tmp_path, GenerationId(lineage=LINEAGE, number=2, resign_threshold=-1.0), GENERATION_FILE)
    assert_rejected(tmp_path, "data/games is of made generation 1, but the workspace makes made generation 2")


def test_a_lineage_without_games_is_told_how_to_get_some(tmp_path):
    write_workspace(tmp_path, window_of(100))
    write_params(tmp_path, with_sections(window_of(100), selfplay={"num_games": 0}, dataset="datasets/kgs"))
    empty = read_manifest(tmp_path / "data/games", GameSet)
    empty = empty.model_copy(update={"shards": (), "num_games": 0, "num_positions": 0})
    write_manifest(tmp_path / "data/games", empty)
    with pytest.raises(ParamsError, match=r"the window has no games: .* start a lineage with `zero new`"):
        run(tmp_path)


def test_a_window_of_the_future_is_rejected(tmp_path):
    write_workspace(tmp_path, window_of(100))
    run(tmp_path)
    next_generation(tmp_path, 1)
    assert_rejected(tmp_path, "state/replay is of made generation 1, but the workspace makes made generation 1")


def test_a_window_that_was_changed_later_is_not_read(tmp_path):
    write_workspace(tmp_path, window_of(100))
    window = run(tmp_path)
    with pytest.raises(StorageError, match=r"holds 6 games .* its manifest says 5"):
        read_window(window.model_copy(update={"num_games": 5}), tmp_path / "data/window", RULES)
    flip_a_byte(tmp_path / "data/window/gen-0001-shard-0000.parquet")
    with pytest.raises(StorageError, match="is corrupt"):
        read_window(window, tmp_path / "data/window", RULES)


def with_another_outcome(records: list[GameRecord]) -> list[GameRecord]:
    return [records[0], records[1]._replace(outcome=-records[1].outcome), records[2]]


def test_games_that_break_the_contract_are_quarantined_in_the_workspace_and_in_the_store(tmp_path):
    write_workspace(tmp_path, window_of(100))
    data = replace_shard(tmp_path / "data/games", 1, with_another_outcome)
    key = read_manifest(tmp_path / "data/games", GameSet).shards[1].key
    store = Store(str(tmp_path / "store"))
    store.put_shard(key, data)
    assert_rejected(
        tmp_path, r"shard-0001\.parquet breaks the data contract .*game 4, move \d+: the recorded outcome is wrong"
    )
    aside = tmp_path / ".zero/quarantine/gen-0001-games-shard-0001.parquet"
    assert aside.read_bytes() == data
    assert "game 4, move" in aside.with_name(f"{aside.name}.reason.txt").read_text()
    assert store.get_shard(key) is None
    assert [path.read_bytes() for path in sorted((tmp_path / "store/quarantine").glob("*.parquet.????????"))] == [data]
    assert has_missing_shards(tmp_path, "data/games")


def test_all_rejected_shards_are_quarantined_at_once(tmp_path):
    write_workspace(tmp_path, window_of(100), num_shards=3)
    replace_shard(tmp_path / "data/games", 0, with_another_outcome)
    replace_shard(tmp_path / "data/games", 2, with_another_outcome)
    assert_rejected(tmp_path, r"shard-0000\.parquet .*\(and 1 more\)")
    assert len(list((tmp_path / ".zero/quarantine").glob("*.parquet"))) == 2
    assert (tmp_path / "data/games/shard-0001.parquet").exists()


def test_a_repeated_game_of_the_window_is_rejected(tmp_path):
    """The new shard is valid by itself, but one of its games was played from a random stream of generation 1."""
    games = write_workspace(tmp_path, window_of(100))
    run(tmp_path)
    next_generation(tmp_path, 2)
    long = max(games, key=lambda game: len(game.actions))
    replace_shard(tmp_path / "data/games", 0, lambda records: [records[0], records[1], long._replace(game=2)])
    assert_rejected(
        tmp_path, f"game 2: .* are those of game {long.game} of generation 1: one random stream was played twice"
    )


def test_a_shard_with_two_repeated_games_is_quarantined_with_both(tmp_path):
    games = write_workspace(tmp_path, window_of(100))
    run(tmp_path)
    next_generation(tmp_path, 2)
    long = sorted(games, key=lambda game: len(game.actions))[-2:]
    data = replace_shard(
        tmp_path / "data/games", 0, lambda records: [records[0], long[0]._replace(game=1), long[1]._replace(game=2)]
    )
    assert_rejected(tmp_path, "game 1: .* one random stream was played twice")
    aside = tmp_path / ".zero/quarantine/gen-0002-games-shard-0000.parquet"
    assert aside.read_bytes() == data
    reason = aside.with_name(f"{aside.name}.reason.txt").read_text()
    assert "2 violations" in reason and "game 1: " in reason and "game 2: " in reason


def test_games_of_another_player_are_rejected(tmp_path):
    write_workspace(tmp_path, window_of(100))
    games = read_manifest(tmp_path / "data/games", GameSet)
    origin = games.origin.model_copy(update={"inputs": {"champion": sha256_bytes(b"another")}})
    write_manifest(tmp_path / "data/games", games.model_copy(update={"origin": origin}))
    assert_rejected(tmp_path, "Black was .*, not .*")


def test_the_metrics_describe_the_checked_games(tmp_path):
    games = write_workspace(tmp_path, window_of(7))
    run(tmp_path)
    games += next_generation(tmp_path, 2)
    known = games[4]._replace(
        game=1, root_values=games[4].root_values * np.float32(0.9995)
    )  # the same moves, played from another random stream
    replace_shard(tmp_path / "data/games", 0, lambda records: [records[0], known, records[2]])
    window = run(tmp_path)
    new = [games[6], known, *games[8:]]
    metrics = read_manifest(tmp_path / "metrics", ReplayMetrics, "replay.json")
    signs = [
        (value * game.outcome * (1 if move % 2 == 0 else -1) > 0, move >= 0.75 * len(game.actions))
        for game in new
        for move, value in enumerate(game.root_values)
    ]
    late = [agrees for agrees, is_late in signs if is_late]
    assert metrics == ReplayMetrics(
        num_games=6,
        num_positions=sum(len(game.actions) for game in new),
        resigned_games=0,
        unique_games=6,
        known_games=1,
        target_positions=sum(len(game.actions) for game in new),
        plane_positions=sum(min(64, sum(len(game.actions) for game in new[first : first + 3])) for first in (0, 3)),
        value_agreement=sum(agrees for agrees, _ in signs) / len(signs),
        late_value_agreement=sum(late) / len(late),
        window_games=7,
        window_positions=window.num_positions,
        window_shards=3,
    )


def test_the_plots_count_the_new_games_by_length_and_the_positions_by_value(tmp_path):
    games = write_workspace(tmp_path, window_of(100))
    run(tmp_path)
    width = -(-RULES.max_moves // 20)
    lengths = list(csv.DictReader((tmp_path / "plots/lengths.csv").read_text().splitlines()))
    assert [(int(row["moves"]), int(row["games"])) for row in lengths] == [
        (last, sum(last - width < len(game.actions) <= last for game in games))
        for last in range(width, 20 * width + 1, width)
    ]
    outcomes: dict[int, list[int]] = {}
    for game in games:
        for move, value in enumerate(game.root_values):
            outcome = game.outcome if move % 2 == 0 else -game.outcome
            outcomes.setdefault(min(int((float(value) + 1) * 10), 19), []).append(outcome)
    values = list(csv.DictReader((tmp_path / "plots/values.csv").read_text().splitlines()))
    assert len(values) > 1
    assert [(row["value"], row["outcome"], int(row["positions"])) for row in values] == [
        (f"{index / 10 - 0.95:.2f}", f"{fmean(found):.5f}", len(found)) for index, found in sorted(outcomes.items())
    ]
