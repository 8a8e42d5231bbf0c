"""The index of a project's recorded games and finished matches: an SQLite file with one row per game, for the pages.

The file `<home>/.zero/web/index.sqlite` is not part of the record. It can be deleted at any time, and it is made again
if it is damaged or of another version. Only generations that it lacks are read, by the commits of their tags, and of
their shards only the columns without visits. Each generation is written in one transaction, so a kill leaves no part of
it, and two servers write the same rows. A match is a generation 0 of its own "lineage", see `zero.web.matches`.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from zero.config.settings import STATE_FOLDER
from zero.data.records import GameColumns, read_summaries, write_records
from zero.errors import StorageError, ZeroError
from zero.evaluation.ladder import key_of
from zero.evaluation.match import RESULT_FILE
from zero.record.generation import Generation
from zero.record.history import TAG_PATTERN, read_lines
from zero.record.ledger import generation_tag
from zero.record.lineages import data_cache
from zero.record.objects import CommittedFiles, DataCache, GitReader
from zero.stages.resignation import resignation_traces, would_resign_in
from zero.storage.files import sha256_bytes, sha256_file
from zero.storage.layout import GAMES_DIR, LEDGER_FILE, MATCH_DIR, workspace_dir
from zero.storage.vcs import git
from zero.web.matches import MATCH_PREFIX, finished_match_digests, match_path, read_match_games

log = logging.getLogger(__name__)

VERSION = 3
"""Version of the schema, `user_version` of the file."""
INDEX_FILE = "web/index.sqlite"
CHECK_SECONDS, RETRY_SECONDS = 2.0, 60.0
"""Seconds between two searches for new generations, and between two attempts to read one whose data is incomplete."""
WAIT_SECONDS = 1.0
"""Seconds for which a request waits for new generations; longer work goes on in the background."""
BUSY_SECONDS = 30.0
MAX_GAMES = 1000
"""Largest number of games in one answer."""
Kind = Literal["selfplay", "gating", "match"]
FOLDERS: dict[Kind, str] = {"selfplay": GAMES_DIR, "gating": MATCH_DIR}
SCHEMA = (
    "CREATE TABLE generations (lineage TEXT, generation INTEGER, commit_id TEXT NOT NULL, num_games INTEGER NOT NULL,"
    " note TEXT NOT NULL, PRIMARY KEY (lineage, generation)) WITHOUT ROWID",
    # the network that each generation trained
    "CREATE TABLE networks (digest TEXT, lineage TEXT, generation INTEGER, PRIMARY KEY (digest, lineage, generation))"
    " WITHOUT ROWID",
    # the players of matches
    "CREATE TABLE players (digest TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID",
    # digests of shards, weights and players, of which a game has the number
    "CREATE TABLE digests (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE)",
    # in the order of the list, so that a page of it is one range of the file
    "CREATE TABLE games (lineage TEXT, generation INTEGER, kind TEXT, game INTEGER, shard INTEGER NOT NULL,"
    " path TEXT NOT NULL, shard_row INTEGER NOT NULL, moves INTEGER NOT NULL, result TEXT NOT NULL,"
    " margin REAL NOT NULL, end TEXT NOT NULL, black INTEGER NOT NULL, white INTEGER NOT NULL,"
    " never_resigns INTEGER NOT NULL, wrong_resignation INTEGER NOT NULL,"
    " PRIMARY KEY (lineage, generation DESC, kind DESC, game)) WITHOUT ROWID",
)
NAME_OF = (
    "coalesce((SELECT substr(min((lineage <> g.lineage) || lineage || printf('/gen-%04d', generation)), 2)"
    " FROM networks WHERE digest = {0}.digest), (SELECT name FROM players WHERE digest = {0}.digest))"
)
"""The generation that trained a network, or the name of a match's player.

