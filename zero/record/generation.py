"""`Generation`: the one view of a generation of a lineage, read once and handed on.

It answers everything about a generation: parameters, ledger entry, manifests, metrics, health, costs, attestation, the
digests of its outputs. What the record lacks, or this version of the program cannot read, is None. There are two
backends (`zero.record.objects`): a work tree, and a commit with DVC's cache. Values are cached: take a new view after
the files changed.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from zero.config.params import PARAMS_FILE, YAML_ERRORS, Params, overlap_of, parse_params
from zero.errors import LineageError, ParamsError, StorageError
from zero.network.health import Health, recorded_health
from zero.record.costs import GenerationCosts, read_note
from zero.record.history import Line, LineageHistory
from zero.record.ledger import generation_tag, parse_ledger
from zero.record.metrics import SelfplayMetrics, following_threshold
from zero.record.objects import CommittedFiles, DataCache, Files, Out, WorkTreeFiles, is_md5, read_bytes
from zero.record.provenance import Attestation, Envelope, read_envelope
from zero.storage.files import sha256_bytes, source_digest
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    DATA_DIRS,
    DVC_LOCK,
    GAMES_DIR,
    GATING_METRICS,
    GENERATION_FILE,
    LEDGER_FILE,
    MATCH_DIR,
    OLD_WINDOW_DIR,
    PLAYER_DIR,
    PROVENANCE_FILE,
    SELFPLAY_METRICS,
    STATE_DIRS,
    TRAINEE_DIR,
    TRAINING_METRICS,
    WINDOW_DIR,
)
from zero.storage.manifests import (
    MANIFEST_FILE,
    NO_RESIGNATION,
    Champion,
    Checkpoint,
    FileRef,
    GameSet,
    GenerationId,
    LedgerEntry,
    Origin,
    PromotionDecision,
    Window,
    WindowShard,
)

PLAYER_NAME = PLAYER_DIR.removeprefix(f"{CHAMPION_DIR}/")
MANIFESTS: Mapping[str, type[BaseModel]] = {
    **dict.fromkeys((GAMES_DIR, MATCH_DIR), GameSet),
    **dict.fromkeys((WINDOW_DIR, OLD_WINDOW_DIR), Window),
    **dict.fromkeys((CHALLENGER_DIR, TRAINEE_DIR), Checkpoint),
    CHAMPION_DIR: Champion,
}
"""Type of the manifests in each folder."""
MAX_YAML_DEPTH = 100
OUT_KEYS = {"md5", "size", "nfiles", "hash", "path", "desc"}
"""Keys of an output in a file of DVC that is made by `dvc add`."""
PULL = "run `dvc pull` in a folder made by `zero checkout {tag}`"
"""Remedy for data that is not on this machine."""
Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")


class State(NamedTuple):
    """What a generation leaves to the next one."""

    champion: str
    """SHA-256 (hex) of the champion's weights."""
    champion_generation: int
    """Generation whose training made the champion."""
    trainee: str
    """SHA-256 (hex) of the weights that training continues from."""
    window_shards: tuple[WindowShard, ...] | None
    """Shards of the window; None if its manifest is not on this machine."""
    player: str | None
    """With `selfplay.overlap`: SHA-256 of the weights that play the next generation's games. Otherwise None."""
    player_generation: int | None
    """Generation whose challenger the player was; None if that is unknown, or without a player."""
    resign_threshold: float | None
    """Resignation threshold of the next generation; None if the record does not hold it."""
    md5: Mapping[str, str]
    """MD5 of the folders that the next generation starts from, by path; after a decision without the champion's."""


