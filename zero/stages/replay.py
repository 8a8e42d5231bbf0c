"""Stage `replay`: exactly which games the network is trained on, as links to their shards.

The window is the last self-play games, `window_games` of them once the lineage has enough. What enters it is checked
first: every file by its hash, new games also by the data contract, alone and beside the window. A shard with
violations is quarantined; the next `dvc repro` plays it again.
"""

import logging
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zero.config.params import Params, load_params, params_digest
from zero.data.duplicates import (
    Opening,
    count_repeats,
    duplicate_violations,
    openings_of,
    openings_of_values,
    stream_violations,
)
from zero.data.quarantine import quarantine_games
from zero.data.records import GameColumns, read_records, read_values
from zero.data.validation import SAMPLED_POSITIONS, ExpectedProperties, format_violations, moves_of, shard_violations
from zero.data.window import shard_mismatch
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.shards.spec import code_digest
from zero.storage.files import checked_path, link_or_copy, read_manifest, sha256_file, write_manifest
from zero.storage.layout import GAMES_DIR, GENERATION_FILE, QUARANTINE_DIR, REPLAY_DIR, REPLAY_METRICS, WINDOW_DIR
from zero.storage.manifests import (
    MANIFEST_FILE,
    NO_RESIGNATION,
    RESIGNATION,
    FileRef,
    GameSet,
    GenerationId,
    Manifest,
    Origin,
    ShardRef,
    Window,
    WindowShard,
)
from zero.storage.store import Store

STAGE = "replay"
LATE_FRACTION = 0.75
"""From this share of a game on its moves are late: a player should know by then who wins."""

log = logging.getLogger(__name__)


class ReplayMetrics(Manifest):
    """`metrics/replay.json`: the new games as the data contract saw them, and the window."""

    num_games: int
    """New games that were checked; all of them fulfil the contract."""
    num_positions: int
    resigned_games: int
    unique_games: int
    """Different sequences of moves among them."""
    known_games: int
    """New games whose moves are those of a game of the window before."""
    target_positions: int
    """Positions that are policy targets."""
    plane_positions: int
    """Positions whose planes were looked at."""
    value_agreement: float
    """Share of positions whose root value has the sign of the result; of games that were not drawn."""
    late_value_agreement: float
    """The same for the last quarter of each game that was played out."""
    window_games: int
    window_positions: int
    window_shards: int


class BadShard(NamedTuple):
    """A shard that is not let in."""

    ref: ShardRef
    reason: str
    is_file_alone: bool  # the file was altered; the store's copy, which has its own hash, is not to blame


class Agreement(NamedTuple):
    """Positions by whether the root value has the sign of the result."""

    decided: int
    agreeing: int
    late_decided: int
    late_agreeing: int


def run(folder: Path, store: Store) -> Window:
    """Makes `data/window` of a workspace out of `data/games` and `state/replay`.

    Raises:
      ParamsError: `params.yaml` is not valid.
      StorageError: a file is missing or altered, or games do not agree with what their manifest says, or break the data
        contract. Shards with violations are quarantined in the workspace and in `store`.
    """
    params = load_params(folder)
    generation = read_manifest(folder, GenerationId, GENERATION_FILE)
    games_dir, replay_dir, window_dir = folder / GAMES_DIR, folder / REPLAY_DIR, folder / WINDOW_DIR
    games = read_manifest(games_dir, GameSet)
    old = read_manifest(replay_dir, Window)
    _check_generations(generation, games, old)

    sources = {window_name(ref): games_dir / ref.file.path for ref in games.shards}
    entered = tuple(WindowShard(shard=_renamed(ref, window_name(ref)), skip_games=0) for ref in games.shards)
    for entry in old.shards:
        sources[entry.shard.file.path] = checked_path(entry.shard.file, replay_dir)
    metrics = check_games(folder, params, generation, games, old, store)
    shards = last_games((*old.shards, *entered), window_size(params, generation.number))
    skipped = _skipped_positions(shards[0], sources[shards[0].shard.file.path])

    shutil.rmtree(window_dir, ignore_errors=True)
    for entry in shards:
        link_or_copy(sources[entry.shard.file.path], window_dir / entry.shard.file.path)
    window = Window(
        origin=Origin(
            stage=STAGE,
            lineage=generation.lineage,
            generation=generation.number,
            seed=params.seed,
            params_digest=params_digest(params, STAGE),
            engine=code_digest(STAGE),
            inputs={
                GAMES_DIR: sha256_file(games_dir / MANIFEST_FILE),
                REPLAY_DIR: sha256_file(replay_dir / MANIFEST_FILE),
            },
        ),
        shards=shards,
        num_games=sum(entry.shard.num_games - entry.skip_games for entry in shards),
        num_positions=sum(entry.shard.num_positions for entry in shards) - skipped,
    )
    write_manifest(window_dir, window)
    sizes = {
        "window_games": window.num_games,
        "window_positions": window.num_positions,
        "window_shards": len(window.shards),
    }
    write_manifest(folder, metrics.model_copy(update=sizes), REPLAY_METRICS)
    log.info(
        "generation %d: window of %d games, %d positions", generation.number, window.num_games, window.num_positions
    )
    return window


