"""The index of a project's recorded games and finished matches: one row per game in memory, for the pages.

A new server reads all of them in the background: lineage by lineage, the newest generation first, then the matches.
Later it reads only new generations, by the commits of their tags, and of their shards only the columns without visits.
A match is generation 0 of its own "lineage", see `zero.web.matches`.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from zero.data.records import GameColumns, read_summaries, write_records
from zero.errors import StorageError, ZeroError
from zero.evaluation.ladder import key_of
from zero.evaluation.match import RESULT_FILE
from zero.record.generation import PULL, Generation
from zero.record.history import read_lines
from zero.record.ledger import generation_tag, parse_tag
from zero.record.lineages import data_cache
from zero.record.objects import CommittedFiles, DataCache, GitReader
from zero.stages.resignation import resignation_traces, would_resign_in
from zero.storage.layout import GAMES_DIR, LEDGER_FILE, MATCH_DIR, workspace_dir
from zero.storage.manifests import GameSet
from zero.storage.vcs import git
from zero.web.matches import MATCH_PREFIX, finished_match_digests, match_path, read_match_games

log = logging.getLogger(__name__)

CHECK_SECONDS, RETRY_SECONDS = 2.0, 60.0
"""Seconds between two searches for new generations, and between two attempts to read one whose data is incomplete."""
WAIT_SECONDS = 1.0
"""Seconds for which a request waits for new generations; longer work goes on in the background."""
MAX_GAMES = 1000
"""Largest number of games in one answer."""
Kind = Literal["selfplay", "gating", "match"]
FOLDERS: dict[Kind, str] = {"selfplay": GAMES_DIR, "gating": MATCH_DIR}
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


class _Indexed(NamedTuple):
    """A generation, or a match, in the index."""

    commit: str  # of a match the digest of its result
    rows: tuple[GameRow, ...] = ()  # in the order of the list, without the names of the players
    network: str | None = None  # SHA-256 of the network that it trained
    note: str = ""  # what is missing; empty if nothing is
    players: tuple[tuple[str, str], ...] = ()  # keys and names of a match's players
    read_at: float = 0.0  # time (monotonic)


class GameIndex:
    """The index of one project. Its methods may be called from any thread."""

    def __init__(self, home: Path) -> None:
        """Reads nothing yet."""
        self._home = home
        self._lock = threading.Lock()  # of the next field
        self._generations: dict[tuple[str, int], _Indexed] = {}
        self._refreshing = threading.Lock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._checked = -CHECK_SECONDS  # time of the last search for new generations
        self._pending, self._error = 0, ""

    def find(self, chosen: GameFilter, offset: int = 0, limit: int = 200) -> tuple[int, list[GameRow]]:
        """Number of games that match, and `limit` of them from `offset` on: by lineage, the newest generation first."""
        known = self._known()
        rows = [
            row
            for (lineage, number), found in sorted(known.items(), key=lambda each: (each[0][0], -each[0][1]))
            if chosen.lineage in (None, lineage) and chosen.generation in (None, number)
            for row in found.rows
            if _is_chosen(chosen, row)
        ]
        return len(rows), _named(known, rows[offset : offset + limit])

    def game(self, kind: str, lineage: str, generation: int, game: int) -> GameRow | None:
        """One game; None if the index has none of that name."""
        known = self._known()
        found = known.get((lineage, generation))
        rows = [row for row in found.rows if (row.kind, row.game) == (kind, game)] if found else []
        return next(iter(_named(known, rows)), None)

    def neighbours(self, row: GameRow) -> tuple[int | None, int | None]:
        """Numbers of the games before and after one, of the same generation and kind."""
        found = self._known().get((row.lineage, row.generation))
        games = [each.game for each in found.rows if each.kind == row.kind] if found else []
        before, after = (each for each in games if each < row.game), (each for each in games if each > row.game)
        return max(before, default=None), min(after, default=None)

    def lineages(self) -> list[IndexedLineage]:
        """The lineages with games, by name."""
        known = self._known()
        played = sorted(each for each, found in known.items() if found.rows and not each[0].startswith(MATCH_PREFIX))
        groups = [(lineage, [*keys]) for lineage, keys in groupby(played, key=lambda each: each[0])]
        return [
            IndexedLineage(lineage, keys[0][1], keys[-1][1], sum(len(known[each].rows) for each in keys))
            for lineage, keys in groups
        ]

    def matches(self) -> list[Match]:
        """The matches, by the names of their players."""
        known = self._known()
        matches = [found.rows for (name, _), found in known.items() if found.rows and name.startswith(MATCH_PREFIX)]
        firsts = _named(known, [rows[0] for rows in matches])
        found = [
            Match(row.lineage, row.black_name or "", row.white_name or "", len(rows))
            for row, rows in zip(firsts, matches, strict=True)
        ]
        return sorted(found, key=lambda each: (each.black, each.white, each.match))

    def ends(self) -> list[str]:
        """The ways in which the games ended."""
        return sorted({row.end for found in self._known().values() for row in found.rows})

    def status(self) -> Status:
        """How complete the index is."""
        notes = [found.note for _, found in sorted(self._known().items()) if found.note]
        running = self._thread is not None and self._thread.is_alive()
        return Status(max(self._pending, int(running)), tuple([*([self._error] if self._error else []), *notes]))

    def refresh_soon(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Starts to read new generations in the background, and waits for a short time."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                if time.monotonic() - self._checked < CHECK_SECONDS:
                    return
                # A daemon: the server need not wait for it.
                self._thread = threading.Thread(target=self._refresh_quietly, name="game-index", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(wait_seconds)

    def refresh(self) -> None:
        """Reads all generations and matches that the index lacks: lineage by lineage, the newest first.

        Raises:
          LineageError: git cannot list the tags.
        """
        with self._refreshing:
            tags = recorded_tags(self._home) | finished_match_digests(self._home)
            with self._lock:
                for gone in self._generations.keys() - tags.keys():
                    del self._generations[gone]
            due = [(lineage, -number) for lineage, number in tags if self._is_due(lineage, number, tags)]
            self._pending = len(due)
            cache = data_cache(self._home)
            try:
                for lineage, numbers in groupby(sorted(due), key=lambda each: each[0]):
                    if lineage.startswith(MATCH_PREFIX):
                        digest = tags[lineage, 0]
                        self._add(lineage, 0, digest, partial(_read_match, self._home, lineage, digest))
                        self._pending -= 1
                        continue
                    with open_reader(self._home, lineage) as reader:
                        for number in (-negative for _, negative in numbers):
                            commit = tags[lineage, number]
                            read = partial(_read_generation, reader, cache, lineage, number, commit)
                            self._add(lineage, number, commit, read)
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

    def _is_due(self, lineage: str, number: int, tags: dict[tuple[str, int], str]) -> bool:
        """True if a generation is new, was recorded again, or was incomplete when it was read a while ago."""
        found = self._generations.get((lineage, number))
        if found is None or found.commit != tags[lineage, number]:
            return True
        return bool(found.note) and time.monotonic() - found.read_at >= RETRY_SECONDS

    def _add(self, lineage: str, number: int, commit: str, read: Callable[[], _Indexed]) -> None:
        """Reads one generation or match. One that is damaged is in the index with a note."""
        try:
            found = read()
        except ZeroError as error:
            found = _Indexed(commit, note=f"{_title(lineage, number)}: {error}")
        except Exception as error:  # the others are read all the same
            log.exception("the games of %s failed", _title(lineage, number))
            note = f"{_title(lineage, number)}: {type(error).__name__}; the server's log has the cause"
            found = _Indexed(commit, note=note)
        with self._lock:
            self._generations[lineage, number] = found._replace(read_at=time.monotonic())

    def _known(self) -> dict[tuple[str, int], _Indexed]:
        """What is indexed at this moment, by lineage and number."""
        with self._lock:
            return dict(self._generations)


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
            if parsed := parse_tag(words[0]):
                # The third field is the commit of an annotated tag, and empty for a plain one.
                found[parsed] = words[-1]
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


def _is_chosen(chosen: GameFilter, row: GameRow) -> bool:
    """True if a row matches the filter, apart from its lineage and generation."""
    return (
        chosen.kind in (None, row.kind)
        and chosen.result in (None, row.result)
        and chosen.end in (None, row.end)
        and (chosen.min_moves is None or row.moves >= chosen.min_moves)
        and (chosen.max_moves is None or row.moves <= chosen.max_moves)
        and (not chosen.wrong_resignation or bool(row.wrong_resignation))
    )


def _named(known: dict[tuple[str, int], _Indexed], rows: list[GameRow]) -> list[GameRow]:
    """The rows with the names of their players: the generation that trained a network, or the player of a match.

    If branches have made the same network, it is the generation of the game's own lineage. A player has its name of
    that match.
    """
    names: dict[str, list[str]] = {}
    for (lineage, number), found in sorted(known.items()):
        trained = [(found.network, generation_tag(lineage, number))] if found.network else []
        for digest, name in (*trained, *found.players):
            names.setdefault(digest, []).append(name)

    def name_of(row: GameRow, digest: str) -> str | None:
        if name := dict(known[row.lineage, row.generation].players).get(digest):
            return name
        own = (each for each in names.get(digest, ()) if each.startswith(f"{row.lineage}/"))
        return next(own, next(iter(names.get(digest, ())), None))

    return [row._replace(black_name=name_of(row, row.black), white_name=name_of(row, row.white)) for row in rows]


def _title(lineage: str, number: int) -> str:
    return match_path(lineage) if lineage.startswith(MATCH_PREFIX) else generation_tag(lineage, number)


def _read_match(home: Path, name: str, digest: str) -> _Indexed:
    """The games of a finished match.

    Args:
      home: the project's folder.
      name: name of the match's folder after `MATCH_PREFIX`.
      digest: SHA-256 of its result; empty if the result cannot be read.

    Raises:
      StorageError: a file is missing or corrupt.
    """
    path = match_path(name)
    if not digest:
        raise StorageError(f"{RESULT_FILE} cannot be read; check its permissions, or move the folder away")
    spec, records = read_match_games(home / path)
    columns = read_summaries(write_records(records), path)
    rows = _rows("match", name, 0, digest, path, digest, columns, None)
    return _Indexed(digest, tuple(rows), players=tuple((key_of(player), player.name) for player in spec.players))


def _read_generation(reader: GitReader, cache: DataCache, lineage: str, number: int, commit: str) -> _Indexed:
    """The games of a generation, as far as they are on this machine.

    Raises:
      LineageError: git's objects are damaged.
      ParamsError: this version of the program cannot read its parameters.
    """
    generation = generation_at(reader, cache, lineage, number, commit)
    entry = generation.entry
    if entry is None:
        return _Indexed(commit, note=f"{generation.tag} has no ledger entry that can be read; run `zero audit`")
    if entry.decision is None:
        return _Indexed(commit, network=entry.champion if entry.kind == "start" else None)
    generation.read_params()  # without its rules a game cannot be replayed
    metrics = generation.selfplay_metrics
    threshold = metrics.resignation.used.threshold if metrics and metrics.resignation else None
    rows: list[GameRow] = []
    faults: list[str] = []
    played: tuple[tuple[Kind, GameSet | None], ...] = (("selfplay", generation.games), ("gating", generation.match))
    for kind, games in played:
        folder = FOLDERS[kind]
        if games is None:
            faults.append(f"the games of {folder} are not on this machine")
            continue
        for shard in games.shards:
            path = f"{folder}/{shard.file.path}"
            try:
                data = generation.checked_data(folder, shard.file.path, shard.file.sha256)
                columns = read_summaries(data, f"{path} of {generation.tag}")
            except StorageError:
                faults.append(f"{path} is {'damaged' if generation.data_path(folder, shard.file.path) else 'not here'}")
                continue
            used = threshold if kind == "selfplay" else None
            rows += _rows(kind, lineage, number, commit, path, shard.file.sha256, columns, used)
    note = f"{generation.tag}: {', '.join(faults)}; {PULL.format(tag=generation.tag)}" if faults else ""
    rows.sort(key=lambda row: (row.kind == "gating", row.game))
    return _Indexed(commit, tuple(rows), entry.decision.challenger, note)


def _rows(
    kind: Kind,
    lineage: str,
    generation: int,
    commit: str,
    path: str,
    shard: str,
    games: GameColumns,
    threshold: float | None,
) -> Iterator[GameRow]:
    """The rows of a shard, without the names of the players."""
    wrong = np.zeros(games.num_games, np.bool_)
    if threshold is not None:
        game, result = would_resign_in(resignation_traces(games), threshold)
        wrong[np.flatnonzero(games.never_resigns)[game[result >= 0]]] = True
    moves = np.diff(games.move_offsets)
    for row in range(games.num_games):
        yield GameRow(
            kind=kind,
            lineage=lineage,
            generation=generation,
            game=int(games.game[row]),
            moves=int(moves[row]),
            result="DBW"[int(games.outcome[row])],
            margin=float(games.margin[row]),
            end=games.end[row],
            black=games.black[row],
            white=games.white[row],
            black_name=None,
            white_name=None,
            never_resigns=int(games.never_resigns[row]),
            wrong_resignation=int(wrong[row]),
            shard=shard,
            path=path,
            shard_row=row,
            commit=commit,
        )
