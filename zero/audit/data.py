"""Checks of what DVC holds: every object by its MD5, and by the SHA-256 in its manifest; what manifests say of it."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import numpy as np

from zero.audit.findings import Drift, differs
from zero.config.params import Params, ProfileParams
from zero.data.records import GameColumns, read_records
from zero.errors import StorageError
from zero.record.generation import MANIFESTS, Generation, Out, read_model
from zero.shards.spec import WITHOUT_TRAINING, ShardSpec, code_digest, plan_shards
from zero.stages.replay import last_games, window_name, window_size
from zero.storage.files import sha256_bytes
from zero.storage.layout import CONSTRAINTS_FILE, GAMES_DIR, MATCH_DIR, REPLAY_DIR, STATE_OUTS, TRAINEE_DIR, WINDOW_DIR
from zero.storage.manifests import MANIFEST_FILE, FileRef, GameSet, ShardRef, WindowShard

PULL = "not here; `dvc pull` in a folder made by `zero checkout {tag}`"
AGAIN = "delete that object, then `dvc pull`, or `dvc repro` in a folder made by `zero checkout {tag}`"
DIR = ".dir"
UNREADABLE = "none that can be read"


def check_data(generation: Generation) -> Iterator[Drift]:
    """Every object that dvc.lock and the state name is here, with that MD5 and the SHA-256 in its manifest."""
    for path in STATE_OUTS if generation.commit else ():
        if path not in generation.states:
            remedy = f"restore it from the true tag: `git checkout {generation.tag} -- state`"
            yield Drift(f"{path}.dvc", "file of DVC", UNREADABLE, "an MD5", remedy)
    for out in (*generation.outs.values(), *generation.states.values()):
        if out.cached:
            yield from _check_out(generation, out)


def _check_out(generation: Generation, out: Out) -> Iterator[Drift]:
    cache, remedy = generation.cache, AGAIN.format(tag=generation.tag)
    files = {"": out.md5} if not out.md5.endswith(DIR) else cache.listing(out.md5)
    listed = cache.digests(out.md5)
    if listed is None:
        yield _missing(generation, out.path, "list of its files" if out.md5.endswith(DIR) else "file", 1, 1)
        return
    where = f"{out.path} ({cache.path(out.md5)})"
    yield from differs(where, "MD5 against dvc.lock", listed.md5, out.md5.removesuffix(DIR), remedy)
    if files is None:
        yield Drift(where, "list of its files", UNREADABLE, "a list", remedy)
        return
    if out.path in MANIFESTS and MANIFEST_FILE not in files:
        yield Drift(where, "its files", f"no {MANIFEST_FILE}", "one", remedy)
    missing = [name for name, md5 in files.items() if cache.digests(md5) is None]
    if missing:
        yield _missing(generation, out.path, f"{missing[0]}", len(missing), len(files))
    named = {ref.path: ref for ref in generation.references(out.path)}
    for name, md5 in files.items():
        found = cache.digests(md5)
        if found is None:
            continue
        where = f"{out.path}/{name} ({cache.path(md5)})"
        yield from differs(where, "MD5 against dvc.lock", found.md5, md5, remedy)
        if PurePosixPath(name).name == MANIFEST_FILE and out.path in MANIFESTS:
            kind = MANIFESTS[out.path]
            if read_model(kind, cache.read(md5)) is None:
                yield Drift(where, "manifest", UNREADABLE, f"a {kind.__name__} of this version", remedy)
        if name in named:
            yield from differs(where, "SHA-256 against its manifest", found.sha256, named[name].sha256, remedy)
            yield from differs(where, "size against its manifest", found.num_bytes, named[name].num_bytes, remedy)
    for name in sorted(named.keys() - files.keys()):
        yield Drift(f"{out.path}/{name}", "named by the manifest", "nothing", named[name].sha256, remedy)


def _missing(generation: Generation, path: str, first: str, count: int, total: int) -> Drift:
    remedy = PULL.format(tag=generation.tag)
    return Drift(path, f"{count} of {total} files ({first})", "nothing", "a file", remedy, missing=True)


def check_manifests(generation: Generation) -> Iterator[Drift]:
    """Rows, keys and origins: the manifests say what is in the shards, and the window is the last games before it."""
    if generation.entry is None or generation.entry.kind != "decision":
        return
    params = generation.params
    for path, games in ((GAMES_DIR, generation.games), (MATCH_DIR, generation.match)):
        if games is not None and params is not None:
            yield from _check_games(generation, path, games, params)
            yield from _check_keys(generation, path, games, params)
    if params is not None:
        yield from _check_window(generation, params)
    yield from _check_origins(generation)


def _check_games(generation: Generation, path: str, games: GameSet, params: Params) -> Iterator[Drift]:
    where, remedy = f"{path}/{MANIFEST_FILE}", AGAIN.format(tag=generation.tag)
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
        columns = shard(generation, path, ref.file)
        if columns is not None:
            yield from _check_rows(generation, path, ref, columns, remedy)


def _check_rows(
    generation: Generation, path: str, ref: ShardRef, columns: GameColumns | str, remedy: str
) -> Iterator[Drift]:
    where = f"{path}/{ref.file.path}"
    if isinstance(columns, str):
        yield Drift(where, "shard of games", columns, "one that can be read", remedy)
        return
    yield from differs(where, "games against the manifest", columns.num_games, ref.num_games, remedy)
    yield from differs(where, "positions against the manifest", columns.num_positions, ref.num_positions, remedy)
    yield from differs(where, "generation", ref.generation, generation.number, remedy)
    numbers = np.arange(ref.first_game, ref.first_game + columns.num_games)
    if not np.array_equal(columns.game, numbers):
        yield Drift(where, "numbers of the games", f"{columns.game[0]}...", f"{ref.first_game} on", remedy)
    decision = generation.entry.decision if generation.entry else None
    if decision is None:
        return
    one, other = decision.challenger, decision.champion
    if path == GAMES_DIR:
        one = other = generation.played_by or decision.champion
    players = [(one, other) if game % 2 == 0 else (other, one) for game in numbers]
    for colour, found, expected in (
        ("Black", columns.black, tuple(black for black, _ in players)),
        ("White", columns.white, tuple(white for _, white in players)),
    ):
        wrong = [index for index, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]
        if wrong:
            what = f"{colour} in {len(wrong)} games, first {numbers[wrong[0]]}"
            yield Drift(where, what, found[wrong[0]], expected[wrong[0]], remedy)


def _check_keys(generation: Generation, path: str, games: GameSet, params: Params) -> Iterator[Drift]:
    """The key of each shard is that of its specification, planned again from the record."""
    remedy = f"see `zero reproduce {generation.tag}`"
    for ref, spec in zip(games.shards, planned(generation, path, params), strict=False):
        yield from differs(f"{path}/{ref.file.path}", "key of its specification", ref.key, spec.key(), remedy)


def planned(generation: Generation, path: str, params: Params) -> list[ShardSpec]:
    """The specifications of a generation's shards; none where the record does not tell enough, or where other sources
    than this program's planned them: a key depends on what a specification has for fields.
    """
    decision = generation.entry.decision if generation.entry else None
    identity, constraints = generation.identity, generation.file(CONSTRAINTS_FILE)
    if decision is None or generation.envelope is None or identity is None or constraints is None:
        return []
    kind = "selfplay" if path == GAMES_DIR else "gating"
    if generation.engines.get(kind) != _own_engine(kind):
        return []
    stage = params.selfplay if path == GAMES_DIR else params.gating
    player = generation.played_by or decision.champion
    weights = (player,) if path == GAMES_DIR else (decision.challenger, decision.champion)
    profile = generation.envelope.statement.found.profile
    plain = params.model_copy(update={"profile": _plain(params.profile)})  # that of this machine is replaced below
    specs = plan_shards(plain, kind, stage, generation.number, weights, identity.resign_threshold)  # type: ignore[arg-type] # a Literal
    changes = {
        "device": params.profile.model_copy(update=WITHOUT_TRAINING),
        "lock_file": sha256_bytes(constraints),
        "profile": _shard_profile(profile, params.profile),
    }
    return [spec.model_copy(update=changes) for spec in specs]


@cache
def _own_engine(kind: str) -> str:
    return code_digest(kind)


def _plain(profile: ProfileParams) -> ProfileParams:
    return profile.model_copy(update={"device": "cpu", "backend": "torch", "precision": "fp32"})


def _shard_profile(profile: dict[str, str], params: ProfileParams) -> dict[str, str]:
    """What of a recorded profile games depend on, as `zero.shards.spec.shard_profile` has it."""
    found = {name: value for name, value in profile.items() if not name.startswith("training_")}
    if params.precision != "bf16":  # then the unit for bf16 is told for training alone
        found["isa"] = found.get("isa", "").partition("+")[0]
    return found


def _check_window(generation: Generation, params: Params) -> Iterator[Drift]:
    """The window is the previous one with the new games, cut to its size; no row of it changed."""
    window, games = generation.window, generation.games
    before = generation.before.after.window if generation.before and generation.before.after else None
    where, remedy = f"{WINDOW_DIR}/{MANIFEST_FILE}", AGAIN.format(tag=generation.tag)
    if window is None or games is None or before is None:
        return
    if generation.replay is not None:
        yield from _compare_rows(f"{REPLAY_DIR}/{MANIFEST_FILE}", generation.replay.shards, before, remedy)
    entered = tuple(
        WindowShard(
            shard=ref.model_copy(update={"file": ref.file.model_copy(update={"path": window_name(ref)})}), skip_games=0
        )
        for ref in games.shards
    )
    expected = last_games((*before, *entered), window_size(params, generation.number))
    yield from _compare_rows(where, window.shards, expected, remedy)
    num_games = sum(row.shard.num_games - row.skip_games for row in window.shards)
    yield from differs(where, "num_games of its rows", num_games, window.num_games, remedy)
    num_positions = sum(row.shard.num_positions for row in window.shards)
    if window.shards and window.shards[0].skip_games:
        oldest = shard(generation, WINDOW_DIR, window.shards[0].shard.file)
        if not isinstance(oldest, GameColumns):
            return
        num_positions -= int(oldest.move_offsets[window.shards[0].skip_games])
    yield from differs(where, "num_positions of its rows", num_positions, window.num_positions, remedy)


def _compare_rows(
    where: str, rows: tuple[WindowShard, ...], expected: tuple[WindowShard, ...], remedy: str
) -> Iterator[Drift]:
    for found, wanted in zip(rows, expected, strict=False):
        yield from differs(f"{where}, {wanted.shard.file.path}", "row", _row(found), _row(wanted), remedy)
    yield from differs(where, "number of its rows", len(rows), len(expected), remedy)


def _check_origins(generation: Generation) -> Iterator[Drift]:
    """What made each manifest: lineage, generation, seed, and the hashes of what it was made from."""
    params, decision = generation.params, generation.entry.decision if generation.entry else None
    if params is None or decision is None:
        return
    inputs: dict[str, dict[str, str | None]] = {
        "selfplay": {"champion": generation.played_by},
        "replay": {path: _manifest_digest(generation, path) for path in (GAMES_DIR, REPLAY_DIR)},
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
    found = generation.digests(path, MANIFEST_FILE)
    return found.sha256 if found else None


def shard(generation: Generation, path: str, ref: FileRef) -> GameColumns | str | None:
    """Games of a shard; what is wrong with it where it cannot be read; None where it is not here."""
    data = generation.data(path, ref.path)
    if data is None:
        return None
    try:
        return read_records(data, ref.path)
    except StorageError as error:
        return str(error)


def _row(row: WindowShard) -> str:
    shard, file = row.shard, row.shard.file
    return (
        f"{file.path} {file.sha256} ({file.num_bytes} bytes, key {shard.key}, {shard.num_games} games of generation "
        f"{shard.generation} on from {shard.first_game}, {shard.num_positions} positions) from game {row.skip_games}"
    )
