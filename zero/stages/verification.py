"""Stage `verification`: re-executes a sample of the shards in another process and compares the games bit by bit.

Reads `data/games`, `data/match` and the networks that played them; writes `metrics/verification.json`. The sample is
drawn from the lineage's seed and the generation, so the same shards are checked whenever the stage is run. A shard is
played in lock-step until a fraction of its games has ended. Those games are bit for bit the same as in the complete
shard, and cost a small part of it. A difference is an error: the generation is not recorded, and the shard is
quarantined and played again.
"""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from zero.config.params import VerificationParams
from zero.data.quarantine import quarantine_games
from zero.data.records import GameColumns, game_record, read_records
from zero.errors import LineageError, MismatchError, StorageError
from zero.games.rules import rules_of
from zero.search.streams import next_below, stream_of
from zero.stages import gating, selfplay
from zero.stages.collect import size_limits
from zero.stages.executor import Progress, play_all
from zero.stages.inputs import Inputs
from zero.stages.spec import PartialSpec, ShardSpec
from zero.storage.files import checked_bytes, write_manifest
from zero.storage.layout import QUARANTINE_DIR, SHARD_DIRS, VERIFICATION_METRICS
from zero.storage.manifests import Manifest, ShardRef
from zero.storage.store import Store

STAGE = "verification"
HEADER_FIELDS = ("black", "white", "never_resigns")
MOVE_FIELDS = ("actions", "root_values", "best_values", "visit_counts", "sample_weights")
RESULT_FIELDS = ("end", "outcome", "margin", "ownership")
COMPARED_FIELDS = (*HEADER_FIELDS, *MOVE_FIELDS, *RESULT_FIELDS)
"""Compared fields of a game, in the order in which they arise in play: the earliest difference is reported."""

Kind = Literal["selfplay", "gating"]

log = logging.getLogger(__name__)


class VerifiedGames(Manifest):
    """Games of one stage that were re-executed with equal bits."""

    shards: tuple[int, ...]
    """Numbers of the sampled shards, from 0 in their stage."""
    num_shards: int
    num_games: int
    """Number of compared games."""
    num_positions: int


class VerificationMetrics(Manifest):
    """`metrics/verification.json`."""

    selfplay: VerifiedGames
    gating: VerifiedGames


class SampledShard(NamedTuple):
    """A recorded shard that is re-executed."""

    stage: Kind
    number: int  # from 0, in its stage
    spec: ShardSpec
    ref: ShardRef


class Difference(NamedTuple):
    """The first place at which the recorded and the re-executed play of a game differ."""

    game: int  # number in its generation
    move: int  # from 0; the length of the game for fields of the result
    field: str
    recorded: str
    reexecuted: str

    def __str__(self) -> str:
        return (
            f"game {self.game}, move {self.move}: {self.field} is {self.recorded} as recorded and {self.reexecuted} "
            "when re-executed"
        )


def run(inputs: Inputs, store: Store, progress: Progress | None = None) -> VerificationMetrics:
    """Re-executes sampled shards of a workspace's generation, and compares them with the recorded ones.

    Args:
      inputs: what the stages read of the workspace.
      store: its weights and shards. The re-execution uses a temporary store of its own, so that it finds no results.
      progress: called with the number of finished games and the number of games.

    Raises:
      MismatchError: a game differs; its shard has been quarantined.
      LineageError: this machine cannot re-execute the shards, because it would plan them differently.
    """
    sample = [
        *_sample(inputs, "selfplay", selfplay.plan(inputs, store)),
        *_sample(inputs, "gating", gating.plan(inputs, store)),
    ]
    with tempfile.TemporaryDirectory(prefix="zero-verification-") as scratch:
        second = Store(scratch)  # a worker would find the recorded shards in the real one, and not play
        for digest in {digest for shard in sample for digest in shard.spec.weights}:
            second.put_weights(store.get_weights(digest))  # planning has put them there
        _reexecute(inputs, sample, second, progress)
        compared = [_compare(inputs.folder, shard, store, second) for shard in sample]

    metrics = VerificationMetrics(
        selfplay=_verified("selfplay", sample, compared), gating=_verified("gating", sample, compared)
    )
    write_manifest(inputs.folder, metrics, VERIFICATION_METRICS)
    return metrics


def sample_shards(params: VerificationParams, num_shards: int, stream: np.ndarray) -> list[int]:
    """Sorted numbers of the shards to re-execute: `shard_fraction` of them, at least one unless that is 0."""
    if params.shard_fraction == 0.0:
        return []
    # Half up, here and below: `round` would round halves to the even number.
    number = min(num_shards, max(1, int(params.shard_fraction * num_shards + 0.5)))
    left = list(range(num_shards))
    return sorted(left.pop(next_below(stream, len(left))) for _ in range(number))


def games_to_finish(params: VerificationParams, num_games: int) -> int:
    """Number of games of a shard that must end before its re-execution stops: `game_fraction`, at least one."""
    return min(num_games, max(1, int(params.game_fraction * num_games + 0.5)))


