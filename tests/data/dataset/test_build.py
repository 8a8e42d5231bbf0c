"""Whole imports: determinism, duplicates, splits, atomicity, memory, and what reads a dataset."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.data.dataset.sgf_games import made_game, made_games, mirrored
from tests.made_games import made_origin, made_params, records_of
from tests.oracle.gnugo import needs_gnugo
from tests.oracle.gtp import program_path
from zero.config.params import GoParams
from zero.data.dataset import build
from zero.data.dataset.build import build_dataset
from zero.data.dataset.canonical import split_of
from zero.data.dataset.columns import dataset_violations
from zero.data.dataset.manifest import SPLITS, Dataset, ImportOptions, SplitFractions, SplitName
from zero.data.dataset.options import parse_options
from zero.data.dataset.reader import read_part
from zero.data.records import GameColumns, concatenate, read_records, write_columns, write_records
from zero.data.samples import new_sample_batch, sample_games, write_batch
from zero.data.sgf import read_sgf
from zero.errors import StorageError, ZeroError
from zero.games.position import new_history, new_position
from zero.games.rules import go_rules
from zero.lineage.imported import write_first_window
from zero.search.streams import stream_of
from zero.storage.files import file_ref, read_manifest, write_manifest

GAME = GoParams(name="go", size=9, komi=6.5)
RULES = go_rules(9, 9, 6.5)
OPTIONS = parse_options(GAME, "", None, 10, "0.6,0.2,0.2", 1)
KILL_SECONDS = 120.0


def imported(out: Path, *paths: Path, options: ImportOptions = OPTIONS, jobs: int = 1) -> Dataset:
    return build_dataset(paths, out, GAME, options, jobs, lambda done, total: None)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def split_games(folder: Path, manifest: Dataset, split: SplitName) -> GameColumns:
    return concatenate(read_part(folder, manifest, file) for file in manifest.files if file.split == split)


def all_games(folder: Path) -> GameColumns:
    dataset = read_manifest(folder, Dataset)
    return concatenate(read_part(folder, dataset, file) for file in dataset.files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loose files, a collection and an archive: 300 games, some twice, some bad."""
    folder = tmp_path_factory.mktemp("games")
    (folder / "loose").mkdir()
    for number, text in enumerate(made_games(60)):
        (folder / f"loose/{number:03d}.sgf").write_text(text)
    collection = [*made_games(120, 60), mirrored(made_game(3)), made_game(70), made_game(5, "W+99.5")]
    collection += ["(;GM[1]SZ[9];B[ee]", "(;GM[1]SZ[19];B[ee])", made_game(999, "Void")]
    (folder / "all.sgf").write_text("\n".join(collection))
    with tarfile.open(folder / "more.tgz", "w:gz") as archive:
        for number, text in enumerate(made_games(120, 180)):
            info = tarfile.TarInfo(f"{number}.sgf")
            info.size = len(text)
            archive.addfile(info, BytesIO(text.encode()))
    return folder


