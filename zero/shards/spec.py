"""A shard's specification: everything that its bytes depend on, and nothing else. Its digest is its key."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from zero.config.params import GameParams, GatingParams, Params, ProfileParams, SearchParams, SelfplayParams
from zero.errors import LineageError
from zero.network.profile import execution_profile
from zero.storage.files import canonical_json, sha256_bytes, sha256_file
from zero.storage.manifests import NO_RESIGNATION, Manifest, Sha256

PACKAGE_DIR = Path(__file__).resolve().parents[1]
LOCK_FILE = PACKAGE_DIR.parent / "constraints.txt"

BASE_SOURCES = ("config", "errors.py", "kernels.py", "storage/files.py", "storage/manifests.py")
RECORD_SOURCES = ("data/adjudication.py", "data/duplicates.py", "data/records.py", "data/validation.py")
PLAY_SOURCES = (
    *(*BASE_SOURCES, *RECORD_SOURCES, "games", "search", "network", "shards", "statistics.py", "storage/store.py"),
    *("play/batched_games.py", "play/boards.py", "play/moves.py", "play/slots.py"),
)
SELFPLAY_SOURCES = ("record/metrics.py", "stages/resignation.py", "stages/selfplay.py", "storage/layout.py")
SOURCES = {
    "selfplay": (*PLAY_SOURCES, *SELFPLAY_SOURCES),
    "replay": (
        *(*BASE_SOURCES, *RECORD_SOURCES, "data/quarantine.py", "data/window.py", "games", "search"),
        *("network/profile.py", "play/moves.py", "play/slots.py", "shards/spec.py", "shards/terms.py"),
        *("stages/replay.py", "storage/store.py", "storage/vcs.py"),
    ),
    "training": (
        *(*BASE_SOURCES, "data/records.py", "data/samples.py", "data/window.py", "games", "network"),
        *("search/streams.py", "shards/spec.py", "stages/checkpoints.py", "stages/training.py"),
        *("stages/training_inputs.py", "storage/layout.py"),
    ),
    "gating": (*PLAY_SOURCES, "stages/gating.py"),
    "verification": (
        *(*PLAY_SOURCES, *SELFPLAY_SOURCES, "data/quarantine.py", "stages/gating.py", "stages/verification.py"),
        "storage/vcs.py",
    ),
}
"""Sources a stage runs, below `zero/`; `dvc.yaml` has the same as the stage's code dependencies."""


TRAINING_PREFIX = "training_"
"""How the fields of a profile begin that games do not depend on."""
WITHOUT_TRAINING = {"training_threads": 1, "training_processes": 1, "training_precision": "fp32"}
"""What stands for them in a specification, so that another way of training gives the same shards."""


class ShardSpec(Manifest):
    """Games to play: equal specs give equal bytes."""

    version: Literal[1] = 1
    kind: Literal["selfplay", "gating"]
    game: GameParams
    search: SearchParams
    weights: Annotated[tuple[Sha256, ...], Field(min_length=1, max_length=2)]
    """Of the champion for self-play; of the challenger and the champion for gating."""
    seed: int
    generation: int
    first_game: int
    num_games: Annotated[int, Field(ge=1)]
    num_slots: int
    num_simulations: int
    temperature_moves: int
    dirichlet_concentration: float
    dirichlet_fraction: float
    forced_playouts: float
    full_search_fraction: float
    fast_simulations: int
    calibration_fraction: float
    resign_threshold: float
    device: ProfileParams
    engine: Sha256
    """Fingerprint of the sources that play."""
    lock_file: Sha256
    """SHA-256 of constraints.txt."""
    profile: dict[str, str]
    """Execution profile of the machine that planned it, and must play it."""

    def key(self) -> str:
        """SHA-256 (hex) of the canonical JSON."""
        return sha256_bytes(canonical_json(self))


class PartialShard(ShardSpec):
    """A shard of which only the games that end first are wanted, to be compared with the whole one.

    They are stored under the key of the whole shard, so in a store that nobody else uses.
    """

    stop_after: Annotated[int, Field(ge=0)] = 0
    """It is played until so many games have ended; 0: all."""

    def key(self) -> str:
        """The key of the whole shard."""
        return ShardSpec.model_validate(self.model_dump(exclude={"stop_after"})).key()