If branches have made the same network, it is the generation of the game's own lineage.
"""
SELECT_GAMES = (
    "SELECT g.kind, g.lineage, g.generation, g.game, g.moves, g.result, g.margin, g.end, b.digest, w.digest,"
    f" {NAME_OF.format('b')}, {NAME_OF.format('w')}, g.never_resigns, g.wrong_resignation, s.digest, g.path,"
    " g.shard_row, n.commit_id FROM ({games}) g JOIN digests b ON b.id = g.black"
    " JOIN digests w ON w.id = g.white JOIN digests s ON s.id = g.shard"
    " JOIN generations n ON (n.lineage, n.generation) = (g.lineage, g.generation)"
)
ID_OF = "(SELECT id FROM digests WHERE digest = ?)"
INSERT_GAME = f"INSERT INTO games VALUES (?, ?, ?, ?, {ID_OF}, ?, ?, ?, ?, ?, ?, {ID_OF}, {ID_OF}, ?, ?)"
ORDER = " ORDER BY g.lineage, g.generation DESC, g.kind DESC, g.game"
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
Result = TypeVar("Result")
Number = Annotated[int, Field(ge=0, lt=10**9)]


class GameFilter(BaseModel):
    """Which games a list shows; None and False: any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lineage: str | None = None
    generation: Number | None = None
    kind: Kind | None = None
    result: Literal["B", "W", "D"] | None = None
    end: str | None = None
    """How the game ended, see `zero.play.slots`."""
    min_moves: Number | None = None
    max_moves: Number | None = None
    wrong_resignation: bool = False


class GameRow(NamedTuple):
    """A recorded game, as the index has it."""

    kind: Kind
    lineage: str
    generation: int
    game: int
    moves: int
    """Number of moves."""
    result: str
    """`B`, `W` or `D`."""
    margin: float
    """Points for Black."""
    end: str
    black: str
    """SHA-256 of the weights; in a match the key of the player."""
    white: str
    black_name: str | None
    """Tag of the generation that trained the weights, or name of the player; None if unknown."""
    white_name: str | None
    never_resigns: int
    """1: a calibration game, in which resignation is disabled."""
    wrong_resignation: int
    """1: the threshold would have ended this calibration game, but the resigning player won or drew it."""
    shard: str
    """SHA-256 of its shard, or of the result of its match."""
    path: str
    """Path of the shard in the record, or of the match's folder in the project."""
    shard_row: int
    commit: str
    """Commit of the generation; of a match the same as `shard`."""


class IndexedLineage(NamedTuple):
    """The indexed games of a lineage."""

    lineage: str
    first: int
    last: int
    num_games: int


class Match(NamedTuple):
    """A match in the index."""

    match: str
    """Value of the filter `lineage`."""
    black: str
    """Name of the first player, who has Black in the first game."""
    white: str
    num_games: int


class Status(NamedTuple):
    """How complete the index is."""

    pending: int
    """Generations that are not read yet."""
    notes: tuple[str, ...]
    """Data that is not on this machine, or damaged, with the remedy."""


class _Read(NamedTuple):
    """What the index takes from one generation."""

    rows: tuple[tuple[object, ...], ...] = ()  # the table `games` from its third column on, with digests instead of ids
    digests: frozenset[str] = frozenset()  # of these rows
    network: str | None = None  # SHA-256 of the network that it trained
    note: str = ""  # what is missing; empty if nothing is
    players: tuple[tuple[str, str], ...] = ()  # keys and names of a match's players