def window_size(params: Params, generation: int) -> int:
    """Games that the window of a generation has room for."""
    num_games, replay = params.selfplay.num_games, params.replay
    return min(replay.window_games, max(num_games, math.ceil(replay.window_fraction * num_games * generation)))


def last_games(shards: tuple[WindowShard, ...], window_games: int) -> tuple[WindowShard, ...]:
    """The shards, oldest first, that hold the last `window_games` games; of the oldest only some games may be left."""
    kept: list[WindowShard] = []
    room = window_games
    for entry in reversed(shards):
        if room == 0:
            break
        taken = min(room, entry.shard.num_games - entry.skip_games)
        kept.append(WindowShard(shard=entry.shard, skip_games=entry.shard.num_games - taken))
        room -= taken
    return tuple(reversed(kept))


def window_name(ref: ShardRef) -> str:
    """File name of a new shard in the window; names of different generations differ."""
    return f"gen-{ref.generation:04d}-{Path(ref.file.path).name}"


def check_games(
    folder: Path, params: Params, generation: GenerationId, games: GameSet, old: Window, store: Store
) -> ReplayMetrics:
    """Holds new games against their manifest, the data contract and the old window; one shard at a time is in memory.

    Returns:
      What was found, without the sizes of the window to be made.

    Raises:
      StorageError: a shard has violations; the message has the first, and all of them are quarantined.
    """
    if not games.num_positions:
        raise StorageError(f"{folder / GAMES_DIR} holds no games; run `dvc repro` in the lineage's workspace")
    bad: list[BadShard] = []
    openings: list[Opening] = []
    agreements: list[Agreement] = []
    num_targets = num_planes = num_resigned = 0
    for ref in games.shards:
        expected = selfplay_expected(params, generation, games.origin.inputs.get("champion", ""), ref)
        checked = _check_shard(folder / GAMES_DIR, params, expected, ref)
        if isinstance(checked, BadShard):
            bad.append(checked)
            continue
        openings += openings_of(checked, expected)
        agreements.append(agreement_of(checked))
        num_targets += int(np.count_nonzero(np.diff(checked.visit_offsets)))
        num_planes += min(SAMPLED_POSITIONS, checked.num_positions)
        num_resigned += checked.end.count(RESIGNATION)
    known = [opening for entry in old.shards for opening in _old_openings(entry, folder / REPLAY_DIR)]
    bad += _repeated_shards(games, openings, known, expected)
    if bad:
        _refuse(folder, bad, store)
    _check_sums(games, folder / GAMES_DIR)
    known_moves = {opening.moves for opening in known}
    total = Agreement(*(sum(counts) for counts in zip(*agreements, strict=True)))
    return ReplayMetrics(
        num_games=games.num_games,
        num_positions=games.num_positions,
        resigned_games=num_resigned,
        unique_games=count_repeats(openings).unique_games,
        known_games=sum(opening.moves in known_moves for opening in openings),
        target_positions=num_targets,
        plane_positions=num_planes,
        value_agreement=total.agreeing / max(1, total.decided),
        late_value_agreement=total.late_agreeing / max(1, total.late_decided),
        window_games=0,
        window_positions=0,
        window_shards=0,
    )


def selfplay_expected(params: Params, generation: GenerationId, champion: str, ref: ShardRef) -> ExpectedProperties:
    """The properties that the games of a self-play shard must have, by the parameters that it was planned with."""
    play = params.selfplay.play
    return ExpectedProperties(
        kind="selfplay",
        weights=(champion,),
        seed=params.seed,
        generation=generation.number,
        first_game=ref.first_game,
        num_games=ref.num_games,
        search=params.search,
        play=play,
        resign_threshold=generation.resign_threshold if play.calibration_fraction else NO_RESIGNATION,
    )


