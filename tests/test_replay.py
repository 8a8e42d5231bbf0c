"""Stage replay: which games are in the window, and what is not let in."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from tests.made_games import GO5, LINEAGE, made_params, write_games, write_params, write_workspace
from zero.artifacts import GameRecord, GameSet, GenerationId, Window, read_manifest, sha256_file, write_manifest
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.params import GoParams, Params
from zero.replay import read_window, run

RULES = rules_of(GO5)


def window_of(games: int) -> Params:
    params = made_params()
    return params.model_copy(update={"replay": params.replay.model_copy(update={"window_games": games})})


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
def test_only_the_last_games_stay(tmp_path, size, num_shards, skip):
    games = write_workspace(tmp_path, window_of(size))
    run(tmp_path)
    games += next_generation(tmp_path, 2)
    window = run(tmp_path)
    assert games_in(tmp_path) == sequences(games)[-size:]
    assert window.num_games == size
    assert window.num_positions == sum(len(game.actions) for game in games[-size:])
    assert (len(window.shards), window.shards[0].skip_games) == (num_shards, skip)
    assert len(list((tmp_path / "data/window").glob("*.parquet"))) == num_shards


def test_games_once_dropped_do_not_come_back_with_a_larger_window(tmp_path):
    games = write_workspace(tmp_path, window_of(4))
    run(tmp_path)
    games += next_generation(tmp_path, 2)
    write_params(tmp_path, window_of(100))
    run(tmp_path)
    assert games_in(tmp_path) == sequences(games)[2:]


def test_run_twice_gives_the_same_bytes(tmp_path):
    write_workspace(tmp_path, window_of(5))
    run(tmp_path)
    before = {path.name: sha256_file(path) for path in (tmp_path / "data/window").iterdir()}
    (tmp_path / "data/window/gen-0000-stray.parquet").write_bytes(b"left by an interrupted run")
    run(tmp_path)
    assert {path.name: sha256_file(path) for path in (tmp_path / "data/window").iterdir()} == before


def refused(folder: Path, message: str) -> None:
    """The stage fails and leaves the window as it was."""
    window_dir = folder / "data/window"
    before = sorted(window_dir.iterdir()) if window_dir.exists() else None
    with pytest.raises(StorageError, match=message):
        run(folder)
    assert (sorted(window_dir.iterdir()) if window_dir.exists() else None) == before


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_altered_games_are_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    flip_a_byte(tmp_path / "data/games/shard-0001.parquet")
    refused(tmp_path, r"shard-0001\.parquet was altered.*dvc checkout")


def test_altered_older_games_are_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    run(tmp_path)
    next_generation(tmp_path, 2)
    flip_a_byte(tmp_path / "state/replay/gen-0001-shard-0000.parquet")
    refused(tmp_path, r"gen-0001-shard-0000\.parquet was altered")


def test_missing_games_are_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    (tmp_path / "data/games/shard-0000.parquet").unlink()
    refused(tmp_path, r"cannot read .*shard-0000\.parquet")


def change_first_shard(folder: Path, **update: object) -> None:
    games = read_manifest(folder / "data/games", GameSet)
    first = games.shards[0].model_copy(update=update)
    write_manifest(folder / "data/games", games.model_copy(update={"shards": (first, *games.shards[1:])}))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"num_games": 4}, "holds 3 games and .* its manifest says 4"),
        ({"num_positions": 1}, "its manifest says 3 and 1"),
        ({"first_game": 1}, "not numbered from 1 on"),
    ],
)
def test_a_shard_that_is_not_what_its_manifest_says_is_refused(tmp_path, update, message):
    write_workspace(tmp_path, window_of(100))
    change_first_shard(tmp_path, **update)
    refused(tmp_path, message)


def test_a_game_set_that_does_not_add_up_is_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    games = read_manifest(tmp_path / "data/games", GameSet)
    write_manifest(tmp_path / "data/games", games.model_copy(update={"num_games": 7}))
    refused(tmp_path, "says num_games 7, its shards have 6")


def test_games_of_another_board_are_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    other = GoParams(name="go", size=6, komi=0.5, allow_suicide=False)
    write_params(tmp_path, window_of(100).model_copy(update={"game": other}))
    refused(tmp_path, "its games have 26 actions, the parameters' game has 37")


def test_games_of_another_generation_are_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    write_manifest(
        tmp_path / "state", GenerationId(lineage=LINEAGE, number=2, resign_threshold=-1.0), "generation.json"
    )
    refused(tmp_path, "data/games is of made generation 1, the workspace makes made generation 2")


def test_a_window_of_the_future_is_refused(tmp_path):
    write_workspace(tmp_path, window_of(100))
    run(tmp_path)
    next_generation(tmp_path, 1)
    refused(tmp_path, "state/replay is of made generation 1, the workspace makes made generation 1")


def test_a_window_altered_after_it_was_made_is_not_trained_on(tmp_path):
    write_workspace(tmp_path, window_of(100))
    window = run(tmp_path)
    with pytest.raises(StorageError, match=r"holds 6 games .* its manifest says 5"):
        read_window(window.model_copy(update={"num_games": 5}), tmp_path / "data/window", RULES)
    flip_a_byte(tmp_path / "data/window/gen-0001-shard-0000.parquet")
    with pytest.raises(StorageError, match="was altered"):
        read_window(window, tmp_path / "data/window", RULES)