class Generation:
    """One generation of a lineage."""

    def __init__(
        self,
        lineage: str,
        number: int,
        files: Files,
        line: Line | None,
        *,
        previous: "Generation | None" = None,
        source: "Generation | None" = None,
        history: LineageHistory | None = None,
        offline: bool = False,
    ) -> None:
        """Stores what the ledger and git say of the generation; everything else is read on first use.

        Args:
          lineage: name of the lineage.
          number: number of the generation.
          files: the backend that reads its files.
          line: its line of the newest ledger; None if that ledger has no line for it.
          previous: the generation of the preceding ledger line; None for the first.
          source: the generation that a rollback or a branch restores.
          history: its lineage in git; only `ProjectRecord` gives it.
          offline: True if a missing cost note is not fetched.
        """
        self.lineage, self.number, self.line = lineage, number, line
        self.files, self.previous, self.source = files, previous, source
        self.tag = generation_tag(lineage, number)
        self._history, self._offline = history, offline

    @property
    def history(self) -> LineageHistory:
        """Its lineage in git."""
        assert self._history is not None, "only a generation of ProjectRecord has a history"
        return self._history

    @property
    def cache(self) -> DataCache:
        """DVC's cache with the data of the generation. A work tree has none."""
        return self._committed.cache

    @property
    def _committed(self) -> CommittedFiles:
        assert isinstance(self.files, CommittedFiles), "a work tree has neither a cache nor a commit"
        return self.files

    @property
    def commit(self) -> str | None:
        """The commit or tag from which its files are read; None if no commit wrote its line, and for a work tree."""
        return self.files.commit if isinstance(self.files, CommittedFiles) else None

    @property
    def entry(self) -> LedgerEntry | None:
        """Its entry of the ledger; None if there is none that can be read."""
        return self.line.entry if self.line else None

    def read_entry(self) -> LedgerEntry:
        """Its entry of the ledger.

        Raises:
          LineageError: it has none that can be read.
        """
        if self.entry is None:
            raise LineageError(f"{self.tag} has no entry in the ledger; `zero audit` reports why")
        return self.entry

    @cached_property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """The ledger at its commit, up to its own entry, with the chain of digests checked.

        Raises:
          LineageError: the ledger is missing or broken.
        """
        text = (self.file(LEDGER_FILE) or b"").decode(errors="replace")
        return parse_ledger(text, f"{self.tag}:{LEDGER_FILE}")

    @cached_property
    def parent(self) -> str | None:
        """The commit that the stages ran on."""
        return next(iter(self._header("parent")), None)

    @cached_property
    def recorded_ms(self) -> int | None:
        """Time of its commit, in milliseconds since 1970; None for a work tree."""
        committer = next(iter(self._header("committer")), None)  # "name <mail> seconds zone"
        return 1000 * int(committer.split()[-2]) if committer else None

    def _header(self, key: str) -> list[str]:
        """Values of a key in the header of its commit, which ends at the first empty line."""
        content = self._committed.reader.read(self.commit) if self.commit else None
        header = (content or b"").partition(b"\n\n")[0].decode(errors="replace")
        return [line.removeprefix(f"{key} ") for line in header.splitlines() if line.startswith(f"{key} ")]

    def file(self, path: str) -> bytes | None:
        """Content of a file that git tracks; None if the generation lacks it."""
        return self.files.read(path)

    @cached_property
    def lock_digest(self) -> str:
        """SHA-256 of dvc.lock; that of the empty text without one."""
        return sha256_bytes(self.file(DVC_LOCK) or b"")

    @cached_property
    def stages(self) -> Mapping[str, Any]:
        """The stages of dvc.lock by name."""
        tree = _yaml(self.file(DVC_LOCK))
        stages = tree.get("stages") if isinstance(tree, dict) else None
        found = stages.items() if isinstance(stages, dict) else ()
        return {name: stage for name, stage in found if isinstance(stage, dict)}

    @cached_property
    def outs(self) -> Mapping[str, Out]:
        """What its stages wrote, by path; empty if no stage ran for it, and for a work tree."""
        if self.entry is None or self.entry.kind != "decision":
            return {}
        found: dict[str, Out] = {}
        for stage in self.stages.values():
            for each in listed(stage, "outs"):
                path, md5 = str(each.get("path")), str(each.get("md5"))
                md5 = md5 if is_md5(md5) else "none"
                # dvc.lock does not say what is cached: the folders of data are, metrics and plots are in git.
                found[path] = Out(path, md5, cached=path in DATA_DIRS or md5.endswith(".dir"))
        return found

    @cached_property
    def dataset_out(self) -> Out | None:
        """The dataset of its parameters in DVC; None if there is none, or its file of DVC cannot be read."""
        if self.params is None or not self.params.dataset:
            return None
        # git knows only the shortest form of a path: it does not find `datasets//go9`.
        return self._tracked(str(PurePosixPath(self.params.dataset)))

    @cached_property
    def state_outs(self) -> Mapping[str, Out]:
        """Champion, trainee and window by path: what the stages started from, or what a rollback or branch restored."""
        found = {path: self._tracked(path) for path in STATE_DIRS}
        return {path: out for path, out in found.items() if out is not None}

    def _tracked(self, path: str) -> Out | None:
        """A folder that DVC tracks by a file beside it; None if that file does not track it alone.

        The audit reports None: `dvc checkout` would write the other outputs too, in any folder.
        """
        tree = _yaml(self.file(f"{path}.dvc"))
        with suppress(TypeError, LookupError, ValueError):
            (out,) = tree["outs"]
            # Another key can make DVC take other data than those of the MD5, or put them elsewhere. Without `hash` it
            # takes them from the cache of an old version.
            if (
                {*tree} == {"outs"}
                and {*out} <= OUT_KEYS
                and out["hash"] == "md5"
                and out["path"] == PurePosixPath(path).name
                and is_md5(out["md5"])
            ):
                return Out(path, out["md5"], cached=True)
        return None

    def read_params(self) -> Params:
        """Its parameters.

        Raises:
          ParamsError: params.yaml is missing, or this version of the program cannot read it.
        """
        return parse_params(self._params_text, f"{PARAMS_FILE} of {self.tag}")

    @cached_property
    def params(self) -> Params | None:
        """Its parameters."""
        try:
            return self.read_params()
        except ParamsError:
            return None

    @cached_property
    def overlap(self) -> bool:
        """True if self-play overlapped, by the recorded parameters of whatever version."""
        return overlap_of(self._params_text)

    @property
    def _params_text(self) -> str:
        return (self.file(PARAMS_FILE) or b"").decode(errors="replace")

    @cached_property
    def generation_id(self) -> GenerationId | None:
        """`state/generation.json`: number, resignation threshold and player of the generation that the stages make."""
        return read_model(GenerationId, self.file(GENERATION_FILE))

    @cached_property
    def decision(self) -> PromotionDecision | None:
        """`metrics/gating.json`."""
        return read_model(PromotionDecision, self.file(GATING_METRICS))

    @cached_property
    def selfplay_metrics(self) -> SelfplayMetrics | None:
        """`metrics/selfplay.json`."""
        return read_model(SelfplayMetrics, self.file(SELFPLAY_METRICS))

    @cached_property
    def health(self) -> Health | None:
        """Health of its training; None without a training, or if it had no health checks.

        Raises:
          StorageError: metrics/training.json is damaged.
        """
        metrics = self.file(TRAINING_METRICS)
        return recorded_health(metrics, f"{self.tag}:{TRAINING_METRICS}") if metrics is not None else None

    @cached_property
    def costs(self) -> GenerationCosts | None:
        """Its costs, from the git note on its commit; a rollback or a branch has none."""
        if self.entry is not None and self.entry.decision is None:
            return None
        return read_note(self.files.repository, self.lineage, self.commit or self.tag, self._offline)

    @cached_property
    def envelope(self) -> Envelope | None:
        """Its attestation in the signed envelope. The signature is not checked here."""
        data = self.file(PROVENANCE_FILE)
        try:
            return read_envelope(data, PROVENANCE_FILE) if data else None
        except LineageError:
            return None

    @property
    def attestation(self) -> Attestation | None:
        """Its attestation."""
        return self.envelope.attestation if self.envelope else None

    @cached_property
    def code_digests(self) -> Mapping[str, str]:
        """Digest of the sources of each stage at the commit it ran on, recomputed."""
        if self.parent is None:
            return {}
        reader = self._committed.reader
        # At the parent: the stages ran before the commit of the generation existed.
        blobs = reader.files(f"{self.parent}:zero")
        found = {}
        for name, stage in self.stages.items():
            deps = [str(each.get("path")) for each in listed(stage, "deps")]
            below = tuple(dep.removeprefix("zero/") for dep in deps if dep.startswith("zero/"))
            # The slashes keep `data` from matching a module such as `database.py`.
            chosen = [
                path for path in blobs if path.endswith(".py") and any(f"{path}/".startswith(f"{d}/") for d in below)
            ]
            found[name] = source_digest({path: reader.read(blobs[path]) or b"" for path in chosen})
        return found

    def out(self, path: str) -> Out | None:
        """An output of a stage, or a folder of the state."""
        found = self.outs.get(path) or self.state_outs.get(path)
        return self.dataset_out if found is None and self.dataset_out and self.dataset_out.path == path else found

    def md5_of(self, folder: str, name: str) -> str | None:
        """MD5 of a file in a folder that DVC tracks; None if it is not listed, or the list is not on this machine.

        Only for a generation in git, not for a work tree.
        """
        out = self.out(folder)
        listing = self.cache.listing(out.md5) if out else None
        return listing.get(name) if listing else None

    def data_path(self, folder: str, name: str) -> Path | None:
        """Path of a file in a folder that DVC tracks; None if it is not on this machine. The content is not checked."""
        return self.files.locate(folder, self.out(folder), name)

    def is_here(self, folder: str) -> bool:
        """True if all files of a folder that DVC tracks are on this machine, by the list in DVC's cache.

        Only for a generation in git, not for a work tree.
        """
        out = self.out(folder)
        listing = self.cache.listing(out.md5) if out else None
        return listing is not None and all(self.cache.path(md5).exists() for md5 in listing.values())

    def data(self, folder: str, name: str) -> bytes | None:
        """Content of a file in a folder that DVC tracks, not checked; None if it is not on this machine."""
        path = self.data_path(folder, name)
        return read_bytes(path) if path else None

    def checked_data(self, folder: str, name: str, sha256: str) -> bytes:
        """Content of a file in a folder that DVC tracks, after a check of its digest.

        Raises:
          StorageError: it is not on this machine, or damaged.
        """
        data = self.data(folder, name)
        if data is None or sha256_bytes(data) != sha256:
            state = "is not on this machine" if data is None else "is damaged"
            raise StorageError(f"{folder}/{name} of {self.tag} {state}; {PULL.format(tag=self.tag)}")
        return data

    def manifest_bytes(self, folder: str) -> bytes | None:
        """Content of the manifest of a folder that DVC tracks; None if it is not on this machine."""
        return self.data(folder, MANIFEST_FILE)

    @cached_property
    def games(self) -> GameSet | None:
        """Manifest of `data/games`."""
        return read_model(GameSet, self.manifest_bytes(GAMES_DIR))

    @cached_property
    def match(self) -> GameSet | None:
        """Manifest of `data/match`."""
        return read_model(GameSet, self.manifest_bytes(MATCH_DIR))

    @cached_property
    def window(self) -> Window | None:
        """Manifest of `data/window`."""
        return read_model(Window, self.manifest_bytes(WINDOW_DIR))

    @cached_property
    def challenger(self) -> Checkpoint | None:
        """Manifest of `models/challenger`."""
        return read_model(Checkpoint, self.manifest_bytes(CHALLENGER_DIR))

    @cached_property
    def champion(self) -> Champion | None:
        """Manifest of `state/champion`."""
        return read_model(Champion, self.manifest_bytes(CHAMPION_DIR))

    @cached_property
    def player(self) -> Champion | None:
        """Manifest of `state/champion/selfplay`, which exists with `selfplay.overlap`."""
        return read_model(Champion, self.data(CHAMPION_DIR, f"{PLAYER_NAME}/{MANIFEST_FILE}"))

    @cached_property
    def trainee(self) -> Checkpoint | None:
        """Manifest of `state/trainee`."""
        return read_model(Checkpoint, self.manifest_bytes(TRAINEE_DIR))

    @cached_property
    def old_window(self) -> Window | None:
        """Manifest of `state/replay`: the window that the generation started with."""
        return read_model(Window, self.manifest_bytes(OLD_WINDOW_DIR))

    @cached_property
    def origins(self) -> Mapping[str, Origin]:
        """Origins in the manifests that its stages wrote, by stage."""
        made = (self.games, self.window, self.challenger, self.match)
        stages = ("selfplay", "replay", "training", "gating")
        return {stage: each.origin for stage, each in zip(stages, made, strict=True) if each is not None}

    def file_refs(self, folder: str) -> tuple[FileRef, ...]:
        """The files that the manifest of a folder names."""
        if folder in (GAMES_DIR, MATCH_DIR):
            games = self.games if folder == GAMES_DIR else self.match
            return tuple(each.file for each in games.shards) if games else ()
        if folder in (WINDOW_DIR, OLD_WINDOW_DIR):
            window = self.window if folder == WINDOW_DIR else self.old_window
            return tuple(each.shard.file for each in window.shards) if window else ()
        if folder == CHAMPION_DIR:
            refs = [self.champion.weights] if self.champion else []
            if self.player is not None:
                weights = self.player.weights
                refs.append(weights.model_copy(update={"path": f"{PLAYER_NAME}/{weights.path}"}))
            return tuple(refs)
        checkpoint = self.challenger if folder == CHALLENGER_DIR else self.trainee
        return checkpoint.files if checkpoint else ()

    @cached_property
    def next_state(self) -> State | None:
        """What the next generation starts from; None if the ledger has no entry of this one."""
        entry = self.entry
        if entry is None:
            return None
        restored = self.source.next_state if self.source else None
        if self.source is not None:
            shards = restored.window_shards if restored else None
        else:
            window = self.window if entry.kind == "decision" else self.old_window
            shards = window.shards if window else None
        player, number, threshold = self.generation_id.player if self.generation_id else None, None, None
        handed_on = self.state_outs
        if entry.decision is not None:
            previous = self.previous.entry if self.previous and self.overlap else None
            # The opponent of the match was champion when this generation began; with overlap it plays the next games.
            player = entry.decision.champion if self.overlap else None
            number = previous.champion_generation if previous else None
            threshold = following_threshold(self.selfplay_metrics) if self.selfplay_metrics else None
            pairs = ((TRAINEE_DIR, CHALLENGER_DIR), (OLD_WINDOW_DIR, WINDOW_DIR))
            handed_on = {state: self.outs[made] for state, made in pairs if made in self.outs}
        elif restored is not None:
            player, number, threshold = restored.player, restored.player_generation, restored.resign_threshold
        elif entry.kind == "start":
            player, threshold = None, NO_RESIGNATION
        return State(
            champion=entry.champion,
            champion_generation=entry.champion_generation,
            trainee=entry.trainee,
            window_shards=shards,
            player=player,
            player_generation=number,
            resign_threshold=threshold,
            md5={path: out.md5 for path, out in handed_on.items()},
        )

    @property
    def selfplay_weights(self) -> str | None:
        """SHA-256 of the weights that self-play uses, from the ledger; None unless the entry is a decision."""
        entry = self.entry
        if entry is None or entry.decision is None:
            return None
        state = self.previous.next_state if self.previous and self.overlap else None
        # In the first generation with overlap there is no earlier player, so the champion has played.
        return state.player if state and state.player else entry.decision.champion


