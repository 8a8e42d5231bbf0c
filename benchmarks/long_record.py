"""A lineage of many generations, written in minutes: real in all that an audit reads, but played and trained once.

The games are played once by a small network and written again for each generation with the digests of its players, so
that every shard has its own bytes; a network is new weights, not trained ones. Ledger, statements, manifests, dvc.lock,
commits and tags are made by the program's own functions, and DVC's cache is filled as DVC would.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from zero.config.params import Params, params_digest
from zero.config.settings import STATE_FOLDER
from zero.data.records import concatenate, read_records, write_records
from zero.games.rules import rules_of
from zero.lineage.workspace import new_lineage
from zero.network.inference import new_evaluator
from zero.network.optimizer import new_optimizer, optimizer_bytes
from zero.network.weights import new_network, weights_bytes
from zero.play.batched_games import play_games
from zero.record.attestation import decision_attestation, write_attestation
from zero.record.generation import in_progress
from zero.record.ledger import append_entry, generation_tag, last_line_digest, parse_ledger
from zero.search.streams import stream_of
from zero.shards.spec import PACKAGE_DIR, ShardSpec, code_digest, plan_shards
from zero.shards.worker import shard_settings
from zero.stages.gating import decide, match_result
from zero.stages.replay import last_games, window_name, window_size
from zero.storage.files import read_manifest, sha256_bytes, sha256_file, write_atomic, write_manifest
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    GAMES_DIR,
    GATING_METRICS,
    GENERATION_FILE,
    LEDGER_FILE,
    MATCH_DIR,
    REPLAY_DIR,
    TRAINEE_DIR,
    WINDOW_DIR,
    workspace_dir,
)
from zero.storage.manifests import (
    MANIFEST_FILE,
    NO_RESIGNATION,
    Champion,
    Checkpoint,
    FileRef,
    GameRecord,
    GameSet,
    GenerationId,
    LedgerEntry,
    Origin,
    PromotionDecision,
    ShardRef,
    Window,
    WindowShard,
)
from zero.storage.vcs import git

LINEAGE = "long"
COPIED = ("zero", "constraints.txt", "dvc.yaml", "params.yaml", ".dvc/config", ".dvcignore", ".gitignore")
STAGE_OUTS = {"selfplay": GAMES_DIR, "replay": WINDOW_DIR, "training": CHALLENGER_DIR, "gating": MATCH_DIR}


class Played(NamedTuple):
    """Games of one generation that all of them have, before they are given to their players."""

    games: list[GameRecord]
    match: list[GameRecord]


def make_long_record(home: Path, params: Params, num_generations: int, player: Params) -> Path:
    """Makes project `home` with lineage `long`; its workspace.

    Args:
      home: a folder to make.
      params: what the record says: numbers of games, window, network.
      num_generations: how many have a match.
      player: what plays the games, once: of the same game, with a small network and few simulations.
    """
    for name in COPIED:
        source, target = PACKAGE_DIR.parent / name, home / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    git(home, "init", "--quiet", "--initial-branch=main")
    git(home, "add", "--all")
    git(home, "commit", "--quiet", "-m", "project")
    new_lineage(home, LINEAGE, json.dumps(params.model_dump(mode="json")), "the benchmark")
    workspace = workspace_dir(home, LINEAGE)
    played = Played(
        _play(player, params.selfplay.num_games, "selfplay"), _play(player, params.gating.num_games, "gating")
    )
    record = _Record(home, workspace, params)
    for number in range(1, num_generations + 1):
        record.add(number, played)
    tags = [generation_tag(LINEAGE, number) for number in range(1, num_generations + 1)]
    git(workspace, "push", "--quiet", "origin", f"lineage/{LINEAGE}", *tags)
    return workspace


class _Record:
    """The record as it grows."""

    def __init__(self, home: Path, workspace: Path, params: Params) -> None:
        self.cache = home / STATE_FOLDER / "dvc-cache"
        self.workspace, self.params = workspace, params
        self.lock: dict[str, dict[str, object]] = yaml.safe_load((workspace / "dvc.yaml").read_text())["stages"]
        self.state = {out: _md5_of(workspace / f"{out}.dvc") for out in (CHAMPION_DIR, TRAINEE_DIR, REPLAY_DIR)}
        self.engines = {stage: code_digest(stage) for stage in STAGE_OUTS}
        self._shards: dict[str, str] = {}  # MD5 of every shard of self-play by its key, for the windows
        self._last_files: dict[str, str] = {}  # of the folder that was listed last, without its manifest

    def add(self, number: int, played: Played) -> None:
        """One generation more; its challenger is promoted where the match says so."""
        folder, params = self.workspace, self.params
        current = GenerationId(lineage=LINEAGE, number=number, resign_threshold=NO_RESIGNATION)
        write_manifest(folder, current, GENERATION_FILE)
        champion = read_manifest(folder / CHAMPION_DIR, Champion)
        before = parse_ledger((folder / LEDGER_FILE).read_text(), LEDGER_FILE)[-1]
        model = new_network(params.network, params.game, number)
        weights, optimizer = weights_bytes(model), optimizer_bytes(new_optimizer(params.training, model), model)
        digest, old = sha256_bytes(weights), champion.weights.sha256

        outs = {GAMES_DIR: self._games(GAMES_DIR, number, (old,), played.games)}
        games = read_manifest(folder / GAMES_DIR, GameSet)
        window = self._window(number, games)
        outs[WINDOW_DIR] = self._listed(
            WINDOW_DIR, {row.shard.file.path: self._shards[row.shard.key] for row in window}
        )
        checkpoint = Checkpoint(
            origin=self._origin("training", number, {}),
            network=params.network,
            step=number * params.training.num_steps,
            learning_rate_factor=1.0,
            weights=_ref("weights.safetensors", weights),
            optimizer=_ref("optimizer.safetensors", optimizer),
        )
        write_manifest(folder / CHALLENGER_DIR, checkpoint)
        files = {"weights.safetensors": self._put(weights), "optimizer.safetensors": self._put(optimizer)}
        outs[CHALLENGER_DIR] = self._listed(CHALLENGER_DIR, files)
        outs[MATCH_DIR] = self._games(MATCH_DIR, number, (digest, old), played.match)
        decision = self._decision(number, digest, old)
        write_manifest(folder / "metrics", decision, "gating.json")
        self._write_lock(outs)
        self._commit(number, decision, before, digest)
        if decision.promoted:
            new = Champion(generation=number, network=params.network, weights=checkpoint.weights)
            write_manifest(folder / CHAMPION_DIR, new)
            self._set_state(
                CHAMPION_DIR, self._listed(CHAMPION_DIR, {"weights.safetensors": files["weights.safetensors"]})
            )
        for source, target in ((CHALLENGER_DIR, TRAINEE_DIR), (WINDOW_DIR, REPLAY_DIR)):
            shutil.copyfile(folder / source / MANIFEST_FILE, folder / target / MANIFEST_FILE)
            self._set_state(target, outs[source])

    def _games(self, out: str, number: int, weights: tuple[str, ...], games: list[GameRecord]) -> str:
        """Writes the games of a stage as those players'; MD5 of the folder."""
        kind, stage = ("selfplay", self.params.selfplay) if out == GAMES_DIR else ("gating", self.params.gating)
        refs, files = [], {}
        for index, spec in enumerate(plan_shards(self.params, kind, stage, number, weights)):  # type: ignore[arg-type] # a Literal
            own = [_given(games[game], game, weights) for game in _numbers(spec)]
            data = write_records(own)
            name = f"shard-{index:04d}.parquet"
            files[name] = self._put(data)
            if out == GAMES_DIR:
                self._shards[spec.key()] = files[name]
            refs.append(
                ShardRef(
                    file=_ref(name, data),
                    key=spec.key(),
                    generation=number,
                    first_game=spec.first_game,
                    num_games=len(own),
                    num_positions=sum(len(game.actions) for game in own),
                )
            )
        inputs = {"champion": weights[-1]} | ({"challenger": weights[0]} if out == MATCH_DIR else {})
        game_set = GameSet(
            origin=self._origin(kind, number, inputs),
            shards=tuple(refs),
            num_games=sum(ref.num_games for ref in refs),
            num_positions=sum(ref.num_positions for ref in refs),
        )
        write_manifest(self.workspace / out, game_set)
        return self._listed(out, files)

    def _window(self, number: int, games: GameSet) -> tuple[WindowShard, ...]:
        before = read_manifest(self.workspace / REPLAY_DIR, Window)
        entered = [
            WindowShard(
                shard=ref.model_copy(update={"file": ref.file.model_copy(update={"path": window_name(ref)})}),
                skip_games=0,
            )
            for ref in games.shards
        ]
        rows = last_games((*before.shards, *entered), window_size(self.params, number))
        first = rows[0]
        skipped = 0
        if first.skip_games:
            oldest = read_records(self._path(self._shards[first.shard.key]).read_bytes(), first.shard.file.path)
            skipped = int(oldest.move_offsets[first.skip_games])
        inputs = {out: sha256_file(self.workspace / out / MANIFEST_FILE) for out in (GAMES_DIR, REPLAY_DIR)}
        window = Window(
            origin=self._origin("replay", number, inputs),
            shards=rows,
            num_games=sum(row.shard.num_games - row.skip_games for row in rows),
            num_positions=sum(row.shard.num_positions for row in rows) - skipped,
        )
        write_manifest(self.workspace / WINDOW_DIR, window)
        return rows

    def _decision(self, number: int, challenger: str, champion: str) -> PromotionDecision:
        games = read_manifest(self.workspace / MATCH_DIR, GameSet)
        shards = [self._path(md5).read_bytes() for md5 in self._last_files.values()]
        match = match_result(concatenate(read_records(data, MATCH_DIR) for data in shards))
        assert match.wins + match.losses + match.draws == games.num_games
        return PromotionDecision(
            lineage=LINEAGE,
            generation=number,
            promoted=decide(match, self.params.gating.threshold),
            threshold=self.params.gating.threshold,
            match=match,
            challenger=challenger,
            champion=champion,
        )

    def _commit(self, number: int, decision: PromotionDecision, before: LedgerEntry, trainee: str) -> None:
        folder = self.workspace
        text = (folder / LEDGER_FILE).read_text()
        entry = LedgerEntry(
            lineage=LINEAGE,
            generation=number,
            kind="decision",
            decision=decision,
            source=None,
            provenance=write_attestation(folder, decision_attestation(in_progress(folder), decision, before)),
            champion=decision.challenger if decision.promoted else before.champion,
            champion_generation=number if decision.promoted else before.champion_generation,
            trainee=trainee,
            params_digest=params_digest(self.params),
            lock_digest=sha256_file(folder / "dvc.lock"),
            previous=last_line_digest(text),
        )
        write_atomic(folder / LEDGER_FILE, append_entry(text, entry).encode())
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "-m", f"generation {number}")
        git(folder, "tag", generation_tag(LINEAGE, number))

    def _origin(self, stage: str, number: int, inputs: Mapping[str, str]) -> Origin:
        if stage == "training":
            inputs = {out: sha256_file(self.workspace / out / MANIFEST_FILE) for out in (WINDOW_DIR, TRAINEE_DIR)}
        return Origin(
            stage=stage,
            lineage=LINEAGE,
            generation=number,
            seed=self.params.seed,
            params_digest=params_digest(self.params, stage),
            engine=self.engines[stage],
            inputs=dict(inputs),
        )

    def _write_lock(self, outs: Mapping[str, str]) -> None:
        """dvc.lock with the dependencies of dvc.yaml; of the sources, which git holds, only the names."""
        known = self.state | dict(outs)
        stages: dict[str, object] = {}
        for stage, out in STAGE_OUTS.items():
            deps = [
                {"path": dep} | ({"md5": known[str(dep)]} if dep in known else {})
                for dep in self.lock[stage]["deps"]  # type: ignore[attr-defined] # a list
            ]
            stages[stage] = {"deps": deps, "outs": [{"path": out, "md5": outs[out]}]}
        gating = (self.workspace / GATING_METRICS).read_bytes()
        stages["gating"]["outs"].append({"path": GATING_METRICS, "md5": _md5(gating)})  # type: ignore[index] # a dict
        write_atomic(self.workspace / "dvc.lock", yaml.safe_dump({"schema": "2.0", "stages": stages}).encode())

    def _set_state(self, out: str, md5: str) -> None:
        tree = {"outs": [{"md5": md5, "hash": "md5", "path": Path(out).name}]}
        write_atomic(self.workspace / f"{out}.dvc", yaml.safe_dump(tree).encode())
        self.state[out] = md5

    def _listed(self, out: str, files: Mapping[str, str]) -> str:
        """Lists a folder and its manifest as DVC does; MD5 of the list."""
        self._last_files = dict(files)
        whole = dict(files) | {MANIFEST_FILE: self._put((self.workspace / out / MANIFEST_FILE).read_bytes())}
        listing = [{"md5": whole[name], "relpath": name} for name in sorted(whole)]
        return self._put(json.dumps(listing, sort_keys=True).encode(), ".dir")

    def _put(self, data: bytes, suffix: str = "") -> str:
        name = _md5(data) + suffix
        if not self._path(name).exists():
            write_atomic(self._path(name), data)
        return name

    def _path(self, md5: str) -> Path:
        return self.cache / "files/md5" / md5[:2] / md5[2:]


