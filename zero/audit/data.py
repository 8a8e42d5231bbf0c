"""Checks of the data: every object in DVC's cache against its MD5 and its manifest, and the manifests themselves."""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

import numpy as np

from zero.audit.findings import Mark, Mismatch, differs, restored
from zero.config.params import Params
from zero.data.records import GameColumns, read_records
from zero.errors import StorageError
from zero.record.generation import MANIFESTS, PULL, Generation, read_model
from zero.record.objects import Out
from zero.record.provenance import DATASET
from zero.stages.replay import last_games, new_entry, size_by_fraction, window_size
from zero.storage.files import sha256_bytes
from zero.storage.layout import GAMES_DIR, MATCH_DIR, OLD_WINDOW_DIR, STATE_DIRS, TRAINEE_DIR, WINDOW_DIR
from zero.storage.manifests import MANIFEST_FILE, FileRef, GameSet, ShardRef, WindowShard

RESTORE_OBJECT = "copy the object from a backup, or delete it and run `dvc repro` in a folder of `zero checkout {tag}`"
RESTORE_INPUT = "copy the object from a backup, or delete it and run `dvc pull` in a folder of `zero checkout {tag}`"
"""For the state and a dataset, which no stage makes."""
DIR = ".dir"
UNREADABLE = "none that can be read"


def check_data(generation: Generation) -> Iterator[Mismatch]:
    """Every object that dvc.lock and the state name is stored, with that MD5 and the SHA-256 in its manifest."""
    for path in STATE_DIRS if generation.commit else ():
        if path not in generation.state_outs:
            remedy = restored(generation.tag, "state")
            wanted = f"{PurePosixPath(path).name} alone, with its MD5"
            yield Mismatch(f"{path}.dvc", "outputs", "others, or none that can be read", wanted, remedy)
    for out in (*generation.outs.values(), *generation.state_outs.values()):
        if out.cached:
            yield from _check_out(generation, out)
    if generation.entry is not None and generation.entry.kind == "start":
        yield from _check_dataset(generation)


def _check_dataset(generation: Generation) -> Iterator[Mismatch]:
    """The dataset with which a lineage starts is stored, and its manifest is the one in the record."""
    out, window = generation.dataset_out, generation.old_window
    expected = window.origin.inputs.get(DATASET) if window else None
    if out is not None:
        yield from _check_out(generation, out)
        content = generation.data(out.path, MANIFEST_FILE)
        if content is not None:
            remedy = RESTORE_OBJECT.format(tag=generation.tag)
            where = f"{out.path}/{MANIFEST_FILE}"
            yield from differs(where, "SHA-256 against the first window", sha256_bytes(content), expected, remedy)
    elif expected is not None:
        remedy = restored(generation.tag, ".")
        yield Mismatch("the file of DVC of the dataset", "dataset", "none that can be read", expected, remedy)


def _check_out(generation: Generation, out: Out) -> Iterator[Mismatch]:
    cache = generation.cache
    remedy = (RESTORE_OBJECT if out.path in generation.outs else RESTORE_INPUT).format(tag=generation.tag)
    files = {"": out.md5} if not out.md5.endswith(DIR) else cache.listing(out.md5)
    listed = cache.digests(out.md5)
    if listed is None:
        yield _missing(generation, out.path, "list of its files" if out.md5.endswith(DIR) else "file", 1, 1)
        return
    where = f"{out.path} ({cache.path(out.md5)})"
    yield from differs(where, "MD5 against dvc.lock", listed.md5, out.md5.removesuffix(DIR), remedy)
    if files is None:
        yield Mismatch(where, "list of its files", UNREADABLE, "a list", remedy)
        return
    if out.path in MANIFESTS and MANIFEST_FILE not in files:
        yield Mismatch(where, "its files", f"no {MANIFEST_FILE}", "one", remedy)
    missing = [name for name, md5 in files.items() if cache.digests(md5) is None]
    if missing:
        yield _missing(generation, out.path, f"{missing[0]}", len(missing), len(files))
    named = {ref.path: ref for ref in generation.file_refs(out.path)} if out.path in MANIFESTS else {}
    for name, md5 in files.items():
        found = cache.digests(md5)
        if found is None:
            continue
        where = f"{out.path}/{name} ({cache.path(md5)})"
        yield from differs(where, "MD5 against dvc.lock", found.md5, md5, remedy)
        if PurePosixPath(name).name == MANIFEST_FILE and out.path in MANIFESTS:
            kind = MANIFESTS[out.path]
            if read_model(kind, cache.read(md5)) is None:
                yield Mismatch(where, "manifest", UNREADABLE, f"a {kind.__name__} of this version", remedy)
        if name in named:
            yield from differs(where, "SHA-256 against its manifest", found.sha256, named[name].sha256, remedy)
            yield from differs(where, "size against its manifest", found.num_bytes, named[name].num_bytes, remedy)
    for name in sorted(named.keys() - files.keys()):
        yield Mismatch(f"{out.path}/{name}", "named by the manifest", "nothing", named[name].sha256, remedy)


