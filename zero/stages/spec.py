"""The specification of a shard: everything that its bytes depend on, and nothing else. Its digest is its key.

Imports neither torch nor the kernels, so that planning a stage stays fast.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from zero.config.params import GameParams, Params, ProfileParams
from zero.errors import LineageError
from zero.network.profile import execution_profile
from zero.storage.files import canonical_json, sha256_bytes, sha256_file, source_digest
from zero.storage.layout import CONSTRAINTS_FILE, PIPELINE_FILE
from zero.storage.manifests import NO_RESIGNATION, ExpectedProperties, Manifest, Sha256

PACKAGE_DIR = Path(__file__).resolve().parents[1]
CONSTRAINTS_PATH = PACKAGE_DIR.parent / CONSTRAINTS_FILE
"""The pinned set of packages."""

PIPELINE_PATH = PACKAGE_DIR.parent / PIPELINE_FILE

TRAINING_PREFIX = "training_"
"""Start of the names of profile fields that games do not depend on."""
WITHOUT_TRAINING = {"training_threads": 1, "training_processes": 1, "training_precision": "fp32"}
"""Their values in every specification, so that shards do not depend on how the network is trained."""


class ShardSpec(ExpectedProperties):
    """Games to play; equal specifications give equal bytes."""

    version: Literal[2] = 2
    game: GameParams
    device: ProfileParams
    """Section `profile` of the parameters; the fields that games do not depend on have fixed values."""
    engine: Sha256
    """Code digest of the stage, see `code_digest`."""
    lock_file: Sha256
    """SHA-256 of constraints.txt."""
    profile: dict[str, str]
    """Execution profile of the machine that planned the shard. The machine that plays it must have the same."""

    @property
    def name(self) -> str:
        """Name for messages, such as `selfplay games 0-99`."""
        return f"{self.kind} games {self.first_game}-{self.first_game + self.num_games - 1}"

    def key(self) -> str:
        """SHA-256 (hex) of the canonical JSON."""
        return sha256_bytes(canonical_json(self))


class PartialSpec(ShardSpec):
    """Specification of the first games of a shard to end, for the re-execution check.

    Its key is that of the complete shard, so it needs a store of its own.
    """

    stop_after: Annotated[int, Field(ge=0)] = 0
    """Games to end before play stops; 0: all."""

    def key(self) -> str:
        """The key of the complete shard."""
        return ShardSpec.model_validate(self.model_dump(exclude={"stop_after"})).key()


class ShardReceipt(Manifest, extra="ignore"):  # older receipts have an energy, `joules`
    """Who played a shard and what it cost; stored beside the shard."""

    key: Sha256
    sha256: Sha256
    kind: str
    first_game: int
    num_games: int
    num_evaluations: int
    worker: str
    """`$ZERO_WORKER`, or host and process id."""
    begun: float
    """Seconds since 1970."""
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    pid: int


def read_receipts(found: Iterable[bytes]) -> list[ShardReceipt]:
    """The receipts of a shard, one for each time that it was played, without those of other versions."""
    receipts = []
    for data in found:
        with suppress(ValidationError):
            receipts.append(ShardReceipt.model_validate_json(data))
    return receipts


def code_digest(stage: str) -> str:
    """Code digest of a stage: that of the sources that it runs."""
    return source_digest({path.relative_to(PACKAGE_DIR).as_posix(): path.read_bytes() for path in stage_sources(stage)})


def stage_sources(stage: str) -> list[Path]:
    """The source files of a stage, sorted: those that `dvc.yaml` lists as its dependencies."""
    files: set[Path] = set()
    # The C loader: the one in Python takes 70 ms, ten times as long.
    for name in yaml.load(PIPELINE_PATH.read_bytes(), yaml.CSafeLoader)["stages"][stage]["deps"]:
        # The other dependencies are data and parameters, which the origin names by digest.
        if name.startswith("zero/"):
            path = PACKAGE_DIR.parent / name
            files.update(path.rglob("*.py") if path.is_dir() else [path])
    return sorted(files)


def lock_file_digest() -> str:
    """SHA-256 (hex) of `constraints.txt`, the pinned set of packages."""
    return sha256_file(CONSTRAINTS_PATH)


def check_code(stage: str, engine: str, lock_file: str) -> None:
    """Checks that this checkout has the code and the pinned packages of a specification.

    Args:
      stage: name of the stage.
      engine: code digest in the specification.
      lock_file: SHA-256 of `constraints.txt` in the specification.

    Raises:
      LineageError: a digest differs.
    """
    pairs = (("code digest", engine, code_digest(stage)), ("digest of constraints.txt", lock_file, lock_file_digest()))
    for name, expected, found in pairs:
        if found != expected:
            raise LineageError(
                f"this worker's {name} for {stage} is {found[:12]}, the specification has {expected[:12]}; "
                "check out the lineage's code here"
            )


def check_profile(expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Checks that this machine has the execution profile of a specification.

    Args:
      expected: the profile in the specification.
      found: the profile of this machine.

    Raises:
      LineageError: the device, instruction set, precision or a library version is different.
    """
    for name, value in found.items():
        if expected.get(name) != value:
            remedy = "; profile.isa = 'avx2' is for machines with different instruction sets" if name == "isa" else ""
            raise LineageError(
                f"this worker's {name} is {value}, the specification has {expected.get(name)}; use a machine with the "
                f"execution profile of the one that planned it{remedy}"
            )


def shard_profile(profile: ProfileParams) -> dict[str, str]:
    """The execution profile of this machine, without the fields that games do not depend on."""
    complete = execution_profile(profile.model_copy(update=WITHOUT_TRAINING))
    return {name: value for name, value in complete.items() if not name.startswith(TRAINING_PREFIX)}


def plan_shards(
    params: Params,
    kind: Literal["selfplay", "gating"],
    generation: int,
    weights: tuple[str, ...],
    resign_threshold: float = NO_RESIGNATION,
) -> list[ShardSpec]:
    """The shards of a stage in the order of their games; the last may be smaller.

    Args:
      params: all parameters.
      kind: the stage.
      generation: the generation to play.
      weights: SHA-256 of the player for self-play; of the challenger and the champion for gating.
      resign_threshold: see `ExpectedProperties`; ignored without calibration games, because then no game may resign.
    """
    engine, lock_file, profile = code_digest(kind), lock_file_digest(), shard_profile(params.profile)
    section = params.selfplay if kind == "selfplay" else params.gating
    play = section.play
    return [
        ShardSpec(
            kind=kind,
            game=params.game,
            search=params.search,
            play=play,
            # A threshold that is ignored must not change the keys of the shards.
            resign_threshold=resign_threshold if play.calibration_fraction else NO_RESIGNATION,
            weights=weights,
            seed=params.seed,
            generation=generation,
            first_game=first,
            num_games=min(section.games_per_shard, section.num_games - first),
            device=params.profile.model_copy(update=WITHOUT_TRAINING),
            engine=engine,
            lock_file=lock_file,
            profile=profile,
        )
        for first in range(0, section.num_games, section.games_per_shard)
    ]
