"""Stage `replay`: selects the games that the network is trained on, the window, and links their shards to it.

The window holds the last self-play games of the lineage, at most `replay.window_games`. Every file is checked against
its digest. `collect` has checked the new games against the data contract (`docs/contract.md`); here they are checked
again, also together with the window. A shard that fails is quarantined, and the next `dvc repro` plays it again.
"""

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zero.config.params import Params
from zero.data.histograms import GameHistograms
from zero.data.quarantine import quarantine_games
from zero.data.records import GameColumns, read_records, read_summaries
from zero.data.validation import (
    SAMPLED_POSITIONS,
    Opening,
    by_shard,
    format_violations,
    moves_of,
    openings_of,
    shard_violations,
    stream_violations,
)
from zero.data.window import shard_mismatch
from zero.errors import ParamsError, StorageError
from zero.games.rules import rules_of
from zero.stages.inputs import Inputs
from zero.storage.files import checked_bytes, checked_path, link_or_copy, write_atomic, write_manifest
from zero.storage.layout import (
    GAME_LENGTHS,
    GAME_VALUES,
    GAMES_DIR,
    OLD_WINDOW_DIR,
    QUARANTINE_DIR,
    REPLAY_METRICS,
    WINDOW_DIR,
)
from zero.storage.manifests import (
    MANIFEST_FILE,
    NO_RESIGNATION,
    RESIGNATION,
    ExpectedProperties,
    GameSet,
    GenerationId,
    Manifest,
    ShardRef,
    Window,
    WindowShard,
)
from zero.storage.store import Store

STAGE = "replay"
LATE_FRACTION = 0.75
"""Fraction of a game after which its moves count as late: by then a player should know the winner."""

log = logging.getLogger(__name__)


class GameStatistics(Manifest):
    """Statistics of the new games."""

    num_games: int
    """New games; all of them fulfil the data contract."""
    num_positions: int
    resigned_games: int
    unique_games: int
    """Different sequences of moves among the new games."""
    known_games: int
    """New games with the same moves as a game of the old window."""
    target_positions: int
    """Positions that are policy targets."""
    plane_positions: int
    """Positions whose input planes were checked."""
    value_agreement: float
    """Fraction of the positions of decided games whose root value has the sign of the outcome."""
    late_value_agreement: float
    """The same for the last quarter of each game that was played out."""


NO_GAMES = GameStatistics(**dict.fromkeys(GameStatistics.model_fields, 0))
"""Of a generation without self-play."""


class ReplayMetrics(GameStatistics):
    """`metrics/replay.json`: statistics of the new games and the size of the window."""

    window_games: int
    window_positions: int
    window_shards: int


class RejectedShard(NamedTuple):
    """A shard that is not admitted to the window."""

    ref: ShardRef
    reason: str
    is_file_corrupt: bool  # only this copy of the file; the store's copy has a digest of its own and is kept


def run(inputs: Inputs, store: Store) -> Window:
    """Makes `data/window` of a workspace from `data/games` and `state/replay`.

    Raises:
      ParamsError: the parameters leave no games to learn from.
      StorageError: a file is missing or corrupt, or games contradict their manifest or the data contract. The shards
        concerned have been quarantined in the workspace and in `store`.
    """
    folder, params, generation = inputs.folder, inputs.params, inputs.generation
    games, old = inputs.game_set("selfplay"), inputs.old_window
    _check_generations(generation, games, old)

    old_files = {entry.shard.file.path: checked_path(entry.shard.file, folder / OLD_WINDOW_DIR) for entry in old.shards}
    histograms = GameHistograms(rules_of(params.game).max_moves)
    statistics = check_games(inputs, games, store, histograms)
    new_files = {window_name(ref): folder / GAMES_DIR / ref.file.path for ref in games.shards}
    new = tuple(new_entry(ref) for ref in games.shards)
    num_games = window_size(params, generation.number, old.shards)
    shards = last_games((*old.shards, *new), num_games)
    if not shards:
        raise ParamsError(
            "selfplay.num_games = 0, but the window has no games: a dataset enters only a new lineage; raise "
            "selfplay.num_games, or start a lineage with `zero new`"
        )
    window = _write_window(inputs, shards, old_files | new_files)

    metrics = ReplayMetrics(
        **statistics.model_dump(),
        window_games=window.num_games,
        window_positions=window.num_positions,
        window_shards=len(window.shards),
    )
    write_atomic(folder / GAME_LENGTHS, histograms.lengths_text().encode())
    write_atomic(folder / GAME_VALUES, histograms.values_text().encode())
    write_manifest(folder, metrics, REPLAY_METRICS)
    log.info(
        "generation %d: window of %d games, %d positions", generation.number, window.num_games, window.num_positions
    )
    return window