def game_difference(recorded: GameColumns, reexecuted: GameColumns) -> Difference | None:
    """The first difference between re-executed games and the recorded games of the same numbers; None if equal."""
    index_of = {int(number): index for index, number in enumerate(recorded.game)}
    for index, number in enumerate(reexecuted.game):
        if int(number) not in index_of:
            return Difference(int(number), 0, "game", "missing", "present")
        one, other = game_record(recorded, index_of[int(number)]), game_record(reexecuted, index)
        differences = []
        for field in COMPARED_FIELDS:
            if found := _field_difference(field, getattr(one, field), getattr(other, field), len(one.actions)):
                move, *texts = found
                differences.append(Difference(int(number), move, field, *texts))
        if differences:
            return min(differences, key=lambda difference: difference.move)  # of equal moves the first field
    return None


def _sample(inputs: Inputs, stage: Kind, specs: Sequence[ShardSpec]) -> list[SampledShard]:
    """The sampled shards of a stage, each with its recorded file.

    Raises:
      LineageError: the recorded shards were played to other specifications than this machine plans.
    """
    if not specs:  # a generation without self-play
        return []
    params, refs = inputs.params, inputs.game_set(stage).shards
    # A stream per stage, so that the sample of one does not depend on the number of shards of the other.
    stream = stream_of(params.seed, specs[0].generation, STAGE, 0 if stage == "selfplay" else 1)
    sample = []
    for number in sample_shards(params.verification, len(specs), stream):
        if number >= len(refs) or refs[number].key != specs[number].key():
            raise LineageError(
                f"{SHARD_DIRS[stage]} was played by other code, parameters or hardware than this workspace has; play "
                f"it again with `dvc repro -f {stage}`, or verify it on a machine of the same execution profile"
            )
        sample.append(SampledShard(stage, number, specs[number], refs[number]))
    return sample


def _reexecute(inputs: Inputs, sample: Sequence[SampledShard], store: Store, progress: Progress | None) -> None:
    """Plays the shards into `store` until enough of their games have ended, several shards at a time."""
    params = inputs.params
    partial = [
        PartialSpec(**shard.spec.model_dump(), stop_after=games_to_finish(params.verification, shard.spec.num_games))
        for shard in sample
    ]
    total = sum(spec.stop_after for spec in partial)

    def report(done: int, _: int) -> None:
        if progress:
            progress(min(done, total), total)  # more games than needed may end in the last step

    play_all(inputs.folder, params, partial, store.url, report)


def _compare(folder: Path, shard: SampledShard, store: Store, second: Store) -> GameColumns:
    """The re-executed games of a shard, which equal the recorded ones.

    Raises:
      MismatchError: they differ; the recorded shard has been quarantined.
    """
    games_dir = SHARD_DIRS[shard.stage]
    path = folder / games_dir / shard.ref.file.path
    recorded = read_records(checked_bytes(shard.ref.file, folder / games_dir), str(path))
    stored = second.get_shard(shard.spec.key())
    if stored is None:
        raise StorageError(f"the re-executed shard of {path} is missing from {second.url}; run `dvc repro` again")
    limits = size_limits(rules_of(shard.spec.game), shard.spec.num_games)
    reexecuted = read_records(stored.data, "the re-executed shard", limits)
    if difference := game_difference(recorded, reexecuted):
        reason = f"{games_dir}/{path.name} differs from its re-execution: {difference}"
        quarantine_games(folder, games_dir, shard.ref, reason, store)
        raise MismatchError(
            f"{reason}; nothing is recorded. It is quarantined in {folder / QUARANTINE_DIR}: run `dvc repro` to play "
            "it again. If that fails too, check this machine, the workers and their drivers"
        )
    log.info("%s/%s: %d games re-executed with equal bits", games_dir, path.name, reexecuted.num_games)
    return reexecuted


def _field_difference(field: str, recorded: object, reexecuted: object, num_moves: int) -> tuple[int, str, str] | None:
    """The first move at which a field of a game differs, with both values as text; None if they are equal."""
    one, other = np.asarray(recorded), np.asarray(reexecuted)
    if field not in MOVE_FIELDS:
        move = 0 if field in HEADER_FIELDS else num_moves
        return None if np.array_equal(one, other) else (move, _value_text(one), _value_text(other))
    for move in range(min(len(one), len(other))):
        if one[move].tobytes() != other[move].tobytes():  # as bytes, so that NaN and the sign of zero count
            return move, _value_text(one[move]), _value_text(other[move])
    if len(one) != len(other):
        return min(len(one), len(other)), f"of {len(one)} moves", f"of {len(other)} moves"
    return None


def _value_text(value: np.ndarray) -> str:
    """A short text of a value: digests are cut, and of an array only the first entries that are not 0 are shown."""
    if value.ndim:
        used = np.flatnonzero(value)
        return "{" + ", ".join(f"{i}: {value[i]}" for i in used[:8]) + (", ..." if len(used) > 8 else "") + "}"
    return str(value)[:12] if value.dtype.kind == "U" else repr(value.item())


def _verified(stage: Kind, sample: Sequence[SampledShard], compared: Sequence[GameColumns]) -> VerifiedGames:
    games = [columns for shard, columns in zip(sample, compared, strict=True) if shard.stage == stage]
    return VerifiedGames(
        shards=tuple(shard.number for shard in sample if shard.stage == stage),
        num_shards=len(games),
        num_games=sum(columns.num_games for columns in games),
        num_positions=sum(columns.num_positions for columns in games),
    )