@pytest.fixture(scope="module")
def dataset(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("datasets") / "made"
    imported(out, folder)
    return out


def test_every_game_is_imported_rejected_or_a_duplicate(dataset):
    manifest = read_manifest(dataset, Dataset)
    assert manifest.num_read == 306
    assert sum(size.num_games for size in manifest.splits.values()) == 300
    assert manifest.rejected == {"broken SGF": 1, "another board size": 1, "no result": 1}
    assert [line["game"] for line in lines(dataset / "rejected.jsonl")] == [124, 125, 126]
    duplicates = lines(dataset / "duplicates.jsonl")
    assert manifest.num_duplicates == len(duplicates) == 3
    folder = str(duplicates[0]["file"]).partition("/")[0]
    # all.sgf is read before the folder of loose files
    assert sorted(
        (line["file"], line["game"], line["of_file"], line["of_game"], line["same_result"]) for line in duplicates
    ) == [
        (f"{folder}/all.sgf", 122, f"{folder}/all.sgf", 11, True),
        (f"{folder}/loose/003.sgf", 1, f"{folder}/all.sgf", 121, True),
        (f"{folder}/loose/005.sgf", 1, f"{folder}/all.sgf", 123, False),
    ]


def test_the_manifest_names_every_file(dataset):
    manifest = read_manifest(dataset, Dataset)
    refs = [ref for file in manifest.files for ref in (file.games, file.origins)]
    refs += [manifest.rejected_list, manifest.duplicates_list]
    assert {ref.path for ref in refs} | {"manifest.json"} == set(contents(dataset))
    for split in SPLITS:
        files = [file for file in manifest.files if file.split == split]
        assert sum(file.num_games for file in files) == manifest.splits[split].num_games
        assert split_games(dataset, manifest, split).num_positions == manifest.splits[split].num_positions


def test_the_split_is_a_function_of_the_canonical_digest(dataset):
    manifest = read_manifest(dataset, Dataset)
    seen: set[str] = set()
    for file in manifest.files:
        digests = pq.read_table(dataset / file.origins.path).column("digest").to_pylist()
        assert digests == sorted(digests)
        assert {split_of(digest, 1, OPTIONS.split) for digest in digests} == {file.split}
        assert not seen & set(digests)
        seen |= set(digests)
    sizes = [manifest.splits[name].num_games / 300 for name in SPLITS]
    assert np.abs(np.array(sizes) - [0.6, 0.2, 0.2]).max() < 0.1


def test_the_fractions_of_a_split():
    digests = [f"{number:064x}" for number in range(4000)]
    fractions = SplitFractions(train=0.7, validation=0.3, test=0.0)
    counts = Counter(split_of(digest, 5, fractions) for digest in digests)
    assert counts["test"] == 0 and abs(counts["train"] / 4000 - 0.7) < 0.04
    assert [split_of(d, 5, fractions) for d in digests] != [split_of(d, 6, fractions) for d in digests]


def test_neither_the_order_of_paths_nor_the_number_of_jobs_changes_a_byte(folder, tmp_path):
    paths = [folder / "loose", folder / "all.sgf", folder / "more.tgz"]
    imported(tmp_path / "a", *paths)
    imported(tmp_path / "b", *reversed(paths), folder / "loose/001.sgf", jobs=2)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_games_follow_the_rules_and_have_one_target_per_move(dataset):
    games = all_games(dataset)
    assert dataset_violations(games, RULES) == []
    assert np.array_equal(games.visit_actions, games.actions)
    assert np.array_equal(games.visit_offsets, np.arange(games.num_positions + 1))
    first = games.move_offsets[:-1]
    assert np.array_equal(games.root_values[first], games.outcome)
    assert np.array_equal(games.root_values[first + 1], -games.outcome)
    damaged = games._replace(actions=games.actions.copy(), visit_actions=games.visit_actions.copy())
    damaged.actions[1] = damaged.actions[0]
    damaged.visit_actions[5] = 81
    assert [(v.clause, v.move) for v in dataset_violations(damaged, RULES)][:2] == [("rules", 1), ("targets", 1)]


def zeros(games: GameColumns, name: str) -> GameColumns:
    return games._replace(**{name: np.zeros_like(getattr(games, name))})


FORGERIES = {
    "illegal moves": (lambda g: zeros(g, "actions")._replace(visit_actions=np.zeros_like(g.visit_actions)), "(rules)"),
    "another target": (lambda g: g._replace(visit_counts=2 * g.visit_counts), "(targets)"),
    "values of a search": (lambda g: zeros(g, "best_values"), "a value is not the result of the game (values)"),
    "no weights": (lambda g: zeros(g, "sample_weights"), "the sample weight is not 1 (weights)"),
    "no margin": (lambda g: g._replace(margin=g.margin * np.float32(np.nan)), "the margin is nan (values)"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_dataset_is_rejected_before_training(dataset, tmp_path, case):
    """Its manifest has the right digests: a dataset may come from someone else."""
    change, text = FORGERIES[case]
    workspace, folder = tmp_path, tmp_path / "games"
    shutil.copytree(dataset, folder)
    manifest = read_manifest(folder, Dataset)
    file = next(file for file in manifest.files if file.split == "train")
    path = folder / file.games.path
    path.write_bytes(write_columns(change(read_records(path.read_bytes(), "games"))))
    forged = file.model_copy(update={"games": file_ref(path, folder)})
    files = tuple(forged if each == file else each for each in manifest.files)
    write_manifest(folder, manifest.model_copy(update={"files": files}))
    with pytest.raises(StorageError, match=re.escape(text) + ".*`zero import`"):
        split_games(folder, read_manifest(folder, Dataset), "train")
    params = made_params().model_copy(update={"dataset": "games", "game": GAME})
    with pytest.raises(StorageError, match=re.escape(text)):
        write_first_window(workspace, params, made_origin("replay", 0))


def test_a_file_is_that_of_the_writer_of_records(dataset):
    manifest = read_manifest(dataset, Dataset)
    for file in manifest.files:
        columns = read_part(dataset, manifest, file)
        records = records_of(columns)
        assert write_records(records) == (dataset / file.games.path).read_bytes()


def test_a_manifest_cannot_allow_a_game_that_is_longer_than_the_rules(dataset, tmp_path):
    """It may come from someone else: a few kB of Parquet can fill the memory."""
    manifest, num_moves = read_manifest(dataset, Dataset), 20_000
    one = read_part(dataset, manifest, manifest.files[0])
    record = records_of(one)[0]
    ones = np.ones(num_moves, np.float32)
    long = record._replace(
        actions=np.zeros(num_moves, np.int16),
        root_values=ones,
        best_values=ones,
        visit_counts=np.zeros((num_moves, RULES.num_actions), np.uint16),
        sample_weights=ones,
    )
    (tmp_path / "long.parquet").write_bytes(write_records([long]))
    file = manifest.files[0].model_copy(
        update={"games": file_ref(tmp_path / "long.parquet", tmp_path), "num_games": 1, "num_positions": num_moves}
    )
    with pytest.raises(StorageError, match=f"has {num_moves} values in actions, at most {RULES.max_moves + 1} are"):
        read_part(tmp_path, manifest, file)


def test_training_draws_one_hot_targets_and_the_result_for_the_player_to_move(dataset):
    games = split_games(dataset, read_manifest(dataset, Dataset), "train")
    samples = sample_games(games)
    batch = new_sample_batch(RULES, 64)
    stream = stream_of(1, 0, "training", 0)
    write_batch(RULES, new_position(RULES), new_history(RULES), samples, False, np.float32(0.5), stream, batch)
    assert (np.sort(batch.policy_target, axis=1)[:, -2:] == [0.0, 1.0]).all()
    assert set(np.unique(batch.value_target)) == {-1.0, 1.0}
    assert not batch.played_out.any()


def test_the_origins_have_the_header_of_each_game(dataset):
    manifest = read_manifest(dataset, Dataset)
    for file in manifest.files:
        columns = read_part(dataset, manifest, file)
        for index, row in enumerate(pq.read_table(dataset / file.origins.path).to_pylist()[: columns.num_games]):
            number = int(columns.black[index].removeprefix("black "))
            assert row["black_rating"] == f"{number % 9 + 1}d"
            assert (row["komi"], row["rules"]) == (6.5, "Japanese")


def test_a_dataset_is_never_overwritten(folder, dataset):
    before = contents(dataset)
    with pytest.raises(StorageError, match="made already exists; give another --out, or delete it first"):
        imported(dataset, folder)
    assert contents(dataset) == before


@pytest.mark.parametrize("step", ["write_manifest", "write_origins", "split_of", "_flush"])
def test_an_import_that_fails_leaves_nothing(folder, tmp_path, monkeypatch, step):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build, step, fail)
    with pytest.raises(StorageError, match=r"cannot write .*: No space left on device"):
        imported(tmp_path / "out", folder)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_import_leaves_no_dataset_and_no_process_and_can_be_repeated(folder, dataset, tmp_path):
    """The import is killed while it waits for a game that never comes, with two processes of its own."""
    program = f"""
import time
from pathlib import Path
from tests.data.dataset import test_build
from zero.data.dataset import build

def slow(item_batches):
    for number, batch in enumerate(item_batches):
        if number == 2:
            print("ready", flush=True)
            time.sleep(1000)
        yield batch

if __name__ == "__main__":
    build.BATCH_GAMES = 16
    build.BATCHES_PER_JOB = 0
    batches = build._batches
    build._batches = lambda items: slow(batches(items))
    test_build.imported(Path({str(tmp_path / "made")!r}), Path({str(folder)!r}), jobs=2)
"""
    (tmp_path / "program.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py")], env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2 and (tmp_path / ".made.import").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "made").exists()
    deadline = time.monotonic() + KILL_SECONDS
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    imported(tmp_path / "made", folder)
    assert contents(tmp_path / "made") == contents(dataset)
    assert not (tmp_path / ".made.import").exists()


