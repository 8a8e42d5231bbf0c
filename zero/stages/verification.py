"""Stage 5, verification: double play. Some shards are played a second time, by another process, and compared.

Reads `data/games`, `data/match` and what they were played by; writes `metrics/verification.json`. Which shards is drawn
from the lineage's seed and the generation, so nobody can know it while a shard is played without computing it. A shard
is played in lock-step until a share of its games has ended: those are bit for bit what the whole shard has, and cost a
small part of it. A difference is an error, so that nothing is recorded; the shard is quarantined and played again.
"""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from zero.config.params import Params, VerificationParams, load_params
from zero.data.quarantine import quarantine_games
from zero.data.records import GameColumns, game_record, read_records
from zero.errors import LineageError, MismatchError, StorageError
from zero.search.streams import next_below, stream_of
from zero.shards.executor import LocalExecutor, Progress, num_local_processes, play_all
from zero.shards.expected import size_limits
from zero.shards.spec import PartialShard, ShardSpec
from zero.stages import gating, selfplay
from zero.storage.files import checked_path, read_manifest, write_manifest
from zero.storage.layout import GAMES_DIR, MATCH_DIR, QUARANTINE_DIR, VERIFICATION_METRICS
from zero.storage.manifests import GameSet, Manifest, ShardRef
from zero.storage.store import Store

STAGE = "verification"
COMPARED_FIELDS = (
    *("black", "white", "never_resigns", "actions", "root_values", "best_values", "visit_counts"),
    *("end", "outcome", "margin", "ownership"),
)
"""Fields of a game in the order in which a difference is told: what came first in play first."""
OF_MOVES = ("actions", "root_values", "best_values", "visit_counts")

log = logging.getLogger(__name__)


class VerifiedGames(Manifest):
    """What was played twice of one stage, with equal bits."""

    shards: tuple[int, ...]
    """Numbers of the shards that were drawn."""
    num_shards: int
    num_games: int
    """Games that were compared."""
    num_positions: int


class VerificationMetrics(Manifest):
    """`metrics/verification.json`."""

    selfplay: VerifiedGames
    gating: VerifiedGames


class Drawn(NamedTuple):
    """A shard to be played twice."""

    stage: Literal["selfplay", "gating"]
    number: int  # of the shard in the stage
    spec: ShardSpec
    ref: ShardRef


class Difference(NamedTuple):
    """Where two plays of a game part."""

    game: int  # number in its generation
    move: int  # from 0; the game's length where it is not of a move
    field: str
    recorded: str
    again: str

    def __str__(self) -> str:
        return (
            f"game {self.game}, move {self.move}: {self.field} is {self.recorded} as recorded and {self.again} when "
            "played again"
        )


def run(folder: Path, store: Store, progress: Progress | None = None) -> VerificationMetrics:
    """Runs the stage in a lineage's workspace.

    Raises:
      MismatchError: a shard came out differently; it is quarantined in the workspace and in `store`.
      LineageError: this machine cannot play what was recorded.
    """
    params = load_params(folder)
    drawn = [
        *_draw(folder, params, "selfplay", selfplay.plan(folder, store)),
        *_draw(folder, params, "gating", gating.plan(folder, store)),
    ]
    with tempfile.TemporaryDirectory(prefix="zero-verification-") as scratch:
        second = Store(scratch)
        for digest in {digest for each in drawn for digest in each.spec.weights}:
            second.put_weights(store.get_weights(digest))
        _play(folder, params, drawn, second, progress)
        compared = [_compare(folder, each, store, second) for each in drawn]
    metrics = VerificationMetrics(
        selfplay=_counted("selfplay", drawn, compared), gating=_counted("gating", drawn, compared)
    )
    write_manifest(folder, metrics, VERIFICATION_METRICS)
    return metrics


def draw_shards(params: VerificationParams, num_shards: int, stream: np.ndarray) -> list[int]:
    """Indices of the shards to be played twice, sorted: the share of them rounded, at least one unless it is 0."""
    if params.shard_fraction == 0.0:
        return []
    number = min(num_shards, max(1, int(params.shard_fraction * num_shards + 0.5)))
    left = list(range(num_shards))
    return sorted(left.pop(next_below(stream, len(left))) for _ in range(number))


def games_to_end(params: VerificationParams, num_games: int) -> int:
    """Games of a shard that must have ended before its second play stops."""
    return min(num_games, max(1, int(params.game_fraction * num_games + 0.5)))


def first_difference(recorded: GameColumns, again: GameColumns) -> Difference | None:
    """Where the games of `again`, some of those of `recorded`, are not the same bits; None where they are."""
    places = {int(number): index for index, number in enumerate(recorded.game)}
    for index, number in enumerate(again.game):
        if int(number) not in places:
            return Difference(int(number), 0, "game", "not there", "there")
        mine, theirs = game_record(recorded, places[int(number)]), game_record(again, index)
        found = [
            (move, COMPARED_FIELDS.index(field), field, said, is_so)
            for field in COMPARED_FIELDS
            for move, said, is_so in _parting(field, getattr(mine, field), getattr(theirs, field), len(mine.actions))
        ]
        if found:
            move, _, field, said, is_so = min(found, key=lambda difference: difference[:2])
            return Difference(int(number), move, field, said, is_so)
    return None