class GameIndex:
    """The index of one project. Its methods may be called from any thread."""

    def __init__(self, home: Path) -> None:
        """Opens nothing yet: the file is made on first use."""
        self.path = home / STATE_FOLDER / INDEX_FILE
        self._home = home
        self._refreshing = threading.Lock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._checked = -CHECK_SECONDS  # time of the last search for new generations
        self._tried: dict[tuple[str, int, str], float] = {}  # time at which an incomplete generation was last read
        self._pending, self._error = 0, ""

    def find(self, chosen: GameFilter, offset: int = 0, limit: int = 200) -> tuple[int, list[GameRow]]:
        """The number of games that match, and some of them: by lineage, then the newest generation first.

        Raises:
          StorageError: the index cannot be read or written.
        """
        clauses, values = _clauses(chosen)
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""

        def read(database: sqlite3.Connection) -> tuple[int, list[GameRow]]:
            (total,) = database.execute(f"SELECT count(*) FROM games g{where}", values).fetchone()
            # The rows before the page are skipped before the joins.
            page = SELECT_GAMES.format(games=f"SELECT * FROM games g{where}{ORDER} LIMIT ? OFFSET ?") + ORDER
            return total, [GameRow(*each) for each in database.execute(page, (*values, limit, offset))]

        return self._use(read)

    def game(self, kind: str, lineage: str, generation: int, game: int) -> GameRow | None:
        """One game; None if the index has none of that name.

        Raises:
          StorageError: the index cannot be read or written.
        """
        where = "SELECT * FROM games WHERE (kind, lineage, generation, game) = (?, ?, ?, ?)"
        query, values = SELECT_GAMES.format(games=where), (kind, lineage, generation, game)
        found = self._use(lambda database: database.execute(query, values).fetchone())
        return GameRow(*found) if found else None

    def neighbours(self, row: GameRow) -> tuple[int | None, int | None]:
        """Numbers of the games before and after one, of the same generation and kind."""
        query = (
            "SELECT max(game) FILTER (WHERE game < ?4), min(game) FILTER (WHERE game > ?4) FROM games"
            " WHERE (kind, lineage, generation) = (?1, ?2, ?3)"
        )
        before, after = self._use(lambda database: database.execute(query, row[:4]).fetchone())
        return before, after

    def lineages(self) -> list[IndexedLineage]:
        """The lineages with games, by name."""
        query = (
            "SELECT lineage, min(generation), max(generation), sum(num_games) FROM generations WHERE num_games > 0"
            " AND lineage < ? GROUP BY lineage ORDER BY lineage"
        )
        return self._use(lambda database: [IndexedLineage(*each) for each in database.execute(query, (MATCH_PREFIX,))])

    def matches(self) -> list[Match]:
        """The matches, by the names of their players."""
        query = (
            f"SELECT g.lineage, {NAME_OF.format('b')} AS one, {NAME_OF.format('w')} AS other, n.num_games FROM"
            " generations n JOIN games g ON (g.lineage, g.generation, g.kind, g.game) = (n.lineage, 0, 'match', 0)"
            " JOIN digests b ON b.id = g.black JOIN digests w ON w.id = g.white WHERE n.lineage >= ?"
            " ORDER BY one, other, g.lineage"
        )
        return self._use(lambda database: [Match(*each) for each in database.execute(query, (MATCH_PREFIX,))])

    def ends(self) -> list[str]:
        """The ways in which the games ended."""
        query = "SELECT DISTINCT end FROM games ORDER BY end"
        return self._use(lambda database: [each for (each,) in database.execute(query)])

    def status(self) -> Status:
        """How complete the index is."""
        query = "SELECT note FROM generations WHERE note <> '' ORDER BY lineage, generation"
        notes = self._use(lambda database: [each for (each,) in database.execute(query)])
        running = self._thread is not None and self._thread.is_alive()
        return Status(max(self._pending, int(running)), tuple([*([self._error] if self._error else []), *notes]))

    def refresh_soon(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Starts to read new generations in the background, and waits for a short time."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                if time.monotonic() - self._checked < CHECK_SECONDS:
                    return
                # A daemon: the server need not wait for it, because a generation is written in one transaction.
                self._thread = threading.Thread(target=self._refresh_quietly, name="game-index", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(wait_seconds)

    def refresh(self) -> None:
        """Reads all generations and matches that the index lacks, the newest of each lineage first.

        Raises:
          LineageError: git cannot list the tags.
          StorageError: the index cannot be written, or the result of a match cannot be read.
        """
        with self._refreshing:
            tags = recorded_tags(self._home) | finished_match_digests(self._home)
            known = self._use(_known)
            for gone in known.keys() - tags.keys():
                self._use(partial(_remove, lineage=gone[0], number=gone[1]), immediate=True)
            due = [(lineage, -number) for lineage, number in tags if self._is_due(lineage, number, tags, known)]
            self._pending = len(due)
            cache = data_cache(self._home)
            try:
                for lineage, numbers in groupby(sorted(due), key=lambda each: each[0]):
                    if lineage.startswith(MATCH_PREFIX):
                        self._index(lineage, 0, tags[lineage, 0], partial(_read_match, self._home, lineage))
                        self._pending -= 1
                        continue
                    with open_reader(self._home, lineage) as reader:
                        for number in (-negative for _, negative in numbers):
                            commit = tags[lineage, number]
                            read = partial(_read_generation, reader, cache, lineage, number, commit)
                            self._index(lineage, number, commit, read)
                            self._pending -= 1
            finally:
                self._pending = 0
                self._checked = time.monotonic()

    def _refresh_quietly(self) -> None:
        try:
            self.refresh()
            self._error = ""
        except ZeroError as error:
            self._error = str(error)  # shown by `status`
        except Exception as error:
            log.exception("the index of recorded games failed")
            self._error = f"the index of games failed ({type(error).__name__}); the server's log has the cause"

    def _is_due(
        self,
        lineage: str,
        number: int,
        tags: dict[tuple[str, int], str],
        known: dict[tuple[str, int], tuple[str, str]],
    ) -> bool:
        """True if a generation is new, was recorded again, or was incomplete when it was read a while ago."""
        commit = tags[lineage, number]
        stored, note = known.get((lineage, number), ("", ""))
        tried = self._tried.get((lineage, number, commit), -RETRY_SECONDS)
        return stored != commit or bool(note and time.monotonic() - tried >= RETRY_SECONDS)

    def _index(self, lineage: str, number: int, commit: str, read: Callable[[], _Read]) -> None:
        """Reads one generation or match and writes its rows, unless another process has just written them."""
        if self._use(_known).get((lineage, number)) == (commit, ""):
            return
        try:
            found = read()
        except ZeroError as error:
            found = _Read(note=f"{_title(lineage, number)}: {error}")
        self._tried[lineage, number, commit] = time.monotonic()

        def write(database: sqlite3.Connection) -> None:
            _remove(database, lineage, number)
            database.execute(
                "INSERT INTO generations VALUES (?, ?, ?, ?, ?)",
                (lineage, number, commit, len(found.rows), found.note),
            )
            if found.network:
                database.execute("INSERT INTO networks VALUES (?, ?, ?)", (found.network, lineage, number))
            database.executemany("INSERT OR REPLACE INTO players VALUES (?, ?)", found.players)
            digests = [(digest,) for digest in sorted(found.digests)]
            database.executemany("INSERT OR IGNORE INTO digests (digest) VALUES (?)", digests)
            database.executemany(INSERT_GAME, [(lineage, number, *row) for row in found.rows])

        self._use(write, immediate=True)

    def _use(self, work: Callable[[sqlite3.Connection], Result], immediate: bool = False) -> Result:
        """Result of some work on the database in one transaction. A damaged file is removed and made again.

        Args:
          work: called with a connection; called again if the file was damaged.
          immediate: take the write lock first, so that two processes cannot deadlock.

        Raises:
          StorageError: the file cannot be read or written.
        """
        for attempt in range(2):
            try:
                with closing(self._connect()) as database:
                    database.execute("BEGIN IMMEDIATE" if immediate else "BEGIN")
                    with database:
                        return work(database)
            except sqlite3.DatabaseError as error:
                if attempt or (getattr(error, "sqlite_errorcode", 0) & 0xFF) not in DAMAGED:
                    raise StorageError(
                        f"cannot use {self.path}: {error}; check the disk, or delete the file, which is made again"
                    ) from None
            except OSError as error:
                raise StorageError(
                    f"cannot write {self.path}: {error.strerror}; check the folder's permissions"
                ) from None
            # The journal first: it would be applied to the new file.
            self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
            self._checked = -CHECK_SECONDS
        raise AssertionError("the second attempt returns or raises")

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            if _version(database) != VERSION:
                _make_tables(database)
        except BaseException:
            database.close()
            raise
        return database


def recorded_tags(home: Path) -> dict[tuple[str, int], str]:
    """Commits of the recorded generations by lineage and number, from the tags of the project and of its workspaces.

    Raises:
      LineageError: git cannot list them.
    """
    folder = workspace_dir(home, "any").parent
    workspaces = {path.parent: f"refs/tags/{path.parent.name}/gen-*" for path in sorted(folder.glob("*/.git"))}
    found: dict[tuple[str, int], str] = {}
    # The project's last, because its tags count if the two differ.
    for clone, pattern in (workspaces | ({home: "refs/tags/*/gen-*"} if (home / ".git").exists() else {})).items():
        listed = git(clone, "for-each-ref", "--format=%(refname:strip=2) %(objectname) %(*objectname)", pattern)
        for words in map(str.split, listed.splitlines()):
            if match := TAG_PATTERN.match(words[0]):
                # The third field is the commit of an annotated tag, and empty for a plain one.
                found[match[1], int(words[0].rpartition("gen-")[2])] = words[-1]
    return found


@contextmanager
def open_reader(home: Path, lineage: str) -> Iterator[GitReader]:
    """Reads git's objects of a lineage, from its workspace and the project."""
    workspace = workspace_dir(home, lineage)
    has_workspace = (workspace / ".git").exists()
    with GitReader(workspace, also=home) if has_workspace else GitReader(home) as reader:
        yield reader


def generation_at(reader: GitReader, cache: DataCache, lineage: str, number: int, commit: str) -> Generation:
    """A generation by the commit of its tag. Trusts the tag, unlike `ProjectRecord`, which reads the whole history."""
    files = CommittedFiles(reader, cache, commit)
    last_line = b"".join((files.read(LEDGER_FILE) or b"").splitlines(keepends=True)[-1:])
    return Generation(lineage, number, files, next(iter(read_lines(last_line)), None))


def shard_bytes(generation: Generation, folder: str, path: str, sha256: str) -> bytes:
    """Content of a shard of games from DVC's cache, after a check of its digest.

    Raises:
      StorageError: it is not on this machine, or damaged.
    """
    data = generation.data(folder, path)
    if data is None or sha256_bytes(data) != sha256:
        state = "is not on this machine" if data is None else "is damaged"
        raise StorageError(f"{folder}/{path} of {generation.tag} {state}; {_remedy(generation)}")
    return data


def _clauses(chosen: GameFilter) -> tuple[list[str], list[object]]:
    """The conditions of a filter and their values."""
    fields = (
        *(("lineage", "g.lineage = ?"), ("generation", "g.generation = ?"), ("kind", "g.kind = ?")),
        *(("result", "g.result = ?"), ("end", "g.end = ?")),
        *(("min_moves", "g.moves >= ?"), ("max_moves", "g.moves <= ?")),
    )
    given = [(clause, getattr(chosen, name)) for name, clause in fields if getattr(chosen, name) is not None]
    clauses, values = [clause for clause, _ in given], [value for _, value in given]
    clauses += ["g.wrong_resignation"] if chosen.wrong_resignation else []
    return clauses, values


def _known(database: sqlite3.Connection) -> dict[tuple[str, int], tuple[str, str]]:
    """Commit and note of the indexed generations."""
    rows = database.execute("SELECT lineage, generation, commit_id, note FROM generations")
    return {(lineage, number): (commit, note) for lineage, number, commit, note in rows}


def _remove(database: sqlite3.Connection, lineage: str, number: int) -> None:
    for table in ("games", "networks", "generations"):
        database.execute(f"DELETE FROM {table} WHERE lineage = ? AND generation = ?", (lineage, number))


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def _make_tables(database: sqlite3.Connection) -> None:
    """Makes the tables again, unless another process has done so since the version was read."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        if _version(database) == VERSION:
            return
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            database.execute(f'DROP TABLE "{name}"')
        for statement in SCHEMA:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")


def _title(lineage: str, number: int) -> str:
    return match_path(lineage) if lineage.startswith(MATCH_PREFIX) else generation_tag(lineage, number)


def _read_match(home: Path, name: str) -> _Read:
    """The games of a finished match.

    Raises:
      StorageError: a file is missing or corrupt.
    """
    path = match_path(name)
    digest = sha256_file(home / path / RESULT_FILE)
    spec, records = read_match_games(home / path)
    columns = read_summaries(write_records(records), path)
    rows = _rows("match", path, digest, columns, None)
    players = tuple((key_of(player), player.name) for player in spec.players)
    return _Read(tuple(rows), frozenset({digest, *(key for key, _ in players)}), players=players)


def _read_generation(reader: GitReader, cache: DataCache, lineage: str, number: int, commit: str) -> _Read:
    """The games of a generation, as far as they are on this machine.

    Raises:
      LineageError: git's objects are damaged.
      ParamsError: this version of the program cannot read its parameters.
    """
    generation = generation_at(reader, cache, lineage, number, commit)
    entry = generation.entry
    if entry is None:
        return _Read(note=f"{generation.tag} has no ledger entry that can be read; run `zero audit`")
    if entry.decision is None:
        return _Read(network=entry.champion if entry.kind == "start" else None)
    generation.read_params()  # without its rules a game cannot be replayed
    metrics = generation.selfplay_metrics
    threshold = metrics.resignation.used.threshold if metrics and metrics.resignation else None
    rows: list[tuple[object, ...]] = []
    digests: set[str] = set()
    faults: list[str] = []
    for kind, folder, games in (("selfplay", GAMES_DIR, generation.games), ("gating", MATCH_DIR, generation.match)):
        if games is None:
            faults.append(f"the games of {folder} are not on this machine")
            continue
        for shard in games.shards:
            path = f"{folder}/{shard.file.path}"
            try:
                data = shard_bytes(generation, folder, shard.file.path, shard.file.sha256)
                columns = read_summaries(data, f"{path} of {generation.tag}")
            except StorageError:
                faults.append(f"{path} is {'damaged' if generation.data_path(folder, shard.file.path) else 'not here'}")
                continue
            digests |= {shard.file.sha256, *columns.black, *columns.white}
            used = threshold if kind == "selfplay" else None
            rows += _rows(kind, path, shard.file.sha256, columns, used)
    note = f"{generation.tag}: {', '.join(faults)}; {_remedy(generation)}" if faults else ""
    return _Read(tuple(rows), frozenset(digests), entry.decision.challenger, note)


def _rows(
    kind: str,
    path: str,
    shard: str,
    games: GameColumns,
    threshold: float | None,
) -> Iterator[tuple[object, ...]]:
    """The rows of a shard, from the column `kind` on."""
    wrong = np.zeros(games.num_games, np.bool_)
    if threshold is not None:
        game, result = would_resign_in(resignation_traces(games), threshold)
        wrong[np.flatnonzero(games.never_resigns)[game[result >= 0]]] = True
    moves = np.diff(games.move_offsets)
    for row in range(games.num_games):
        yield (
            *(kind, int(games.game[row]), shard, path, row, int(moves[row])),
            *("DBW"[int(games.outcome[row])], float(games.margin[row]), games.end[row]),
            *(games.black[row], games.white[row], int(games.never_resigns[row]), int(wrong[row])),
        )


def _remedy(generation: Generation) -> str:
    return f"run `dvc pull` in a folder made by `zero checkout {generation.tag}`"
