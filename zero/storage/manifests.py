"""Manifests: frozen models of what stages exchange as files.

A manifest is canonical JSON (sorted keys, one final newline) and names every file by SHA-256 and size. It holds no
time, duration, host or commit, so that a recomputation gives the same bytes; the provenance of the tag has the commit.
"""

from operator import not_
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from zero.config.params import NetworkParams, PlayParams, SearchParams

if TYPE_CHECKING:
    import numpy as np

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
MANIFEST_FILE = "manifest.json"
RESIGNATION = "resignation"
"""End of a game in which a player resigned."""
NO_RESIGNATION = -1.0
"""Resignation threshold below every value: no player resigns."""


class Manifest(BaseModel):
    """Base class of models that are written as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRef(Manifest):
    """A file and its content."""

    path: str
    """Path relative to the folder of the manifest."""
    sha256: Sha256
    num_bytes: int


class Origin(Manifest):
    """What an artifact was made from; a recomputation gives the same values."""

    stage: str
    lineage: str
    generation: int
    seed: int
    params_digest: Sha256
    engine: Sha256
    """Code digest of the stage."""
    inputs: dict[str, Sha256]
    """SHA-256 of each input by name."""


class GamesFile(Manifest):
    """A file of games with consecutive numbers."""

    first_game: int
    """Number of its first game."""
    num_games: int
    num_positions: int
    """Number of moves in all of its games."""


class ShardRef(GamesFile):
    """A shard of games inside a game set or window."""

    file: FileRef
    key: Sha256
    """Key of its ShardSpec in the store."""
    generation: int


class GameSet(Manifest):
    """`data/games` and `data/match`: the games of one stage of one generation, in order."""

    origin: Origin
    shards: tuple[ShardRef, ...]
    num_games: int
    num_positions: int


class WindowShard(Manifest):
    """A shard of the window, and which of its games are in the window."""

    shard: ShardRef
    skip_games: Annotated[int, Field(ge=0)]
    """Number of games at the start of the shard that are too old for the window."""

    @property
    def num_games(self) -> int:
        """Number of its games that are in the window."""
        return self.shard.num_games - self.skip_games


class Window(Manifest):
    """`data/window`: the games that the network is trained on, oldest first."""

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
    """Factor on the schedule from the KL adaptation; 1 without it."""
    weights: FileRef
    """The player: the moving average of the weights, or the weights themselves."""
    optimizer: FileRef
    """Momentum buffers by parameter name."""
    raw_weights: FileRef | None = None
    """The weights that training continues from, if they are not `weights`: those without the moving average, or after
    a restart those that the training started with."""
    # Left out at its default, like the other fields with `exclude_if`: manifests that older code wrote keep their
    # bytes.
    average: FileRef | None = Field(default=None, exclude_if=lambda file: file is None)
    """After a restart: the moving average that training continues from. None: it is `weights`."""
    restarts: bool = Field(default=False, exclude_if=not_)
    """True: the health check found the training dead (`zero.network.health`), and the next training restarts from the
    checkpoint that this one started from. `step`, `learning_rate_factor`, `raw_weights`, `optimizer` and `average` are
    those of that checkpoint; only `weights`, which played the match, come from this training."""

    @property
    def continued_weights(self) -> FileRef:
        """The weights that training continues from."""
        return self.raw_weights or self.weights

    @property
    def continued_average(self) -> FileRef:
        """The moving average that training continues from."""
        return self.average or self.weights

    @property
    def files(self) -> tuple[FileRef, ...]:
        """All files of the checkpoint."""
        files = (self.weights, self.optimizer, self.raw_weights, self.average)
        return tuple(file for file in files if file is not None)


class Champion(Manifest):
    """`state/champion`: the best player, which plays the games of the next generation.

    With `selfplay.overlap`, `state/champion/selfplay` plays them instead: an earlier champion, or the same one.
    """

    generation: int
    """Generation that trained it."""
    network: NetworkParams
    weights: FileRef


class Colours(Manifest):
    """Wins, losses and draws of the first player of a match; in gating this is the challenger."""

    wins: int
    losses: int
    draws: int

    @staticmethod
    def counted(results: "np.ndarray") -> "Colours":
        """Counts the games in an array of +1 (won), -1 and 0."""
        wins, losses, draws = (int((results == r).sum()) for r in (1, -1, 0))
        return Colours(wins=wins, losses=losses, draws=draws)

    @property
    def num_games(self) -> int:
        """Number of games."""
        return self.wins + self.losses + self.draws

    @property
    def points(self) -> float:
        """Points of the first player: a draw is half a point."""
        return self.wins + self.draws / 2


class MatchResult(Colours):
    """Result of a match for its first player; in gating this is the challenger."""

    as_black: Colours
    as_white: Colours
    unique_games: int
    """Number of different move sequences among the games."""
    score: float
    """(wins + draws / 2) / games."""
    interval: tuple[float, float]
    """Wilson score interval of 95 %."""
    mean_length: float


class PromotionDecision(Manifest):
    """`metrics/gating.json`: whether the challenger was promoted, and why."""

    lineage: str
    generation: int
    promoted: bool
    threshold: float
    match: MatchResult
    challenger: Sha256
    """SHA-256 of its weights."""
    champion: Sha256
    """SHA-256 of the weights of its opponent."""


class GenerationId(Manifest):
    """`state/generation.json`: the lineage, and the generation that the workspace makes next."""

    lineage: str
    number: int
    resign_threshold: float
    """A player resigns below this value, see `zero.stages.resignation`; NO_RESIGNATION: never."""
    player: Sha256 | None = Field(default=None, exclude_if=lambda digest: digest is None)
    """SHA-256 of the weights of `state/champion/selfplay`, for `selfplay.overlap`; None if there are none."""


class Source(Manifest):
    """The recorded generation that a rollback or a branch takes champion, trainee and window from."""

    tag: str
    commit: str
    line: Sha256
    """SHA-256 of the generation's line of the ledger."""