def agreement_of(games: GameColumns) -> Agreement:
    """Positions of decided games whose root value has the sign of the result, and the late ones among them."""
    moves = moves_of(games)
    result = games.outcome[moves.game] * moves.mover
    decided = result != 0
    agreeing = decided & (np.sign(games.root_values) == result)
    played_out = np.array([end != RESIGNATION for end in games.end], np.bool_)[moves.game]
    late = decided & played_out & (moves.move >= LATE_FRACTION * np.diff(games.move_offsets)[moves.game])
    counted = (decided, agreeing, late, late & agreeing)
    return Agreement(*(int(np.count_nonzero(mask)) for mask in counted))


def _check_shard(
    games_dir: Path, params: Params, expected: ExpectedProperties, ref: ShardRef
) -> GameColumns | BadShard:
    rules = rules_of(params.game)
    path = games_dir / ref.file.path
    try:
        columns = read_records(checked_path(ref.file, games_dir).read_bytes(), str(path))
    except StorageError as error:
        return BadShard(ref, str(error).partition("; ")[0], is_file_alone=True)
    if violation := shard_mismatch(columns, ref, rules):
        return BadShard(ref, f"{path}: {violation}", is_file_alone=True)
    if violations := shard_violations(columns, rules, expected):
        return BadShard(ref, format_violations(str(path), violations), is_file_alone=False)
    return columns


def _repeated_shards(
    games: GameSet, openings: list[Opening], known: list[Opening], expected: ExpectedProperties
) -> Iterator[BadShard]:
    for violation in (*stream_violations(openings, known, expected), *duplicate_violations(openings)):
        ref = next(ref for ref in games.shards if 0 <= violation.game - ref.first_game < ref.num_games)
        yield BadShard(ref, format_violations(f"{GAMES_DIR}/{ref.file.path}", [violation]), is_file_alone=False)


def _refuse(folder: Path, bad: list[BadShard], store: Store) -> None:
    """Quarantines shards and raises an error with the reason.

    Raises:
      StorageError: always.
    """
    for shard in bad:
        quarantine_games(folder, GAMES_DIR, shard.ref, shard.reason, None if shard.is_file_alone else store)
    reason = " ".join(line.strip() for line in bad[0].reason.splitlines()[:2])
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    raise StorageError(f"{reason}{more}; quarantined in {folder / QUARANTINE_DIR}, run `dvc repro` to play it again")


def _check_sums(games: GameSet, games_dir: Path) -> None:
    for name in ("num_games", "num_positions"):
        said, found = getattr(games, name), sum(getattr(ref, name) for ref in games.shards)
        if said != found:
            raise StorageError(
                f"{games_dir / MANIFEST_FILE} says {name} {said}, its shards have {found}; "
                "restore it with `dvc checkout --force`"
            )


def _old_openings(entry: WindowShard, replay_dir: Path) -> list[Opening]:
    """The games of a file of the old window, whose hash has been checked."""
    path = replay_dir / entry.shard.file.path
    return openings_of_values(read_values(path.read_bytes(), str(path)), entry.shard.generation)


def _check_generations(generation: GenerationId, games: GameSet, old: Window) -> None:
    made = (games.origin.lineage, games.origin.generation)
    if made != (generation.lineage, generation.number):
        raise StorageError(
            f"{GAMES_DIR} is of {made[0]} generation {made[1]}, the workspace makes {generation.lineage} generation "
            f"{generation.number}; run `dvc repro`"
        )
    late = [entry.shard.generation for entry in old.shards if entry.shard.generation >= generation.number]
    if old.origin.lineage != generation.lineage or late:
        raise StorageError(
            f"{REPLAY_DIR} is of {old.origin.lineage} generation {max(late, default=old.origin.generation)}, "
            f"the workspace makes {generation.lineage} generation {generation.number}; "
            "restore it with `dvc checkout --force`"
        )


def _skipped_positions(entry: WindowShard, path: Path) -> int:
    """Positions in the games of a shard that are too old."""
    if not entry.skip_games:
        return 0
    return int(read_records(path.read_bytes(), str(path)).move_offsets[entry.skip_games])


def _renamed(ref: ShardRef, name: str) -> ShardRef:
    return ref.model_copy(update={"file": FileRef(path=name, sha256=ref.file.sha256, num_bytes=ref.file.num_bytes)})