def _missing(generation: Generation, path: str, first: str, count: int, total: int) -> Mismatch:
    remedy = PULL.format(tag=generation.tag)
    return Mismatch(path, f"{count} of {total} files ({first})", "nothing", "a file", remedy, mark=Mark.MISSING)


def check_manifests(generation: Generation) -> Iterator[Mismatch]:
    """The manifests agree with their shards and origins, and the window holds the newest games."""
    if generation.entry is None or generation.entry.kind != "decision":
        return
    params = generation.params
    for path, games in ((GAMES_DIR, generation.games), (MATCH_DIR, generation.match)):
        if games is not None and params is not None:
            yield from _check_games(generation, path, games, params)
    if params is not None:
        yield from _check_window(generation, params)
    yield from _check_origins(generation)


def _check_games(generation: Generation, path: str, games: GameSet, params: Params) -> Iterator[Mismatch]:
    where, remedy = f"{path}/{MANIFEST_FILE}", RESTORE_OBJECT.format(tag=generation.tag)
    wanted = params.selfplay.num_games if path == GAMES_DIR else params.gating.num_games
    yield from differs(where, "number of games against params.yaml", games.num_games, wanted, remedy)
    for name in ("num_games", "num_positions"):
        total = sum(getattr(each, name) for each in games.shards)
        yield from differs(where, f"{name} of its shards", total, getattr(games, name), remedy)
    repeated = [key[:12] for key, count in Counter(each.key for each in games.shards).items() if count > 1]
    yield from differs(where, "keys that repeat", ", ".join(repeated), "", remedy)
    first = 0
    for ref in games.shards:
        yield from differs(f"{path}/{ref.file.path}", "first game", ref.first_game, first, remedy)
        first += ref.num_games
        columns = read_shard(generation, path, ref.file)
        if columns is not None:
            yield from _check_rows(generation, path, ref, columns, remedy)


def _check_rows(
    generation: Generation, path: str, ref: ShardRef, columns: GameColumns | str, remedy: str
) -> Iterator[Mismatch]:
    where = f"{path}/{ref.file.path}"
    if isinstance(columns, str):
        yield Mismatch(where, "shard of games", columns, "one that can be read", remedy)
        return
    yield from differs(where, "games against the manifest", columns.num_games, ref.num_games, remedy)
    yield from differs(where, "positions against the manifest", columns.num_positions, ref.num_positions, remedy)
    yield from differs(where, "generation", ref.generation, generation.number, remedy)
    numbers = np.arange(ref.first_game, ref.first_game + columns.num_games)
    if not np.array_equal(columns.game, numbers):
        yield Mismatch(where, "numbers of the games", f"{columns.game[0]}...", f"{ref.first_game} on", remedy)
    decision = generation.entry.decision if generation.entry else None
    if decision is None:
        return
    one, other = decision.challenger, decision.champion
    if path == GAMES_DIR:
        one = other = generation.selfplay_weights or decision.champion
    players = [(one, other) if game % 2 == 0 else (other, one) for game in numbers]
    for colour, found, expected in (
        ("Black", columns.black, tuple(black for black, _ in players)),
        ("White", columns.white, tuple(white for _, white in players)),
    ):
        wrong = [index for index, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]
        if wrong:
            what = f"{colour} in {len(wrong)} games, first {numbers[wrong[0]]}"
            yield Mismatch(where, what, found[wrong[0]], expected[wrong[0]], remedy)