class LedgerEntry(Manifest):
    """One line of `record/ledger.jsonl`; `previous` chains it to the previous line."""

    lineage: str
    generation: int
    kind: Literal["start", "decision", "rollback", "branch"]
    decision: PromotionDecision | None
    source: Source | None
    """Where a rollback or a branch starts from; None for other kinds."""
    provenance: Sha256
    """SHA-256 of the signed attestation in `record/provenance.intoto.jsonl`."""
    champion: Sha256
    """SHA-256 of the champion's weights after the decision."""
    champion_generation: int
    trainee: Sha256
    """SHA-256 of the weights that training continues from."""
    params_digest: Sha256
    lock_digest: Sha256
    """SHA-256 of dvc.lock; of the empty string if no stage has run."""
    previous: Sha256
    """SHA-256 of the previous line; zeros for the first line."""


class ExpectedProperties(Manifest):
    """The part of a `ShardSpec` that the records of its games can be checked against."""

    kind: Literal["selfplay", "gating"]
    search: SearchParams
    play: PlayParams
    resign_threshold: float
    """A player resigns below it; NO_RESIGNATION: never."""
    weights: Annotated[tuple[Sha256, ...], Field(min_length=1, max_length=2)]
    """SHA-256 of the weights of each player: one for self-play; the challenger's and the champion's for gating."""
    seed: int
    generation: int
    first_game: int
    num_games: Annotated[int, Field(ge=1)]

    @property
    def gumbel(self) -> bool:
        """True: the root is a Gumbel root."""
        return self.search.root == "gumbel"

    @property
    def root_noise(self) -> bool:
        """True: Dirichlet or Gumbel noise makes the searches of each game different."""
        return self.kind == "selfplay" and (self.gumbel or self.play.dirichlet_fraction > 0.0)

    @property
    def shows_choices(self) -> bool:
        """True: the policy target is the visit counts that the move was chosen by."""
        return not self.gumbel and self.play.forced_playouts == 0.0


class GameRecord(NamedTuple):
    """One finished game in memory, T moves long. `zero.play` makes those of a shard, `zero.data` stores them.

    It is here, although it is no manifest, so that both packages can import it.
    """

    actions: "np.ndarray"  # [T] int16
    visit_counts: "np.ndarray"  # [T, A] uint16, policy target times its sum; zeros if the move has no target
    root_values: "np.ndarray"  # [T] float32, mean value of the search, seen by the player to move
    best_values: "np.ndarray"  # [T] float32, that of the most visited action
    sample_weights: "np.ndarray"  # [T] float32, how often to draw the move for training; 1 if all are drawn equally
    ownership: "np.ndarray"  # [S*S] int8 at the end, +1, 0, -1 for Black; [0] if not played out or without area
    outcome: int  # +1, 0, -1 for Black
    margin: float  # Black's area less White's less komi; 0 for games without a score and resigned games
    end: str  # how it ended, one of zero.play.slots.END_NAMES
    never_resigns: bool  # True for a calibration game, which is played to its end regardless of the values
    game: int  # number of the game in its generation
    black: str  # SHA-256 of the weights that played Black
    white: str
