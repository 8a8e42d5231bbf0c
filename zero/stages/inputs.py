"""What the stages read of a workspace: the parameters, the generation in progress, and the manifests of its folders.

The command of a stage makes one `Inputs` and hands it on. Each manifest is read once, except those that a stage writes
(`game_set`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from zero.config.params import Params, load_params, params_digest
from zero.errors import ParamsError, StorageError
from zero.stages.spec import code_digest
from zero.storage.files import read_manifest, sha256_file
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    GENERATION_FILE,
    OLD_WINDOW_DIR,
    PLAYER_DIR,
    RESTORE_STATE,
    SHARD_DIRS,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, Champion, Checkpoint, GameSet, GenerationId, Origin, Window


@dataclass(frozen=True)
class Inputs:
    """The inputs of the stages; `read_inputs` makes it.

    Each manifest is read when it is first asked for, and then kept, except in `game_set`. A manifest that is missing or
    corrupt raises StorageError. The files that a manifest names are not checked.
    """

    folder: Path
    """The workspace."""
    params: Params
    generation: GenerationId
    """The generation in progress."""

    @cached_property
    def champion(self) -> Champion:
        """Manifest of `state/champion`."""
        return read_manifest(self.folder / CHAMPION_DIR, Champion)

    @property
    def player_dir(self) -> Path:
        """Folder of the network that plays the self-play games.

        With `selfplay.overlap` it is `state/champion/selfplay` if `state/generation.json` names a player, otherwise
        `state/champion`.
        """
        is_named = self.params.selfplay.overlap and self.generation.player is not None
        return self.folder / (PLAYER_DIR if is_named else CHAMPION_DIR)

    @cached_property
    def player(self) -> Champion:
        """Manifest of the folder `player_dir`.

        Raises:
          StorageError: there is none, or its weights are not those that `state/generation.json` names.
        """
        if self.player_dir == self.folder / CHAMPION_DIR:
            return self.champion
        player = read_manifest(self.player_dir, Champion)
        found, expected = player.weights.sha256, str(self.generation.player)
        if found != expected:
            raise StorageError(
                f"{self.player_dir} holds weights {found[:12]}, but {GENERATION_FILE} names {expected[:12]}; "
                f"{RESTORE_STATE}"
            )
        return player

    @cached_property
    def trainee(self) -> Checkpoint:
        """Manifest of `state/trainee`."""
        return read_manifest(self.folder / TRAINEE_DIR, Checkpoint)

    @cached_property
    def old_window(self) -> Window:
        """Manifest of `state/replay`: the window of the generation before."""
        return read_manifest(self.folder / OLD_WINDOW_DIR, Window)

    @cached_property
    def window(self) -> Window:
        """Manifest of `data/window`."""
        return read_manifest(self.folder / WINDOW_DIR, Window)

    @cached_property
    def challenger(self) -> Checkpoint:
        """Manifest of `models/challenger`."""
        return read_manifest(self.folder / CHALLENGER_DIR, Checkpoint)

    def game_set(self, stage: str) -> GameSet:
        """Manifest of `data/games` (stage `selfplay`) or `data/match` (`gating`). Read at each call."""
        return read_manifest(self.folder / SHARD_DIRS[stage], GameSet)

    def origin(self, stage: str, digests: Mapping[str, str]) -> Origin:
        """The origin of a stage's output.

        Args:
          stage: name of the stage in `dvc.yaml`.
          digests: SHA-256 of each input, by name.
        """
        return Origin(
            stage=stage,
            lineage=self.generation.lineage,
            generation=self.generation.number,
            seed=self.params.seed,
            params_digest=params_digest(self.params, stage),
            engine=code_digest(stage),
            inputs=dict(digests),
        )

    def manifest_digests(self, *folders: str) -> dict[str, str]:
        """SHA-256 of the manifests of folders, by folder, as inputs of an origin.

        Raises:
          StorageError: a manifest is missing.
        """
        return {folder: sha256_file(self.folder / folder / MANIFEST_FILE) for folder in folders}

    @cached_property
    def training_origin(self) -> Origin:
        """The origin of the challenger. Covers the content of the window and of the trainee."""
        return self.origin("training", self.manifest_digests(WINDOW_DIR, TRAINEE_DIR))


def read_inputs(folder: Path) -> Inputs:
    """The inputs of the stages of a workspace.

    Raises:
      ParamsError: `params.yaml` is not valid.
      StorageError: `state/generation.json` is missing or corrupt.
    """
    return Inputs(folder, load_params(folder), read_manifest(folder, GenerationId, GENERATION_FILE))


def check_trainee(trainee: Checkpoint, params: Params) -> None:
    """Checks that the trainee's network has the architecture that the parameters ask for.

    Raises:
      ParamsError: a field of `network` differs.
    """
    for name in type(params.network).model_fields:
        found, expected = getattr(trainee.network, name), getattr(params.network, name)
        if found != expected:
            raise ParamsError(
                f"network.{name} = {expected!r}, but the trainee has {found!r}; set it back or start a new lineage"
            )