def _check_window(generation: Generation, params: Params) -> Iterator[Mismatch]:
    """The window is the previous one with the new games, cut to its size; its other shards are unchanged."""
    window, games = generation.window, generation.games
    state = generation.previous.next_state if generation.previous else None
    before = state.window_shards if state else None
    where, remedy = f"{WINDOW_DIR}/{MANIFEST_FILE}", RESTORE_OBJECT.format(tag=generation.tag)
    if window is None or games is None or before is None:
        return
    if generation.old_window is not None:
        yield from compare_window_shards(
            f"{OLD_WINDOW_DIR}/{MANIFEST_FILE}", generation.old_window.shards, before, remedy
        )
    known = (*before, *(new_entry(ref) for ref in games.shards))
    expected = last_games(known, window_size(params, generation.number, before))
    if window.shards != expected:  # before 2026-11-27, see `size_by_fraction`
        expected = last_games(known, size_by_fraction(params, generation.number, before))
    yield from compare_window_shards(where, window.shards, expected, remedy)
    num_games = sum(entry.num_games for entry in window.shards)
    yield from differs(where, "num_games of its shards", num_games, window.num_games, remedy)
    num_positions = sum(entry.shard.num_positions for entry in window.shards)
    if window.shards and window.shards[0].skip_games:
        oldest = read_shard(generation, WINDOW_DIR, window.shards[0].shard.file)
        if not isinstance(oldest, GameColumns):
            return
        num_positions -= int(oldest.move_offsets[min(window.shards[0].skip_games, oldest.num_games)])
    yield from differs(where, "num_positions of its shards", num_positions, window.num_positions, remedy)


def compare_window_shards(
    where: str, shards: tuple[WindowShard, ...], expected: tuple[WindowShard, ...], remedy: str
) -> Iterator[Mismatch]:
    """The shards of a window are the expected ones, in that order."""
    for found, wanted in zip(shards, expected, strict=False):
        yield from differs(f"{where}, {wanted.shard.file.path}", "entry", found, wanted, remedy)
    yield from differs(where, "number of its shards", len(shards), len(expected), remedy)


def _check_origins(generation: Generation) -> Iterator[Mismatch]:
    """The origin in each manifest: lineage, generation, seed, and the digests of its inputs."""
    params, decision = generation.params, generation.entry.decision if generation.entry else None
    if params is None or decision is None:
        return
    inputs: dict[str, dict[str, str | None]] = {
        "selfplay": {"champion": generation.selfplay_weights},  # so called also if an earlier champion played
        "replay": {path: _manifest_digest(generation, path) for path in (GAMES_DIR, OLD_WINDOW_DIR)},
        "training": {path: _manifest_digest(generation, path) for path in (WINDOW_DIR, TRAINEE_DIR)},
        "gating": {"challenger": decision.challenger, "champion": decision.champion},
    }
    for stage, made in generation.origins.items():
        where, remedy = f"manifest of {stage}", f"see `zero reproduce {generation.tag}`"
        yield from differs(where, "lineage", made.lineage, generation.lineage, remedy)
        yield from differs(where, "generation", made.generation, generation.number, remedy)
        yield from differs(where, "seed", made.seed, params.seed, remedy)
        yield from differs(where, "stage", made.stage, stage, remedy)
        for name, expected in inputs.get(stage, {}).items():
            if expected is not None and name in made.inputs:
                yield from differs(where, f"SHA-256 of its input {name}", made.inputs[name], expected, remedy)


def _manifest_digest(generation: Generation, path: str) -> str | None:
    content = generation.manifest_bytes(path)
    return sha256_bytes(content) if content is not None else None


def read_shard(generation: Generation, path: str, ref: FileRef) -> GameColumns | str | None:
    """Games of a shard; a message if it cannot be read; None if it is not on this machine."""
    data = generation.data(path, ref.path)
    if data is None:
        return None
    try:
        return read_records(data, ref.path)
    except StorageError as error:
        return str(error)
