"""Makes a dataset of imported games: reads, checks, sorts, splits and writes them.

1. This process reads the files and cuts them into games (`sources`). Other processes check the games (`game`).
2. Accepted games go to one of many temporary files, by the first digits of their canonical digest.
3. Each temporary file is sorted by digest. Of equal games the first one in the order of reading stays. The others are
   appended to the Parquet files of their split.

So the memory holds one temporary file and the games of one Parquet file per split, however many games there are. The
order of the games is that of their digests, which depends neither on the order of the arguments nor on the number of
processes. The dataset is made in a hidden folder beside the result, and renamed when it is complete.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, NamedTuple

from zero.config.params import GameParams
from zero.data.dataset.canonical import split_of
from zero.data.dataset.columns import columns_of, write_origins
from zero.data.dataset.game import GameReader
from zero.data.dataset.manifest import (
    DUPLICATES_FILE,
    GAMES_PER_FILE,
    REJECTED_FILE,
    SPLITS,
    Dataset,
    DatasetFile,
    Duplicate,
    ImportedGame,
    ImportOptions,
    RawGame,
    Rejected,
    SplitName,
    SplitSize,
)
from zero.data.dataset.sources import Found, Item, files_of, games_of_file, roots_of
from zero.data.records import write_columns
from zero.errors import StorageError, WorkerError
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.progress import Progress
from zero.storage.files import FOLDER_LOCK_FILE, canonical_line, file_ref, locked, write_atomic, write_manifest

DIGEST_DIGITS = 2
"""Digits of the digest that choose a temporary file: 256 files, each with 4,000 of a million games."""
BATCH_GAMES, BATCH_BYTES = 128, 1 << 19
"""Upper bounds of what a process checks at once."""
BATCHES_PER_JOB = 4
"""Batches that wait for each process: enough that it never waits, few enough for the memory."""
PARENT_DIED_STATUS = 3


class _Checked(NamedTuple):
    """A batch after the check, encoded."""

    accepted: list[tuple[str, bytes]]  # first digits of the digest, line of the temporary file
    rejected: list[tuple[Rejected, bytes]]  # with its line of the list


def build_dataset(
    paths: Sequence[Path], out: Path, game: GameParams, options: ImportOptions, jobs: int, progress: Progress
) -> Dataset:
    """Imports games into a new folder.

    Args:
      paths: files, folders and archives.
      out: the dataset; must not exist.
      game: the game that the files must have.
      options: which games are imported, and into which split.
      jobs: processes that check games; with 1 this process does it.
      progress: see `Progress`.

    Raises:
      StorageError: a path does not exist, the dataset exists, it cannot be written, or no game was imported.
    """
    roots = roots_of(paths)
    out = out.absolute()
    if inside := [root for root in roots if root in (out.resolve(), *out.resolve().parents)]:
        raise StorageError(f"{out} is in {inside[0]}, which is imported; give an --out elsewhere")
    work = out.with_name(f".{out.name}.import")
    with locked(work, f"another import is writing {out}; wait for it, or give another --out"):
        try:
            if out.exists():
                raise StorageError(f"{out} already exists; give another --out, or delete it first")
            dataset_dir = work / "dataset"
            _remove(work)  # of an import that was killed
            dataset_dir.mkdir()
            dataset = _build(roots, work, dataset_dir, game, options, jobs, progress)
            os.rename(dataset_dir, out)
        except OSError as error:
            raise StorageError(f"cannot write {out}: {error.strerror}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return dataset


def _build(
    roots: Sequence[Path],
    work: Path,
    dataset_dir: Path,
    game: GameParams,
    options: ImportOptions,
    jobs: int,
    progress: Progress,
) -> Dataset:
    """Makes the dataset in `dataset_dir`; temporary files are in `work`."""
    rules = rules_of(game)
    reasons: Counter[str] = Counter()
    first_rejected: Rejected | None = None
    num_accepted = num_read = 0
    rejected_path, duplicates_path = dataset_dir / REJECTED_FILE, dataset_dir / DUPLICATES_FILE
    with contextlib.ExitStack() as files:
        rejected_file = files.enter_context(rejected_path.open("wb"))
        buckets: dict[str, IO[bytes]] = {}
        for checked in _checked(game, options, jobs, _items(roots, progress)):
            for rejected, line in checked.rejected:
                first_rejected = first_rejected or rejected
                reasons[rejected.reason] += 1
                num_read += rejected.game > 0
                rejected_file.write(line)
            for digits, line in checked.accepted:
                if digits not in buckets:
                    buckets[digits] = files.enter_context((work / digits).open("wb"))
                buckets[digits].write(line)
                num_accepted += 1
        _flush(rejected_file)
    if num_accepted == 0:
        raise StorageError(_nothing_imported(reasons, first_rejected))
    writers = {split: _SplitWriter(dataset_dir, split, rules, options.opening_moves) for split in SPLITS}
    with duplicates_path.open("wb") as duplicates:
        for digits in sorted(buckets):
            for imported in _without_duplicates(work / digits, duplicates):
                writers[split_of(imported.digest, options.seed, options.split)].add(imported)
            (work / digits).unlink()
        num_duplicates = num_accepted - sum(writer.num_games for writer in writers.values())
        _flush(duplicates)
    for writer in writers.values():
        writer.write()
    dataset = Dataset(
        game=game,
        options=options,
        files=tuple(file for writer in writers.values() for file in writer.files),
        splits={
            split: SplitSize(num_games=writer.num_games, num_positions=writer.num_positions)
            for split, writer in writers.items()
        },
        num_read=num_read + num_accepted,
        num_duplicates=num_duplicates,
        rejected=dict(reasons),
        rejected_list=file_ref(rejected_path, dataset_dir),
        duplicates_list=file_ref(duplicates_path, dataset_dir),
    )
    write_manifest(dataset_dir, dataset)
    return dataset


class _SplitWriter:
    """Writes the games of a split into Parquet files."""

    def __init__(self, folder: Path, split: SplitName, rules: Rules, opening_moves: int) -> None:
        self._folder, self._split, self._rules, self._opening_moves = folder, split, rules, opening_moves
        self._games: list[ImportedGame] = []
        self.files: list[DatasetFile] = []
        self.num_games = 0
        self.num_positions = 0

    def add(self, game: ImportedGame) -> None:
        """Appends a game."""
        self._games.append(game)
        self.num_games += 1
        self.num_positions += len(game.actions)
        if len(self._games) == GAMES_PER_FILE:
            self.write()

    def write(self) -> None:
        """Writes the games that are not in a file yet."""
        if not self._games:
            return
        name = f"{self._split}-{len(self.files):05d}"
        games, origins = self._folder / f"{name}.parquet", self._folder / f"{name}-origins.parquet"
        columns = columns_of(self._rules, self._games, self.num_games - len(self._games), self._opening_moves)
        write_atomic(games, write_columns(columns))
        write_atomic(origins, write_origins(self._games))
        self.files.append(
            DatasetFile(
                split=self._split,
                games=file_ref(games, self._folder),
                origins=file_ref(origins, self._folder),
                first_game=int(columns.game[0]),
                num_games=columns.num_games,
                num_positions=columns.num_positions,
            )
        )
        self._games = []


def _without_duplicates(path: Path, duplicates: IO[bytes]) -> Iterator[ImportedGame]:
    """The games of a temporary file in the order of their digests. Writes the duplicates into the list."""
    with path.open("rb") as file:
        games = sorted((ImportedGame(*json.loads(line)) for line in file), key=lambda game: (game.digest, game.number))
    kept: ImportedGame | None = None
    for game in games:
        if kept is not None and kept.digest == game.digest:
            duplicate = Duplicate(
                file=game.file,
                game=game.game,
                of_file=kept.file,
                of_game=kept.game,
                same_result=(game.outcome, game.margin) == (kept.outcome, kept.margin),
            )
            duplicates.write(canonical_line(duplicate))
        else:
            kept = game
            yield game


def _items(roots: Sequence[Path], progress: Progress) -> Iterator[Item]:
    """The numbered games and the rejected files of all paths, in a fixed order."""
    # The folders are listed twice: a list of millions of files would fill the memory.
    total = sum(file.num_bytes for file in files_of(roots) if isinstance(file, Found))
    done = number = 0

    def report(num_bytes: int) -> None:
        progress(done + num_bytes, total)

    for file in files_of(roots):
        if isinstance(file, Rejected):
            yield file
            continue
        for item in games_of_file(file, report):
            yield item._replace(number=number) if isinstance(item, RawGame) else item
            number += 1
        done += file.num_bytes
        report(0)


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    num_bytes = 0
    for item in items:
        batch.append(item)
        num_bytes += len(item.data) if isinstance(item, RawGame) else 0
        if len(batch) >= BATCH_GAMES or num_bytes >= BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def _checked(game: GameParams, options: ImportOptions, jobs: int, items: Iterator[Item]) -> Iterator[_Checked]:
    """The checked batches, in the order of the items, whatever the number of processes."""
    if jobs == 1:
        for batch in _batches(items):
            yield _check(game, options, batch)
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_start_process)
    try:
        waiting: deque[Future[_Checked]] = deque()
        for batch in _batches(items):
            waiting.append(pool.submit(_check, game, options, batch))
            if len(waiting) > jobs * BATCHES_PER_JOB:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise WorkerError("a process of the import died; run the same command with fewer --jobs") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    threading.Thread(target=_exit_when_parent_dies, daemon=True).start()


def _exit_when_parent_dies() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(PARENT_DIED_STATUS)


@functools.lru_cache(1)
def _reader(game: GameParams, options: ImportOptions) -> GameReader:
    """The reader of this process: it is slow to make."""
    return GameReader(rules_of(game), options)


def _check(game: GameParams, options: ImportOptions, batch: list[Item]) -> _Checked:
    reader, checked = _reader(game, options), _Checked([], [])
    for item in batch:
        found = reader.read(item) if isinstance(item, RawGame) else item
        if isinstance(found, Rejected):
            checked.rejected.append((found, canonical_line(found)))
        else:
            line = json.dumps(found).encode() + b"\n"  # a NamedTuple becomes a list
            checked.accepted.append((found.digest[:DIGEST_DIGITS], line))
    return checked


def _nothing_imported(reasons: Counter[str], first: Rejected | None) -> str:
    if first is None:
        return "no game was imported: there is no SGF file; give files, folders or archives of SGF"
    found = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    game = f", game {first.game}" if first.game else ""
    return f"no game was imported; rejected: {found}; the first is {first.file}{game}: {first.detail}"


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _remove(work: Path) -> None:
    """Removes what a killed import left in its folder, except the lock."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != FOLDER_LOCK_FILE:
            path.unlink()
