"""What crosses a stage: frozen manifests with digests, and the only ways a file is written or checked.

A manifest is canonical JSON (sorted keys, one final newline), names every file by SHA-256 and size, and holds no time,
duration, host or commit, so that a recomputation gives the same bytes; the commit is in the provenance of the tag.
"""

from operator import not_
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from zero.config.params import NetworkParams

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
MANIFEST_FILE = "manifest.json"
RESIGNATION = "resignation"
"""How a game ended that a player gave up."""
NO_RESIGNATION = -1.0
"""A threshold of resignation that no value is below."""


class Manifest(BaseModel):
    """Base of what is written as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRef(Manifest):
    """A file by its content."""

    path: str
    """Relative to the folder of the manifest."""
    sha256: Sha256
    num_bytes: int


class Origin(Manifest):
    """What made an artifact; everything in it is equal when it is made again."""

    stage: str
    lineage: str
    generation: int
    seed: int
    params_digest: Sha256
    engine: Sha256
    """Fingerprint of the sources that ran."""
    inputs: dict[str, Sha256]
    """SHA-256 of each input by name."""


class ShardRef(Manifest):
    """A shard of games inside a game set or window."""

    file: FileRef
    key: Sha256
    """Key of its ShardSpec in the store."""
    generation: int
    first_game: int
    num_games: int
    num_positions: int
    """Moves in all of its games."""


class GameSet(Manifest):
    """`data/games` and `data/match`: the games of one stage of one generation, in order."""

    origin: Origin
    shards: tuple[ShardRef, ...]
    num_games: int
    num_positions: int


class WindowShard(Manifest):
    """A shard of the window and the games of it that are in the window."""

    shard: ShardRef
    skip_games: int
    """Games at its start that are too old to be in the window."""


class Window(Manifest):
    """`data/window`: exactly what the network is trained on, oldest game first."""

    origin: Origin
    shards: tuple[WindowShard, ...]
    num_games: int
    num_positions: int


class Checkpoint(Manifest):
    """`models/challenger` and `state/trainee`: a network in training."""

    origin: Origin
    network: NetworkParams
    step: int
    """Optimiser steps since generation 0."""
    learning_rate_factor: float
    """Factor that the KL adaptation has put on the schedule; 1 without it."""
    weights: FileRef
    """The player: the moving average of the weights, or the weights themselves."""
    optimizer: FileRef
    """Momentum buffers by parameter name."""
    raw_weights: FileRef | None = None
    """The weights that training goes on from, if they are not `weights`: those without the moving average, or after a
    restart those that the training began with."""
    average: FileRef | None = Field(default=None, exclude_if=lambda file: file is None)
    """After a restart: the moving average that training goes on from. None: it is `weights`."""
    restarts: bool = Field(default=False, exclude_if=not_)
    """True: the health check called the training dead (`zero.health`). The next training restarts from the checkpoint
    that this one started from, which `step`, `learning_rate_factor`, `raw_weights`, `optimizer` and `average` repeat.
    Only `weights`, which played the match, come from this training."""

    @property
    def trainee(self) -> FileRef:
        """The weights that training goes on from."""
        return self.raw_weights or self.weights

    @property
    def trainee_average(self) -> FileRef:
        """The moving average that training goes on from."""
        return self.average or self.weights

    @property
    def files(self) -> tuple[FileRef, ...]:
        """All files of the checkpoint."""
        files = (self.weights, self.optimizer, self.raw_weights, self.average)
        return tuple(file for file in files if file is not None)


class Champion(Manifest):
    """`state/champion`: the best player, which plays the games of the next generation.

    With `selfplay.overlap` those are played by `state/champion/selfplay`: an earlier champion, or the same again.
    """

    generation: int
    """Generation whose challenger it was."""
    network: NetworkParams
    weights: FileRef


class Colours(Manifest):
    """Games of the challenger with one colour."""

    wins: int
    losses: int
    draws: int


class MatchResult(Manifest):
    """A match as the challenger sees it."""

    wins: int
    losses: int
    draws: int
    as_black: Colours
    as_white: Colours
    unique_games: int
    """Different sequences of moves among the games."""
    score: float
    """(wins + draws / 2) / games."""
    interval: tuple[float, float]
    """Wilson score interval of 95 %."""
    mean_length: float


class PromotionDecision(Manifest):
    """`metrics/gating.json`: who stays, and why."""

    lineage: str
    generation: int
    promoted: bool
    threshold: float
    match: MatchResult
    challenger: Sha256
    """SHA-256 of its weights."""
    champion: Sha256
    """SHA-256 of the weights it played against."""


class GenerationId(Manifest):
    """`state/generation.json`: which generation of which lineage the workspace makes."""

    lineage: str
    number: int
    resign_threshold: float
    """A player resigns below it, see `zero.stages.resignation`; NO_RESIGNATION: nobody does."""
    player: Sha256 | None = Field(default=None, exclude_if=lambda digest: digest is None)
    """Weights of `state/champion/selfplay`, which play with `selfplay.overlap`; None where there are none."""


class Source(Manifest):
    """The recorded generation that a rollback or a branch takes champion, trainee and window from."""

    tag: str
    commit: str
    line: Sha256
    """SHA-256 of its line of the ledger."""


class LedgerEntry(Manifest):
    """One line of `record/ledger.jsonl`; `previous` chains it to the line before."""

    lineage: str
    generation: int
    kind: Literal["start", "decision", "rollback", "branch"]
    decision: PromotionDecision | None
    source: Source | None
    """Of a rollback or a branch."""
    provenance: Sha256
    """SHA-256 of the signed statement in `record/provenance.intoto.jsonl`."""
    champion: Sha256
    """Weights of the champion after the decision."""
    champion_generation: int
    trainee: Sha256
    """Weights that training goes on from."""
    params_digest: Sha256
    lock_digest: Sha256
    """SHA-256 of dvc.lock; of the empty text where no stage has run."""
    previous: Sha256
    """SHA-256 of the line before; zeros for the first."""


class GameRecord(NamedTuple):
    """One finished game, T moves long."""

    actions: np.ndarray  # [T] int16
    visit_counts: np.ndarray  # [T, A] uint16, policy target times its sum; 0 where a move is no target
    root_values: np.ndarray  # [T] float32, mean value of the search, seen by the player to move
    best_values: np.ndarray  # [T] float32, that of the most visited action
    ownership: np.ndarray  # [S*S] int8 at the end, +1, 0, -1 for Black; [0] where it was not played out or has no area
    outcome: int  # +1, 0, -1 for Black
    margin: float  # Black's area less White's less komi; 0 for games without a score and resigned games
    end: str  # how it ended: "passes", "line", "full", "length", "resignation"
    never_resigns: bool  # True for a calibration game, played to its end whatever the values
    game: int  # number of the game in its generation
    black: str  # SHA-256 of the weights that played Black
    white: str