def _play(params: Params, num_games: int, kind: str) -> list[GameRecord]:
    """Games of a network with itself."""
    stage = params.selfplay.model_copy(update={"num_games": num_games, "games_per_shard": num_games})
    spec = plan_shards(params, "selfplay", stage, 1, ("0" * 64,))[0]
    evaluator = new_evaluator(weights_bytes(new_network(params.network, params.game, params.seed)), params.profile)
    streams = np.stack([stream_of(params.seed, 1, kind, game) for game in range(num_games)])
    played = play_games(
        rules_of(params.game),
        shard_settings(spec),
        [evaluator],
        spec.weights,
        streams,
        spec.play.num_slots,
        params.search.max_nodes,
    )
    return list(played.games)


def _given(game: GameRecord, number: int, weights: tuple[str, ...]) -> GameRecord:
    """A game as one of those players'."""
    first, second = weights[0], weights[-1]
    black, white = (first, second) if number % 2 == 0 else (second, first)
    return game._replace(game=number, black=black, white=white, never_resigns=False)


def _numbers(spec: ShardSpec) -> range:
    return range(spec.first_game, spec.first_game + spec.num_games)


def _ref(name: str, data: bytes) -> FileRef:
    return FileRef(path=name, sha256=sha256_bytes(data), num_bytes=len(data))


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _md5_of(path: Path) -> str:
    return str(yaml.safe_load(path.read_text())["outs"][0]["md5"])
