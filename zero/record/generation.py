"""One generation as the record tells it: the files of its commit, and its data in DVC's cache."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from zero.config.params import PARAMS_FILE, Params, overlap_of, parse_params
from zero.errors import LineageError, ParamsError
from zero.record.history import History, Line
from zero.record.ledger import generation_tag
from zero.record.metrics import SelfplayMetrics, following_threshold
from zero.record.objects import DataCache, Digests, source_digest
from zero.record.provenance import Envelope, read_envelope
from zero.storage.files import sha256_bytes
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    DVC_LOCK_FILE,
    GAMES_DIR,
    GATING_METRICS,
    GENERATION_FILE,
    MATCH_DIR,
    PLAYER_DIR,
    PROVENANCE_FILE,
    REPLAY_DIR,
    SELFPLAY_METRICS,
    STATE_OUTS,
    TRAINEE_DIR,
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

DATA_OUTS = (GAMES_DIR, WINDOW_DIR, CHALLENGER_DIR, MATCH_DIR)
PLAYER_NAME = PLAYER_DIR.removeprefix(f"{CHAMPION_DIR}/")
MANIFESTS: Mapping[str, type[BaseModel]] = {
    **dict.fromkeys((GAMES_DIR, MATCH_DIR), GameSet),
    **dict.fromkeys((WINDOW_DIR, REPLAY_DIR), Window),
    **dict.fromkeys((CHALLENGER_DIR, TRAINEE_DIR), Checkpoint),
    CHAMPION_DIR: Champion,
}
"""What the manifests in an out are."""
Model = TypeVar("Model", bound=BaseModel)


class Out(NamedTuple):
    """What DVC holds of a generation: a folder, or a file that git holds."""

    path: str
    md5: str
    cached: bool
    """False for a small file that is in git."""


class State(NamedTuple):
    """What the next generation starts from."""

    champion: str
    champion_generation: int
    trainee: str
    window: tuple[WindowShard, ...] | None
    """Its games; None where the manifest is not here."""
    player: str | None
    """Weights of an earlier champion, or of the same, that play its games if self-play overlaps then; None: none is."""
    player_generation: int | None
    """Generation whose challenger that was; None where it is not known, or there is none."""
    resign_threshold: float | None
    """The next generation's threshold of resignation; None where the record does not tell it."""
    md5: Mapping[str, str]
    """MD5 of the folders of the state that are handed on as they are, by path."""


