"""Collects the shards of a stage in a folder: plays those that the store lacks, then checks and copies all of them.

A shard that breaks the data contract is quarantined in the store with its reason, and played again.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zero.data.records import GameColumns, Limits, concatenate, read_records
from zero.data.validation import (
    NO_MOVE,
    Violation,
    by_shard,
    format_violations,
    openings_of,
    shard_violations,
    stream_violations,
)
from zero.errors import StorageError
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.stages.executor import Progress, play_all
from zero.stages.inputs import Inputs
from zero.stages.spec import ShardSpec
from zero.storage.files import write_atomic, write_manifest
from zero.storage.manifests import FileRef, GameSet, Origin, ShardRef
from zero.storage.store import Store, StoredShard

MAX_ROUNDS = 3
"""How often a shard is played, if it is corrupt in the store or breaks the data contract each time."""

log = logging.getLogger(__name__)


class Collected(NamedTuple):
    """Games that fulfil the data contract."""

    game_set: GameSet
    games: GameColumns


class CheckedShard(NamedTuple):
    """A shard from the store without violations."""

    stored: StoredShard
    games: GameColumns


def missing_shards(specs: Sequence[ShardSpec], store: Store) -> list[ShardSpec]:
    """The specifications whose shard is missing or corrupt in the store."""
    # Each shard is read and not only listed, so that a corrupt one is quarantined now and played again.
    return [spec for spec in specs if store.get_shard(spec.key()) is None]


def fill_store(inputs: Inputs, specs: Sequence[ShardSpec], store: Store, progress: Progress | None) -> None:
    """Plays the shards that the store lacks with the local executor, using the code of the workspace."""
    missing = missing_shards(specs, store)
    num_games = sum(spec.num_games for spec in specs)
    played_before = num_games - sum(spec.num_games for spec in missing)

    def report(done: int, _: int) -> None:
        if progress:
            progress(played_before + done, num_games)

    if progress:
        progress(played_before, num_games)
    play_all(inputs.folder, inputs.params, missing, store.url, report)


def collect_games(
    inputs: Inputs,
    specs: Sequence[ShardSpec],
    store: Store,
    origin: Origin,
    target: Path,
    progress: Progress | None,
) -> Collected:
    """Writes the shards of `specs` and their manifest to `target`; plays those that the store lacks.

    Raises:
      StorageError: the store loses shards repeatedly, or a shard breaks the data contract each time it is played.
    """
    checked: dict[int, CheckedShard] = {}
    reason = ""
    for _ in range(MAX_ROUNDS):
        fill_store(inputs, specs, store, progress)
        bad = {}
        for index, spec in enumerate(specs):
            if index not in checked:
                shard = take_shard(spec, store)
                if isinstance(shard, CheckedShard):
                    checked[index] = shard
                elif shard:
                    bad[index] = shard
        if not bad and len(checked) == len(specs):  # joint clauses need all shards without violations
            bad = joint_violations(specs, [checked[index].games for index in range(len(specs))])
        for index, violations in bad.items():
            reason = _quarantine(specs[index], violations, store)
            checked.pop(index, None)
        if len(checked) == len(specs):
            break
    else:
        if reason:
            raise StorageError(
                f"{reason}; played and quarantined {MAX_ROUNDS} times (see quarantine/ in {store.url}); "
                "check this machine's memory, and its kernels with `python -m pytest tests/games tests/play`"
            )
        raise StorageError(
            f"the store {store.url} lost shards {MAX_ROUNDS} times; check its disk, or set ZERO_STORE to another store"
        )
    return _write([checked[index] for index in range(len(specs))], specs, origin, target)


def take_shard(spec: ShardSpec, store: Store) -> CheckedShard | list[Violation]:
    """A shard from the store, or its violations; an empty list if the store lacks it.

    Raises:
      StorageError: the store does not answer.
    """
    stored = store.get_shard(spec.key())
    if stored is None:
        return []
    rules = rules_of(spec.game)
    try:
        # With limits: a worker's bytes are not trusted before they are checked.
        games = read_records(stored.data, f"shard {spec.key()[:12]}", size_limits(rules, spec.num_games))
    except StorageError as error:
        return [Violation("file", spec.first_game, NO_MOVE, str(error))]
    violations = shard_violations(games, rules, spec)
    return violations or CheckedShard(stored, games)


def size_limits(rules: Rules, num_games: int) -> Limits:
    """The largest size of a shard: all games have maximal length, and every move has a target for every action."""
    num_moves = num_games * (rules.max_moves + 1)
    return Limits(num_games, num_moves, num_moves * rules.num_actions)


def joint_violations(specs: Sequence[ShardSpec], parts: Sequence[GameColumns]) -> dict[int, list[Violation]]:
    """Violations by games of several shards of a stage, by the index of the shard to play again."""
    spec = specs[0]
    openings = [opening for part in parts for opening in openings_of(part, spec.generation)]
    return by_shard(stream_violations(openings, [], spec), specs)


def _quarantine(spec: ShardSpec, violations: Sequence[Violation], store: Store) -> str:
    """Quarantines a shard, and returns the reason in one line."""
    name = spec.name
    store.quarantine_shard(spec.key(), format_violations(f"shard {spec.key()} ({name})", violations))
    line = f"the shard of {name} breaks the data contract: {violations[0]}"
    log.warning("generation %d: %s; quarantined, to be played again", spec.generation, line)
    return line


def _write(shards: Sequence[CheckedShard], specs: Sequence[ShardSpec], origin: Origin, target: Path) -> Collected:
    refs = []
    # Only now: while shards are missing or bad, the folder keeps what DVC has recorded.
    shutil.rmtree(target, ignore_errors=True)
    for index, (spec, shard) in enumerate(zip(specs, shards, strict=True)):
        name = f"shard-{index:04d}.parquet"
        data = shard.stored.data
        write_atomic(target / name, data)
        refs.append(
            ShardRef(
                file=FileRef(path=name, sha256=shard.stored.sha256, num_bytes=len(data)),
                key=spec.key(),
                generation=spec.generation,
                first_game=spec.first_game,
                num_games=shard.games.num_games,
                num_positions=shard.games.num_positions,
            )
        )
    games = concatenate(shard.games for shard in shards)
    game_set = GameSet(origin=origin, shards=tuple(refs), num_games=games.num_games, num_positions=games.num_positions)
    write_manifest(target, game_set)
    return Collected(game_set, games)