def in_progress(workspace: Path) -> Generation:
    """The generation that `state/generation.json` names, read from the work tree, without its ledger entry.

    Raises:
      StorageError: state/generation.json is missing or unreadable.
    """
    files = WorkTreeFiles(workspace)
    current = required(read_model(GenerationId, files.read(GENERATION_FILE)), workspace / GENERATION_FILE)
    return Generation(current.lineage, current.number, files, None)


def required(value: Value | None, name: object) -> Value:
    """The value, which must not be None. `name`: the file it is read from.

    Raises:
      StorageError: it is None.
    """
    if value is None:
        raise StorageError(f"{name} is missing or unreadable; run `dvc checkout`, or `dvc pull`, in its folder")
    return value


def listed(stage: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The `deps` or `outs` of a stage in dvc.lock, without the incomplete entries of a truncated file."""
    entries = stage.get(key)
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def read_model(kind: type[Model], data: bytes | None) -> Model | None:
    """A manifest or metrics file; None if it is missing, or this version of the program cannot read it."""
    try:
        return kind.model_validate_json(data) if data is not None else None
    except ValidationError:
        return None


def _yaml(data: bytes | None) -> Any:
    """The content of a file; None if it is not YAML, or nested more deeply than DVC's files are."""
    if not data:
        return None
    depth = 0
    try:
        # The C loader is about ten times as fast as the one in Python, but a deeply nested file ends the process.
        for event in yaml.parse(data, yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_YAML_DEPTH or isinstance(event, yaml.AliasEvent):  # aliases can multiply a text
                return None
        return yaml.load(data, yaml.CSafeLoader)
    except (yaml.YAMLError, *YAML_ERRORS):
        return None