def window_size(params: Params, number: int, old: Sequence[WindowShard]) -> int:
    """Number of games that fit into the window of generation `number`; `old` is the window of the one before."""
    num_games, replay = params.selfplay.num_games, params.replay
    # Counted, because earlier generations may have played another number of games.
    if replay.window_fraction == 1.0 or (num_games == 0 and number > 1):
        return min(replay.window_games, num_games + sum(entry.num_games for entry in old))
    return size_by_fraction(params, number, old)


def size_by_fraction(params: Params, number: int, old: Sequence[WindowShard]) -> int:
    """Size of the window by `window_fraction`: that share of all games, at least the games of this generation.

    All games are the imported ones that the old window still holds, and for each generation as many as this one plays.

    In generations that were recorded before 2026-11-27 it is the size for a fraction of 1 too.
    """
    num_games, replay = params.selfplay.num_games, params.replay
    # Self-play begins with generation 1.
    imported = sum(entry.num_games for entry in old if entry.shard.generation == 0)
    all_games = num_games * number + imported
    return min(replay.window_games, max(num_games, math.ceil(replay.window_fraction * all_games)))


def last_games(shards: tuple[WindowShard, ...], window_games: int) -> tuple[WindowShard, ...]:
    """The shards, oldest first, with the last `window_games` games; the oldest shard may be in use only partly."""
    kept: list[WindowShard] = []
    room = window_games
    for entry in reversed(shards):  # from the newest game backwards, until the window is full
        if room == 0:
            break
        taken = min(room, entry.num_games)
        kept.append(WindowShard(shard=entry.shard, skip_games=entry.shard.num_games - taken))
        room -= taken
    return tuple(reversed(kept))


def window_name(ref: ShardRef) -> str:
    """File name of a new shard in the window, which is unique across generations."""
    return f"gen-{ref.generation:04d}-{Path(ref.file.path).name}"


def new_entry(ref: ShardRef) -> WindowShard:
    """A new shard as an entry of the window, with its file name there."""
    file = ref.file.model_copy(update={"path": window_name(ref)})
    return WindowShard(shard=ref.model_copy(update={"file": file}), skip_games=0)