class Generation:
    """Evidence of one generation, read when it is asked for."""

    def __init__(
        self,
        history: History,
        cache: DataCache,
        number: int,
        line: Line | None,
        commit: str | None,
        before: "Generation | None",
        source: "Generation | None" = None,
    ) -> None:
        """Takes what the ledger and git know of it.

        Args:
          history: its lineage in git.
          cache: where DVC's objects are.
          number: its number.
          line: its line of the newest ledger.
          commit: the commit that wrote that line.
          before: the generation of the line before.
          source: of a rollback or a branch, the generation it goes back to.
        """
        self.history, self.cache = history, cache
        self.number, self.line, self.commit, self.before, self.source = number, line, commit, before, source
        self.lineage = history.lineage
        self.tag = generation_tag(history.lineage, number)

    @property
    def entry(self) -> LedgerEntry | None:
        """Its line of the ledger, as far as it can be read."""
        return self.line.entry if self.line else None

    @cached_property
    def parent(self) -> str | None:
        """The commit that the stages ran on."""
        found = self.history.reader.read(self.commit) if self.commit else None
        for word, _, name in (line.partition(b" ") for line in (found or b"").splitlines()):
            if word == b"parent":
                return name.decode()
            if not word:
                break
        return None

    def file(self, path: str, commit: str | None = None) -> bytes | None:
        """A file of the commit that recorded the generation, or of another one."""
        commit = commit or self.commit
        return self.history.reader.read(f"{commit}:{path}") if commit else None

    @cached_property
    def lock_digest(self) -> str:
        """SHA-256 of dvc.lock; of the empty text where there is none."""
        return sha256_bytes(self.file(DVC_LOCK_FILE) or b"")

    @cached_property
    def stages(self) -> Mapping[str, Any]:
        """The stages of dvc.lock by name."""
        tree = _yaml(self.file(DVC_LOCK_FILE))
        stages = tree.get("stages") if isinstance(tree, dict) else None
        return stages if isinstance(stages, dict) else {}

    @cached_property
    def outs(self) -> Mapping[str, Out]:
        """What the stages made, by path; nothing where no stage ran for this generation."""
        if self.entry is None or self.entry.kind != "decision":
            return {}
        found: dict[str, Out] = {}
        for stage in self.stages.values():
            for each in stage.get("outs", ()):
                path, md5 = str(each.get("path")), str(each.get("md5"))
                found[path] = Out(path, md5, cached=path in DATA_OUTS or md5.endswith(".dir"))
        return found

    @cached_property
    def states(self) -> Mapping[str, Out]:
        """Champion, trainee and window at its commit, by path: what it started from, or for others what they set up."""
        found = {}
        for path in STATE_OUTS:
            tree = _yaml(self.file(f"{path}.dvc"))
            with suppress(TypeError, LookupError):  # it is no such file, which the check of data tells
                found[path] = Out(path, str(tree["outs"][0]["md5"]), cached=True)
        return found

    @cached_property
    def params(self) -> Params | None:
        """Its parameters; None where this version of the program cannot read them."""
        try:
            return parse_params(self._params_text)
        except ParamsError:
            return None

    @cached_property
    def overlap(self) -> bool:
        """Whether self-play overlapped, by the parameters that were recorded, of whatever version."""
        return overlap_of(self._params_text)

    @property
    def _params_text(self) -> str:
        return (self.file(PARAMS_FILE) or b"").decode(errors="replace")

    @cached_property
    def identity(self) -> GenerationId | None:
        """`state/generation.json`: which generation the stages made, and at which value a player resigned."""
        return read_model(GenerationId, self.file(GENERATION_FILE))

    @cached_property
    def decision(self) -> PromotionDecision | None:
        """`metrics/gating.json`."""
        return read_model(PromotionDecision, self.file(GATING_METRICS))

    @cached_property
    def envelope(self) -> Envelope | None:
        """Its signed statement; None where there is none that can be read."""
        data = self.file(PROVENANCE_FILE)
        try:
            return read_envelope(data, PROVENANCE_FILE) if data else None
        except LineageError:
            return None

    @cached_property
    def engines(self) -> Mapping[str, str]:
        """Fingerprint of the sources of each stage at the commit it ran on, recomputed."""
        if self.parent is None:
            return {}
        blobs = self.history.reader.files(f"{self.parent}:zero")
        found = {}
        for name, stage in self.stages.items():
            deps = [str(each.get("path")) for each in stage.get("deps", ())]
            below = tuple(dep.removeprefix("zero/") for dep in deps if dep.startswith("zero/"))
            chosen = [
                path for path in blobs if path.endswith(".py") and any(f"{path}/".startswith(f"{d}/") for d in below)
            ]
            found[name] = source_digest({path: self.history.reader.read(blobs[path]) or b"" for path in chosen})
        return found

    def out(self, path: str) -> Out | None:
        """An out of a stage, or of the state."""
        return self.outs.get(path) or self.states.get(path)

    def object_of(self, path: str, name: str) -> str | None:
        """MD5 of a file in an out that is a folder; None where it has none, or its list is not here."""
        out = self.out(path)
        listing = self.cache.listing(out.md5) if out else None
        return listing.get(name) if listing else None

    def data(self, path: str, name: str) -> bytes | None:
        """Content of a file in an out that is a folder; None where it is not here."""
        md5 = self.object_of(path, name)
        return self.cache.read(md5) if md5 else None

    def digests(self, path: str, name: str) -> Digests | None:
        """What such a file holds; None where it is not here."""
        md5 = self.object_of(path, name)
        return self.cache.digests(md5) if md5 else None

    def manifest_bytes(self, path: str) -> bytes | None:
        """The manifest of such a folder; None where it is not here."""
        return self.data(path, MANIFEST_FILE)

    @cached_property
    def games(self) -> GameSet | None:
        """Manifest of `data/games`; like all that follow None where it is not here or is none."""
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
        """Manifest of `state/champion/selfplay`; there is one where self-play overlaps."""
        return read_model(Champion, self.data(CHAMPION_DIR, f"{PLAYER_NAME}/{MANIFEST_FILE}"))

    @cached_property
    def trainee(self) -> Checkpoint | None:
        """Manifest of `state/trainee`."""
        return read_model(Checkpoint, self.manifest_bytes(TRAINEE_DIR))

    @cached_property
    def replay(self) -> Window | None:
        """Manifest of `state/replay`."""
        return read_model(Window, self.manifest_bytes(REPLAY_DIR))

    @cached_property
    def origins(self) -> Mapping[str, Origin]:
        """What the manifests say of how they were made, by stage."""
        made = (self.games, self.window, self.challenger, self.match)
        stages = ("selfplay", "replay", "training", "gating")
        return {stage: each.origin for stage, each in zip(stages, made, strict=True) if each is not None}

    def references(self, path: str) -> tuple[FileRef, ...]:
        """The files that the manifest of an out names."""
        if path in (GAMES_DIR, MATCH_DIR):
            games = self.games if path == GAMES_DIR else self.match
            return tuple(each.file for each in games.shards) if games else ()
        if path in (WINDOW_DIR, REPLAY_DIR):
            window = self.window if path == WINDOW_DIR else self.replay
            return tuple(each.shard.file for each in window.shards) if window else ()
        if path == CHAMPION_DIR:
            refs = [self.champion.weights] if self.champion else []
            if self.player is not None:
                weights = self.player.weights
                refs.append(weights.model_copy(update={"path": f"{PLAYER_NAME}/{weights.path}"}))
            return tuple(refs)
        checkpoint = self.challenger if path == CHALLENGER_DIR else self.trainee
        return checkpoint.files if checkpoint else ()

    @cached_property
    def after(self) -> State | None:
        """What the next generation starts from; None where the ledger has no line of this one."""
        entry = self.entry
        if entry is None:
            return None
        left = self.source.after if self.source else None
        if self.source is not None:
            shards = left.window if left else None
        else:
            window = self.window if entry.kind == "decision" else self.replay
            shards = window.shards if window else None
        player, number, threshold = self.identity.player if self.identity else None, None, None
        handed_on = self.states
        if entry.decision is not None:
            before = self.before.entry if self.before and self.overlap else None
            player = entry.decision.champion if self.overlap else None
            number = before.champion_generation if before else None
            metrics = read_model(SelfplayMetrics, self.file(SELFPLAY_METRICS))
            threshold = following_threshold(metrics) if metrics else None
            pairs = ((TRAINEE_DIR, CHALLENGER_DIR), (REPLAY_DIR, WINDOW_DIR))
            handed_on = {state: self.outs[made] for state, made in pairs if made in self.outs}
        elif left is not None:
            player, number, threshold = left.player, left.player_generation, left.resign_threshold
        elif entry.kind == "start":
            player, threshold = None, NO_RESIGNATION
        return State(
            champion=entry.champion,
            champion_generation=entry.champion_generation,
            trainee=entry.trainee,
            window=shards,
            player=player,
            player_generation=number,
            resign_threshold=threshold,
            md5={path: out.md5 for path, out in handed_on.items()},
        )

    @property
    def played_by(self) -> str | None:
        """Weights that its self-play is by, as the lines of the ledger have it; None where it has none."""
        entry = self.entry
        if entry is None or entry.decision is None:
            return None
        state = self.before.after if self.before and self.overlap else None
        return state.player if state and state.player else entry.decision.champion


def read_model(kind: type[Model], data: bytes | None) -> Model | None:
    """A manifest; None where there is none, or none that this version can read."""
    try:
        return kind.model_validate_json(data) if data is not None else None
    except ValidationError:
        return None


def _yaml(data: bytes | None) -> Any:
    try:
        return yaml.load(data, yaml.CSafeLoader) if data else None
    except yaml.YAMLError:
        return None