@pytest.mark.parametrize("out", ["loose/dataset", ""])
def test_a_dataset_is_not_made_among_the_games(folder, out):
    with pytest.raises(StorageError, match=r"is in .*, which is imported; give an --out elsewhere"):
        imported(folder / out, folder)


def test_two_imports_do_not_write_the_same_dataset(folder, tmp_path, monkeypatch):
    def second(*arguments: object) -> None:
        with pytest.raises(StorageError, match=r"another import is writing .*out; wait for it, or give another --out"):
            imported(tmp_path / "out", folder)
        raise StorageError("first")

    with monkeypatch.context() as patched:
        patched.setattr(build, "_build", second)
        with pytest.raises(StorageError, match="first"):
            imported(tmp_path / "out", folder)


def test_without_any_game_there_is_no_dataset(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(StorageError, match="no game was imported: there is no SGF file"):
        imported(tmp_path / "out", tmp_path / "in")
    (tmp_path / "in/a.sgf").write_text("(;GM[1]SZ[9]KM[7];B[ee])" * 2 + "(;GM[2])")
    message = r"no game was imported; rejected: too short 2, another game 1; the first is in/a.sgf, game 1: 1 moves, at"
    with pytest.raises(StorageError, match=message):
        imported(tmp_path / "out", tmp_path / "in")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_games_of_one_file_are_limited(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "GAMES_PER_FILE", 50)
    imported(tmp_path / "out", folder)
    manifest = read_manifest(tmp_path / "out", Dataset)
    assert max(file.num_games for file in manifest.files) == 50
    for split in SPLITS:
        games = split_games(tmp_path / "out", manifest, split)
        assert np.array_equal(games.game, np.arange(manifest.splits[split].num_games))


def test_a_damaged_dataset_is_not_read(dataset, tmp_path):
    copy = shutil.copytree(dataset, tmp_path / "copy")
    manifest = read_manifest(copy, Dataset)
    path = copy / manifest.files[0].games.path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match="is corrupt"):
        split_games(copy, manifest, "train")
    (copy / "manifest.json").write_text("{}")
    with pytest.raises(StorageError, match="is not a Dataset"):
        read_manifest(copy, Dataset)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("six", None, "0.8,0.1,0.1"), r"--komi 'six' is not a komi; give numbers \(6.5,7.5\) or any"),
        (("", None, "0.8,0.1,0.2"), "--split '0.8,0.1,0.2' adds up to 1.1, expected 1"),
        (("", None, "1.8,-0.4,-0.4"), "must be three fractions"),
    ],
)
def test_bad_options(arguments, message):
    komi, rating, split = arguments
    with pytest.raises(ZeroError, match=message):
        parse_options(GAME, komi, rating, 1, split, 1)