def check_games(inputs: Inputs, games: GameSet, store: Store, histograms: GameHistograms) -> GameStatistics:
    """Checks the new games against their manifest, the data contract and the old window; adds them to `histograms`.

    The files of the old window must have been checked against their digests. In memory are one shard at a time, and the
    actions of all games.

    Raises:
      StorageError: names the first shard that fails; all that fail have been quarantined.
    """
    folder, params, generation = inputs.folder, inputs.params, inputs.generation
    if not (params.selfplay.num_games or games.shards):
        return NO_GAMES
    if not games.num_positions or not games.shards:
        raise StorageError(f"{folder / GAMES_DIR} holds no games; run `dvc repro` in the lineage's workspace")
    player = games.origin.inputs.get("champion")  # the weights that played, see `zero.stages.selfplay.run`
    if player is None:
        raise StorageError(
            f"{folder / GAMES_DIR / MANIFEST_FILE} does not name its player; restore it with `dvc checkout --force`"
        )
    rejected: list[RejectedShard] = []
    openings: list[Opening] = []
    agreement = np.zeros(4, np.int64)
    num_targets = num_planes = num_resigned = 0
    for ref in games.shards:  # all of them before the error, so that one run quarantines every bad shard
        expected = selfplay_expected(params, generation, player, ref)
        checked = _check_shard(folder / GAMES_DIR, params, expected, ref)
        if isinstance(checked, RejectedShard):
            rejected.append(checked)
            continue
        openings += openings_of(checked, generation.number)
        agreement += value_agreement(checked)
        histograms.add(checked)
        num_targets += int(np.count_nonzero(np.diff(checked.visit_offsets)))
        num_planes += min(SAMPLED_POSITIONS, checked.num_positions)  # as many as the contract checks
        num_resigned += checked.end.count(RESIGNATION)
    known: list[Opening] = []
    for entry in inputs.old_window.shards:
        path = folder / OLD_WINDOW_DIR / entry.shard.file.path
        # Without visit counts, which take most of the time and memory of a window.
        known += openings_of(read_summaries(path.read_bytes(), str(path)), entry.shard.generation)
    # `expected` of the last shard: what this clause reads of it is the same for all shards.
    rejected += _repeated_shards(games, openings, known, expected)
    if rejected:
        _quarantine(folder, rejected, store)
    _check_totals(games, folder / GAMES_DIR)
    known_moves = {opening.moves for opening in known}
    decided, agreeing, late_decided, late_agreeing = (int(count) for count in agreement)
    return GameStatistics(
        num_games=games.num_games,
        num_positions=games.num_positions,
        resigned_games=num_resigned,
        unique_games=len({opening.moves for opening in openings}),
        known_games=sum(opening.moves in known_moves for opening in openings),
        target_positions=num_targets,
        plane_positions=num_planes,
        value_agreement=agreeing / max(1, decided),
        late_value_agreement=late_agreeing / max(1, late_decided),
    )


def selfplay_expected(params: Params, generation: GenerationId, player: str, ref: ShardRef) -> ExpectedProperties:
    """Expected properties of a self-play shard's games, from the parameters that the shard was planned with.

    `player`: SHA-256 of the weights that played.
    """
    play = params.selfplay.play
    return ExpectedProperties(
        kind="selfplay",
        weights=(player,),
        seed=params.seed,
        generation=generation.number,
        first_game=ref.first_game,
        num_games=ref.num_games,
        search=params.search,
        play=play,
        # as in `plan_shards`
        resign_threshold=generation.resign_threshold if play.calibration_fraction else NO_RESIGNATION,
    )


def value_agreement(games: GameColumns) -> np.ndarray:
    """Counts how often root values have the sign of the outcome.

    Returns:
      [4] int64: the positions of decided games, those of them whose value has the sign; the same of the late moves.
    """
    moves = moves_of(games)
    result = games.outcome[moves.game] * moves.mover
    decided = result != 0
    agreeing = decided & (np.sign(games.root_values) == result)
    played_out = np.array([end != RESIGNATION for end in games.end], np.bool_)[moves.game]
    late = decided & played_out & (moves.move >= LATE_FRACTION * np.diff(games.move_offsets)[moves.game])
    return np.array([np.count_nonzero(mask) for mask in (decided, agreeing, late, late & agreeing)], np.int64)


def _check_shard(
    games_dir: Path, params: Params, expected: ExpectedProperties, ref: ShardRef
) -> GameColumns | RejectedShard:
    rules = rules_of(params.game)
    path = games_dir / ref.file.path
    try:
        columns = read_records(checked_bytes(ref.file, games_dir), str(path))
    except StorageError as error:
        # Without the remedy after the semicolon, which would not help: quarantine moves the file.
        return RejectedShard(ref, str(error).partition("; ")[0], is_file_corrupt=True)
    if mismatch := shard_mismatch(columns, ref, rules):
        return RejectedShard(ref, f"{path}: {mismatch}", is_file_corrupt=True)
    if violations := shard_violations(columns, rules, expected):
        return RejectedShard(ref, format_violations(str(path), violations), is_file_corrupt=False)
    return columns


