"""From specs to a folder of shards: what the store lacks is played, what it has is copied out and checked."""

from collections.abc import Sequence
from pathlib import Path

from zero.artifacts import FileRef, GameSet, Origin, ShardRef, sha256_bytes, write_manifest, write_whole
from zero.errors import StorageError
from zero.params import Params
from zero.shards.executor import LocalExecutor, Progress, num_local_processes, play_all
from zero.shards.records import GameColumns, concatenate, read_records
from zero.shards.spec import ShardSpec
from zero.storage import Store

MAX_ROUNDS = 3
"""Times that shards which turn out altered in the store are played again."""


def missing_shards(specs: Sequence[ShardSpec], store: Store) -> list[ShardSpec]:
    """The specs whose shard is not in the store, or was altered there."""
    return [spec for spec in specs if store.get_shard(spec.key()) is None]


def fill_store(
    folder: Path, params: Params, specs: Sequence[ShardSpec], store: Store, progress: Progress | None
) -> None:
    """Plays what the store lacks with the local executor, by the code of `folder`'s checkout."""
    missing = missing_shards(specs, store)
    num_games = sum(spec.num_games for spec in specs)
    played_before = num_games - sum(spec.num_games for spec in missing)

    def report(done: int, _: int) -> None:
        if progress:
            progress(played_before + done, num_games)

    if progress:
        progress(played_before, num_games)
    if not missing:
        return
    num_processes = min(num_local_processes(params), len(missing))
    num_gpus = num_processes if params.profile.device == "cuda" else 0
    with LocalExecutor(folder, num_processes, store.url, num_gpus) as executor:
        play_all(executor, missing, num_processes, report)


def collect_games(
    folder: Path,
    params: Params,
    specs: Sequence[ShardSpec],
    store: Store,
    origin: Origin,
    target: Path,
    progress: Progress | None,
) -> tuple[GameSet, GameColumns]:
    """Writes the shards of `specs` and their manifest to `target`, playing what the store lacks.

    Raises:
      StorageError: the store keeps losing shards.
    """
    for _ in range(MAX_ROUNDS):
        fill_store(folder, params, specs, store, progress)
        shards = [store.get_shard(spec.key()) for spec in specs]
        if all(shard is not None for shard in shards):
            break
    else:
        raise StorageError(
            f"the store {store.url} keeps losing shards; check its disk, or set ZERO_STORE to another place"
        )
    refs, columns = [], []
    for index, (spec, shard) in enumerate(zip(specs, shards, strict=True)):
        assert shard is not None
        name = f"shard-{index:04d}.parquet"
        write_whole(target / name, shard.data)
        games = read_records(shard.data, f"{target}/{name}")
        columns.append(games)
        refs.append(
            ShardRef(
                file=FileRef(path=name, sha256=sha256_bytes(shard.data), num_bytes=len(shard.data)),
                key=spec.key(),
                generation=spec.generation,
                first_game=spec.first_game,
                num_games=games.num_games,
                num_positions=games.num_positions,
            )
        )
    games = concatenate(columns)
    game_set = GameSet(origin=origin, shards=tuple(refs), num_games=games.num_games, num_positions=games.num_positions)
    write_manifest(target, game_set)
    return game_set, games