def test_random_moves_of_an_opening_are_no_targets(tmp_path):
    (tmp_path / "games.sgf").write_text("".join(made_games(40)))
    options = parse_options(GAME, "", None, 10, "0.6,0.2,0.2", 1, opening_moves=4)
    dataset = imported(tmp_path / "out", tmp_path / "games.sgf", options=options)
    games = all_games(tmp_path / "out")
    move = np.arange(games.num_positions) - np.repeat(games.move_offsets[:-1], np.diff(games.move_offsets))
    assert np.array_equal(np.diff(games.visit_offsets), (move >= 4).astype(int))
    assert np.array_equal(games.visit_actions, games.actions[move >= 4])
    assert dataset_violations(games, RULES, 4) == []
    assert {violation.clause for violation in dataset_violations(games, RULES)} == {"targets"}
    assert dataset.options.opening_moves == 4


def test_a_game_must_be_longer_than_its_opening():
    with pytest.raises(ZeroError, match="--opening-moves 10 leaves no move"):
        parse_options(GAME, "", None, 10, "0.6,0.2,0.2", 1, opening_moves=10)


def test_memory_does_not_grow_with_the_number_of_games(tmp_path):
    with tarfile.open(tmp_path / "many.tgz", "w:gz", compresslevel=1) as archive:
        for number, text in enumerate(made_games(6000)):
            info = tarfile.TarInfo(f"{number:06d}/{number}.sgf")
            info.size = len(text)
            archive.addfile(info, BytesIO(text.encode()))
    imported(tmp_path / "warm", *_one_game(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dataset = imported(tmp_path / "out", tmp_path / "many.tgz")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert dataset.num_read == 6000
    assert grown < 48 << 10  # kB: one Parquet file of 4,096 games, and the bytes of its columns


def _one_game(folder: Path) -> list[Path]:
    (folder / "one.sgf").write_text(made_game(1))
    return [folder / "one.sgf"]


@needs_gnugo
def test_a_game_that_gnugo_writes_is_imported(tmp_path):
    """GNU Go answers the moves of a player and saves the game; the result is added as a server would."""
    path, program = tmp_path / "gnugo.sgf", program_path("gnugo")
    assert program is not None
    moves = [f"{column}{row}" for column in "cegcegd" for row in (3, 5, 7)]
    done = subprocess.run(
        [program, "--mode", "ascii", "--quiet", "--boardsize", "9", "--komi", "6.5", "--level", "1", "--seed", "3"],
        input="\n".join([*moves, f"save {path}", "quit", ""]),
        text=True,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0
    text = path.read_text()
    path.write_text(text.replace("SZ[9]", "SZ[9]RE[W+R]"))
    dataset = imported(tmp_path / "out", path)
    games = all_games(tmp_path / "out")
    assert dataset.num_read == games.num_games == 1
    assert games.actions.tolist() == list(read_sgf(text).actions)
    assert games.num_positions > 10
    assert dataset_violations(games, RULES) == []