def _repeated_shards(
    games: GameSet, openings: list[Opening], known: list[Opening], expected: ExpectedProperties
) -> list[RejectedShard]:
    """The new shards with games from the random stream of another game."""
    found = by_shard(stream_violations(openings, known, expected), games.shards)
    return [
        RejectedShard(ref, format_violations(f"{GAMES_DIR}/{ref.file.path}", found[index]), is_file_corrupt=False)
        for index, ref in enumerate(games.shards)
        if index in found
    ]


def _quarantine(folder: Path, rejected: list[RejectedShard], store: Store) -> None:
    """Quarantines shards and reports why.

    Raises:
      StorageError: always.
    """
    for shard in rejected:
        quarantine_games(folder, GAMES_DIR, shard.ref, shard.reason, None if shard.is_file_corrupt else store)
    reason = " ".join(line.strip() for line in rejected[0].reason.splitlines()[:2])
    more = f" (and {len(rejected) - 1} more)" if len(rejected) > 1 else ""
    raise StorageError(f"{reason}{more}; quarantined in {folder / QUARANTINE_DIR}, run `dvc repro` to play it again")


def _check_totals(games: GameSet, games_dir: Path) -> None:
    for name in ("num_games", "num_positions"):
        declared, found = getattr(games, name), sum(getattr(ref, name) for ref in games.shards)
        if declared != found:
            raise StorageError(
                f"{games_dir / MANIFEST_FILE} declares {name} {declared}, but its shards have {found}; "
                "restore it with `dvc checkout --force`"
            )


def _check_generations(generation: GenerationId, games: GameSet, old: Window) -> None:
    """Checks that the new games are of this generation, and the old window of an earlier one of the same lineage."""
    made = (games.origin.lineage, games.origin.generation)
    if made != (generation.lineage, generation.number):
        raise StorageError(
            f"{GAMES_DIR} is of {made[0]} generation {made[1]}, but the workspace makes {generation.lineage} "
            f"generation {generation.number}; run `dvc repro`"
        )
    too_new = [entry.shard.generation for entry in old.shards if entry.shard.generation >= generation.number]
    if old.origin.lineage != generation.lineage or too_new:
        raise StorageError(
            f"{OLD_WINDOW_DIR} is of {old.origin.lineage} generation {max(too_new, default=old.origin.generation)}, "
            f"but the workspace makes {generation.lineage} generation {generation.number}; "
            "restore it with `dvc checkout --force`"
        )


def _write_window(inputs: Inputs, shards: tuple[WindowShard, ...], sources: Mapping[str, Path]) -> Window:
    """Writes `data/window` of a workspace; `sources` maps the file names of the window to the files to link."""
    window_dir = inputs.folder / WINDOW_DIR
    skipped = _skipped_positions(shards[0], sources[shards[0].shard.file.path])
    # After all checks: a failed stage leaves the previous window. The manifest comes last and makes the window valid.
    shutil.rmtree(window_dir, ignore_errors=True)
    for entry in shards:
        link_or_copy(sources[entry.shard.file.path], window_dir / entry.shard.file.path)
    window = Window(
        origin=inputs.origin(STAGE, inputs.manifest_digests(GAMES_DIR, OLD_WINDOW_DIR)),
        shards=shards,
        num_games=sum(entry.num_games for entry in shards),
        num_positions=sum(entry.shard.num_positions for entry in shards) - skipped,
    )
    write_manifest(window_dir, window)
    return window


def _skipped_positions(entry: WindowShard, path: Path) -> int:
    """Number of positions in the games of a shard that are too old for the window."""
    if not entry.skip_games:
        return 0
    return int(read_summaries(path.read_bytes(), str(path)).move_offsets[entry.skip_games])