def _draw(
    folder: Path, params: Params, stage: Literal["selfplay", "gating"], specs: Sequence[ShardSpec]
) -> list[Drawn]:
    """The shards of a stage that are drawn, each with its recorded file.

    Raises:
      LineageError: they were not played to the specification that this machine makes.
    """
    refs = read_manifest(folder / _games_dir(stage), GameSet).shards
    stream = stream_of(params.seed, specs[0].generation, STAGE, 0 if stage == "selfplay" else 1)
    drawn = []
    for index in draw_shards(params.verification, len(specs), stream):
        if index >= len(refs) or refs[index].key != specs[index].key():
            raise LineageError(
                f"{_games_dir(stage)} was played by other code, parameters or hardware than this workspace has; play "
                f"it again with `dvc repro -f {stage}`, or verify it on a machine of the same execution profile"
            )
        drawn.append(Drawn(stage, index, specs[index], refs[index]))
    return drawn


def _play(folder: Path, params: Params, drawn: Sequence[Drawn], store: Store, progress: Progress | None) -> None:
    """Plays the beginnings of the shards into a store of their own, as many at once as there are processes."""
    partial = [
        PartialShard(**each.spec.model_dump(), stop_after=games_to_end(params.verification, each.spec.num_games))
        for each in drawn
    ]
    if not partial:
        return
    num_processes = min(num_local_processes(params), len(partial))
    num_gpus = num_processes if params.profile.device == "cuda" else 0
    total = sum(each.stop_after for each in partial)

    def report(done: int, _: int) -> None:
        if progress:
            progress(min(done, total), total)  # a few games more may end at once

    with LocalExecutor(folder, num_processes, store.url, num_gpus) as executor:
        play_all(executor, partial, num_processes, report)


def _compare(folder: Path, drawn: Drawn, store: Store, second: Store) -> GameColumns:
    """The games of the second play, equal to those recorded.

    Raises:
      MismatchError: they are not; the recorded shard is quarantined.
    """
    games_dir = _games_dir(drawn.stage)
    path = checked_path(drawn.ref.file, folder / games_dir)
    stored = second.get_shard(drawn.spec.key())
    if stored is None:
        raise StorageError(f"the second play of {path} is gone from {second.url}; run `dvc repro` again")
    again = read_records(stored.data, "the second play", size_limits(drawn.spec))
    if difference := first_difference(read_records(path.read_bytes(), str(path)), again):
        reason = f"{games_dir}/{path.name}, played twice, gave two results: {difference}"
        quarantine_games(folder, games_dir, drawn.ref, reason, store)
        raise MismatchError(
            f"{reason}; nothing is recorded. It is quarantined in {folder / QUARANTINE_DIR}: run `dvc repro` to play "
            "it again, and if that ends here too, distrust this machine, its workers or their drivers"
        )
    log.info("%s/%s: %d games played twice with equal bits", games_dir, path.name, again.num_games)
    return again


def _parting(field: str, mine: object, theirs: object, num_moves: int) -> list[tuple[int, str, str]]:
    """The first move at which a field of a game differs, with both values; empty where it does not."""
    if field not in OF_MOVES:
        same = np.array_equal(np.asarray(mine), np.asarray(theirs))
        return [] if same else [(0 if field in COMPARED_FIELDS[:3] else num_moves, _shown(mine), _shown(theirs))]
    one, other = np.asarray(mine), np.asarray(theirs)
    for move in range(min(len(one), len(other))):
        if one[move].tobytes() != other[move].tobytes():
            return [(move, _shown(one[move]), _shown(other[move]))]
    if len(one) != len(other):
        return [(min(len(one), len(other)), f"that of {len(one)} moves", f"that of {len(other)} moves")]
    return []


def _shown(value: object) -> str:
    """A value in few words."""
    array = np.asarray(value)
    if array.ndim:
        used = np.flatnonzero(array)
        return "{" + ", ".join(f"{i}: {array[i]}" for i in used[:8]) + (", ..." if len(used) > 8 else "") + "}"
    return repr(array.item()) if array.dtype.kind != "U" else str(value)[:12]


def _counted(stage: str, drawn: Sequence[Drawn], compared: Sequence[GameColumns]) -> VerifiedGames:
    games = [columns for each, columns in zip(drawn, compared, strict=True) if each.stage == stage]
    return VerifiedGames(
        shards=tuple(each.number for each in drawn if each.stage == stage),
        num_shards=len(games),
        num_games=sum(columns.num_games for columns in games),
        num_positions=sum(columns.num_positions for columns in games),
    )


def _games_dir(stage: Literal["selfplay", "gating"]) -> str:
    return GAMES_DIR if stage == "selfplay" else MATCH_DIR