class ShardReceipt(Manifest):
    """A shard that was played, by whom, and what that cost; it lies in the store beside the shard."""

    key: Sha256
    sha256: Sha256
    kind: str
    first_game: int
    num_games: int
    num_evaluations: int
    worker: str
    """`$ZERO_WORKER`, or host and process number."""
    begun: float
    """Seconds since 1970."""
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    joules: float | None
    """None where the machine does not tell."""
    pid: int


def code_digest(stage: str) -> str:
    """SHA-256 (hex) of the names and contents of the sources that a stage runs."""
    digest = hashlib.sha256()
    for path in stage_sources(stage):
        digest.update(path.relative_to(PACKAGE_DIR).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def stage_sources(stage: str) -> list[Path]:
    """The source files of a stage, sorted."""
    files: set[Path] = set()
    for name in SOURCES[stage]:
        path = PACKAGE_DIR / name
        files.update(path.rglob("*.py") if path.is_dir() else [path])
    return sorted(files)


def lock_file_digest() -> str:
    """SHA-256 (hex) of the pinned set of packages, `constraints.txt`."""
    return sha256_file(LOCK_FILE)


def check_code(stage: str, engine: str, lock_file: str) -> None:
    """Checks that this checkout has the sources of a stage, and the package lock, that a specification names.

    Raises:
      LineageError: it has others.
    """
    pairs = (("engine", engine, code_digest(stage)), ("lock file", lock_file, lock_file_digest()))
    for name, wanted, here in pairs:
        if wanted != here:
            raise LineageError(
                f"this worker's {name} is {here[:12]}, {stage} wants {wanted[:12]}; check out the lineage's code here"
            )


def shard_profile(profile: ProfileParams) -> dict[str, str]:
    """The execution profile of this machine, as far as games depend on it."""
    whole = execution_profile(profile.model_copy(update=WITHOUT_TRAINING))
    return {name: value for name, value in whole.items() if not name.startswith(TRAINING_PREFIX)}


def plan_shards(
    params: Params,
    kind: Literal["selfplay", "gating"],
    stage: SelfplayParams | GatingParams,
    generation: int,
    weights: tuple[str, ...],
    resign_threshold: float = NO_RESIGNATION,
) -> list[ShardSpec]:
    """The shards of a stage in the order of their games; the last may be smaller.

    A match is played without noise, by the most visited moves (of a Gumbel root the best of those), with all
    simulations and to its end.
    """
    engine, lock_file, profile = code_digest(kind), lock_file_digest(), shard_profile(params.profile)
    selfplay = stage if isinstance(stage, SelfplayParams) else None
    return [
        ShardSpec(
            kind=kind,
            game=params.game,
            search=params.search,
            weights=weights,
            seed=params.seed,
            generation=generation,
            first_game=first,
            num_games=min(stage.games_per_shard, stage.num_games - first),
            num_slots=stage.num_slots,
            num_simulations=stage.num_simulations,
            temperature_moves=selfplay.temperature_moves if selfplay else 0,
            dirichlet_concentration=selfplay.dirichlet_concentration if selfplay else 0.0,
            dirichlet_fraction=selfplay.dirichlet_fraction if selfplay else 0.0,
            forced_playouts=selfplay.forced_playouts if selfplay else 0.0,
            full_search_fraction=selfplay.full_search_fraction if selfplay else 1.0,
            fast_simulations=selfplay.fast_simulations if selfplay else stage.num_simulations,
            calibration_fraction=selfplay.calibration_fraction if selfplay else 0.0,
            resign_threshold=resign_threshold if selfplay and selfplay.calibration_fraction else NO_RESIGNATION,
            device=params.profile.model_copy(update=WITHOUT_TRAINING),
            engine=engine,
            lock_file=lock_file,
            profile=profile,
        )
        for first in range(0, stage.num_games, stage.games_per_shard)
    ]
