"""The experiment: `params.yaml`, read in one place, frozen and validated.

The project's `params.yaml` and the presets in `zero/config/presets/` hold only what differs from the defaults, and some
of their fields may be `auto`. `zero new` resolves `auto` and writes every parameter into the lineage's `params.yaml`:
that file states everything that ran, and DVC sees every change. Addresses and folders, which belong to a machine and
not to an experiment, are in `settings`.

Defaults are the values of the paper (Silver et al. 2017, Methods), or off for what the paper does not have.
"""

import hashlib
import json
from collections.abc import Sequence
from operator import not_
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from zero.errors import ParamsError, did_you_mean

PARAMS_FILE = "params.yaml"
PRESETS_DIR = Path(__file__).parent / "presets"
AUTO = "auto"
YAML_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of the YAML library beside its own, for values such as `2020-13-45` or thousands of brackets."""
AUTO_FIELDS = ("profile.device", "profile.backend", "profile.precision", "profile.training_precision")
"""Parameters that may be `auto` in the project's params.yaml and in presets, see `zero.config.auto`."""

Model = TypeVar("Model", bound=BaseModel)
PositiveInt = Annotated[int, Field(ge=1)]
NumSimulations = Annotated[int, Field(ge=1, le=65_535)]  # a game record stores visit counts as uint16
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen section of the parameters; an unknown name is an error.

    A field that is added later must default to off and have `exclude_if` for that value: digests of files that were
    written before it then stay the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GoParams(Section):
    """Go with area scoring and positional superko; a game ends after two passes or 2*S*S moves."""

    name: Literal["go"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    komi: Annotated[float, Field(ge=-400.0, le=400.0, multiple_of=0.5)] = 7.5
    """Points added to White's area; 7.5 in the paper, 7 is fair on 9x9 (and allows draws)."""
    allow_suicide: bool = False
    """True: a move may remove the player's own stones; the paper and most rule sets forbid it."""


class GomokuParams(Section):
    """Gomoku: the first player with `in_a_row` stones on a line wins; a full board is a draw."""

    name: Literal["gomoku"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    in_a_row: Annotated[int, Field(ge=2, le=19)] = 5
    """Stones in a row (or more) that win."""

    @model_validator(mode="after")
    def _line_fits(self) -> Self:
        if self.in_a_row > self.size:
            raise ValueError(f"in_a_row {self.in_a_row} does not fit on a board of size {self.size}")
        return self


class OthelloParams(Section):
    """Othello: a stone must flip stones of the opponent; who cannot place one passes; more stones at the end win."""

    name: Literal["othello"]
    """The game."""
    size: Annotated[int, Field(ge=4, le=16, multiple_of=2)] = 8
    """Points on a side of the board, S."""


GameParams = Annotated[GoParams | GomokuParams | OthelloParams, Field(discriminator="name")]
GAMES: dict[int | str, type[Section]] = {"go": GoParams, "gomoku": GomokuParams, "othello": OthelloParams}


class SearchParams(Section):
    """Tree search, shared by self-play and matches."""

    c_puct: Annotated[float, Field(gt=0.0, le=100.0)] = 1.5
    """Exploration constant of the PUCT formula."""
    first_play: Literal["zero", "parent"] = "zero"
    """First-play urgency, the value of an action before its first visit: 0 as in the paper, or the mean value of the
    parent. With 0 and few simulations, a losing player visits every action once and then plays by its prior."""
    random_symmetry: bool = True
    """True: each leaf is evaluated under a random symmetry of the board, as in the paper."""
    tree_reuse: bool = True
    """True: the subtree of the played move becomes the next tree, as in the paper."""
    max_nodes: PositiveInt = 4096
    """Nodes that a tree can hold. A reused subtree leaves room for the next move's simulations: its newest nodes are
    dropped if necessary."""
    root: Literal["puct", "gumbel"] = "puct"
    """Action selection at the root: `puct` as in the paper, or `gumbel`: sequential halving over actions drawn without
    replacement, with the improved policy as the target (Danihelka et al. 2022). For few simulations."""
    considered_actions: Annotated[int, Field(ge=1, le=19 * 19 + 1)] = 16
    """Actions that a Gumbel root considers (`max_num_considered_actions` of mctx): 16 in its paper. Self-play can have
    another number."""
    value_scale: Annotated[float, Field(gt=0.0, le=10.0)] = 0.1
    """Weight of Q-values against priors in a Gumbel search, c_scale of its paper: 0.5 for values in [-1, 1] is the
    paper's for Go, 0.1 for rescaled values is mctx's."""
    rescale_values: bool = True
    """True: a Gumbel search rescales the Q-values of a node to [0, 1] by their minimum and maximum."""
    evaluation_cache: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Evaluations that a shard caches, so that equal positions are evaluated once; 0: no cache, as in the paper."""
    pass_wins: Annotated[bool, Field(exclude_if=not_)] = False
    """True: below the root, a position after a pass counts as won if a second pass would win it. Then no player passes
    while dead stones on the board still count for the opponent. False as in the paper: the network evaluates it. Random
    players pass into a loss and do not punish it, so without it a first generation can learn to pass early."""


class PlayParams(Section):
    """How the games of a shard are played, except for the search; self-play and the match have it in common."""

    num_slots: PositiveInt = 100
    """Games of a shard in play at once. A batch has at most one position of each game, or of each in one half of
    them with `profile.half_batches`."""
    num_simulations: NumSimulations = 1600
    """Simulations per move, not counting the evaluation of a new root: 1,600 in the paper."""
    temperature_moves: Annotated[int, Field(ge=0)] = 30
    """Moves at the start of a game drawn in proportion to the visit counts; later the most visited move is played.
    30 in the paper at 19x19; scaled by the area of the board 7 at 9x9, 5 at 8x8."""
    dirichlet_concentration: Annotated[float, Field(gt=0.0)] = 10.83
    """Sum of the parameters of the root noise. Alpha is this divided by the number of legal moves; 10.83 gives 0.03 at
    19x19."""
    dirichlet_fraction: Fraction = 0.25
    """Share of the noise in the root's prior: 0.25 in the paper, 0 for no noise."""
    forced_playouts: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    """k of forced playouts: each visited root action gets at least sqrt(k P N) visits. The policy target leaves out
    those that did not pay off (KataGo: 2). 0: none, as in the paper."""
    full_search_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Playout-cap randomisation: probability that a move gets `num_simulations` (KataGo: 0.25). The other moves get
    `fast_simulations` and no noise, and are not policy targets. 1: every move, as in the paper."""
    fast_simulations: NumSimulations = 12
    """Simulations of a move without full search."""
    considered_actions: Annotated[int, Field(ge=0, le=19 * 19 + 1, exclude_if=not_)] = 0
    """Actions that a Gumbel root considers in self-play; 0: `search.considered_actions`, as in matches."""
    surprise_weight: Annotated[float, Field(ge=0.0, le=1.0, exclude_if=not_)] = 0.0
    """Share of the training samples that is drawn, within each game, in proportion to the policy surprise: the KL
    divergence of the policy target from the root's prior (KataGo: 0.5). The other samples are drawn uniformly. 0: all
    are, as in the paper."""
    calibration_fraction: Fraction = 0.1
    """Share of games in which no one may resign, so that they measure the cost of resignation: 0.1 in the paper. 0:
    nothing can be measured, so no one resigns in any game."""

    @model_validator(mode="after")
    def _fast_is_faster(self) -> Self:
        if self.full_search_fraction < 1.0 and self.fast_simulations > self.num_simulations:
            raise ValueError(
                f"fast_simulations {self.fast_simulations} is above num_simulations {self.num_simulations}; lower it"
            )
        return self


class SelfplayParams(PlayParams):
    """Self-play of the champion."""

    num_games: Annotated[int, Field(ge=0)] = 25_000
    """Games per generation: 25,000 in the paper. 0: no self-play, the network learns from the games in the window."""
    games_per_shard: PositiveInt = 100
    """Games in a shard, the unit of distribution; choose it so that a shard takes 60 seconds or more."""
    false_positive_target: Fraction = 0.05
    """Largest accepted share of false positives: of the calibration games that a threshold would have ended, those that
    the resigning player won or drew. 0.05 in the paper. It chooses the resignation threshold of the next generation."""
    overlap: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: generation n is played by the champion after generation n - 2, so that it can be played while generation
    n - 1 trains and gates; in the paper all three also run at once. False: by the champion after generation n - 1."""

    @property
    def play(self) -> PlayParams:
        """What a shard of self-play needs of this section."""
        return PlayParams.model_validate(self.model_dump(include=set(PlayParams.model_fields)))


def match_play(num_slots: int, num_simulations: int) -> PlayParams:
    """How a match is played: no noise, no random moves, full search for every move."""
    # Not validated: players of `zero match` may search more than the 65,535 visits that a game record can hold.
    return PlayParams.model_construct(
        num_slots=num_slots,
        num_simulations=num_simulations,
        temperature_moves=0,
        dirichlet_fraction=0.0,
        fast_simulations=num_simulations,
        calibration_fraction=0.0,
    )


class GatingParams(Section):
    """The match between challenger and champion."""

    num_games: Annotated[int, Field(ge=2, multiple_of=2)] = 400
    """Games of the match, half with each colour: 400 in the paper."""
    games_per_shard: Annotated[int, Field(ge=2, multiple_of=2)] = 100
    """Games in a shard."""
    num_slots: PositiveInt = 100
    """Games of a shard in play at once."""
    num_simulations: NumSimulations = 1600
    """Simulations per move: 1,600 in the paper."""
    threshold: Fraction = 0.55
    """Score (a draw is half a win) at which the challenger becomes champion: 0.55 in the paper."""

    @property
    def play(self) -> PlayParams:
        """What a shard of the match needs of this section."""
        return match_play(self.num_slots, self.num_simulations)


class VerificationParams(Section):
    """Re-execution check: some shards are played again by another process before a generation is recorded."""

    shard_fraction: Fraction = 0.02
    """Share of the shards of self-play and of the match to play again, at least one of each; 0: none."""
    game_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Share of the games of such a shard to compare: it is played until that many of its games have ended."""


class NetworkParams(Section):
    """The network of the paper (Methods, 'Neural network architecture') at any size."""

    tower: Literal["residual", "plain", "shallow"] = "residual"
    """Trunk. `residual`: one convolution and `num_blocks` residual blocks; `plain`: the same layers without the skips;
    `shallow`: `num_blocks` single convolutions."""
    heads: Literal["joint", "separate"] = "joint"
    """`joint`: one trunk with both heads ('dual' in the paper); `separate`: a trunk per head."""
    num_blocks: Annotated[int, Field(ge=1, le=80)] = 19
    """Blocks of the trunk: 19 or 39 in the paper."""
    num_channels: Annotated[int, Field(ge=1, le=1024)] = 256
    """Channels of every convolution of the trunk: 256 in the paper."""
    value_hidden: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Units of the hidden layer of the value head: 256 in the paper."""
    global_pooling: bool = False
    """True: the second half of the blocks also gets means and maxima over the board (KataGo; not in the paper)."""
    ownership_head: bool = False
    """True: training also predicts the owner of each point at the end of the game (KataGo; not in the paper). The head
    learns only with `training.ownership_loss_weight` above 0, and only from games that were played out."""
    score_head: bool = False
    """True: training also predicts the margin at the end of the game (KataGo; not in the paper). The head learns only
    with `training.score_loss_weight` above 0, and only from games that were played out."""
    pooled_heads: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: the policy head has the same weights at every point and adds features pooled over the board; the value head
    has the pooled features only (KataGo; not in the paper). False: the heads of the paper."""
    zero_init_residual: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: in generation 0 each residual block is the identity (Goyal et al. 2017). Without it the random network of a
    deep trunk has neither uniform priors nor values near 0. The paper does not say how it initialises its network."""
    near_zero_outputs: Annotated[bool, Field(strict=True, exclude_if=not_)] = False
    """True: in generation 0 the weights of the output layers are a tenth of what they are otherwise. Then priors are
    nearly equal and values near 0, and the search follows the game ends that it finds."""


class ReplayParams(Section):
    """The window of games that the network is trained on."""

    window_games: PositiveInt = 500_000
    """Most recent self-play games to sample from: 500,000 in the paper."""
    window_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the lineage's games that the window holds: at most `window_games`, at least the newest generation. With
    0.5 the window soon drops the games of the first, nearly random players. Imported games that have left the window no
    longer count, so they leave it fast. 1, as in the paper: all games."""


class LearningRateStep(Section):
    """One entry of the schedule: from `from_step` on the learning rate is `learning_rate`."""

    from_step: Annotated[int, Field(ge=0)]
    """First optimiser step (counted from generation 1) of this entry."""
    learning_rate: Annotated[float, Field(gt=0.0, le=10.0)]
    """The learning rate."""


ValueLoss = Literal["squared_error", "cross_entropy"]
PAPER_SCHEDULE = (
    LearningRateStep(from_step=0, learning_rate=0.01),
    LearningRateStep(from_step=400_000, learning_rate=0.001),
    LearningRateStep(from_step=600_000, learning_rate=0.0001),
)
"""Extended Data Table 3 of the paper, the rates of reinforcement learning."""


class TrainingParams(Section):
    """Optimisation of the trainee on the window."""

    num_steps: PositiveInt = 1000
    """Optimiser steps per generation. The paper evaluates a checkpoint every 1,000 steps."""
    batch_size: PositiveInt = 2048
    """Samples per step: 2,048 in the paper."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum, as in the paper, or Adam."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Momentum of SGD, first-moment decay of Adam: 0.9 in the paper."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    """c of the L2 term c * |theta|^2 in the loss (so its gradient is 2 * c * theta): 1e-4 in the paper. Adam subtracts
    the learning rate times that gradient from the weights, apart from its step (AdamW)."""
    search_value_weight: Annotated[float, Field(ge=0.0, le=1.0, exclude_if=not_)] = 0.0
    """Share of the search's value in the value target; the rest is the outcome. 0: the outcome alone, as in the
    paper."""
    value_loss: Annotated[ValueLoss, Field(exclude_if=lambda loss: loss == "squared_error")] = "squared_error"
    """Loss of the value v against its target z: (z - v)^2 as in the paper, or the cross-entropy of the winning
    probability (1 + v) / 2, whose gradient does not vanish for v near 1 or -1."""
    value_loss_weight: Annotated[float, Field(gt=0.0)] = 1.0
    """Weight of the value loss: 1 in the paper for self-play, 0.01 for supervised learning."""
    ownership_loss_weight: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the ownership loss, if the network has that head."""
    score_loss_weight: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the score loss, if the network has that head."""
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Decay of the moving average of the weights that becomes the challenger, min(ema_decay, (1 + n) / (10 + n)) after
    n steps; 0: the last weights, as in the paper."""
    learning_rate: Annotated[tuple[LearningRateStep, ...], Field(min_length=1)] = PAPER_SCHEDULE
    """The schedule; the first entry starts at step 0."""
    warmup_steps: Annotated[int, Field(ge=0, exclude_if=not_)] = 0
    """Optimiser steps, counted from generation 1, over which the learning rate rises linearly to the schedule. 0: no
    warm-up, as in the paper."""
    kl_target: Annotated[float, Field(ge=0.0)] = 0.0
    """Target in nats of the policy's KL divergence over a step; the learning rate is multiplied by a factor from 0.1 to
    10 that adapts to it, also across entries of the schedule. 0: no adaptation."""
    random_symmetry: bool = True
    """True: each sample is transformed by a random symmetry of the board."""
    checkpoint_interval: PositiveInt = 1000
    """Steps between the training checkpoints from which an interrupted training continues."""
    log_interval: PositiveInt = 10
    """Steps that a line of the training curve averages."""

    @model_validator(mode="after")
    def _schedule_is_ordered(self) -> Self:
        steps = [entry.from_step for entry in self.learning_rate]
        if steps[0] != 0 or sorted(set(steps)) != steps:
            raise ValueError(f"learning_rate must start at step 0 and rise, got steps {steps}")
        if self.warmup_steps > self.num_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} is longer than the first training, num_steps {self.num_steps}; "
                "lower it"
            )
        return self


class ProfileParams(Section):
    """The part of the execution profile that is chosen; the rest is read from the machine. Results depend on it."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Device that runs the network. `auto` (see `zero.config.auto`): CUDA if this machine has it, else the CPU."""
    backend: Literal["torch", "openvino"] = "torch"
    """Library that runs the network in play: PyTorch (with captured graphs on CUDA), or OpenVINO on a CPU. `auto`:
    OpenVINO on a CPU, PyTorch on CUDA."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the network in play. `auto`: bf16 if this machine computes it faster than fp32."""
    training_precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the layers in training; weights and sums are in fp32. `auto`: as for `precision`."""
    isa: Literal["native", "avx2"] = "native"
    """`avx2` limits the CPU's instruction set, so that machines with and without AVX-512 give the same bits."""
    selfplay_threads: PositiveInt = 1
    """Threads of the network in a process that plays a shard."""
    search_threads: PositiveInt = 1
    """Threads of the search in a process that plays a shard; each has its own part of the games. 1 on a CPU."""
    half_batches: bool = False
    """Double buffering for a GPU. True: half of the games are searched while the network evaluates the other half."""
    training_threads: PositiveInt = 1
    """Threads of the process that trains."""
    training_processes: PositiveInt = 1
    """Processes that train, each on its share of the batch; on CUDA one per GPU. Batch normalisation sees only a
    share, so another number changes what the network learns."""

    @model_validator(mode="after")
    def _backend_has_device(self) -> Self:
        if self.backend == "openvino" and self.device != "cpu":
            raise ValueError(f"backend 'openvino' runs on device 'cpu', got {self.device!r}; set backend to 'torch'")
        return self


def _current_name(kind: object) -> object:
    return "dask" if kind == "pool" else kind


ExecutorKind = Annotated[Literal["local", "dask"], BeforeValidator(_current_name)]
"""Kinds of executors. Parameters files that are older than the Dask cluster have `pool`, which is read as `dask`."""


class ExecutorParams(Section):
    """Who plays the shards. Changes no result, and no stage depends on it."""

    kind: ExecutorKind = "local"
    """`local`: processes of this machine; `dask`: workers of a Dask cluster, which play the shards and train."""
    address: str = ""
    """Address of the Dask scheduler, such as `tls://host:8786`. Empty: Dask's own setting, `DASK_SCHEDULER_ADDRESS`."""
    num_processes: Annotated[int, Field(ge=0)] = 0
    """Processes of the local executor; 0: one per `profile.selfplay_threads` cores, or two per GPU."""


class Params(Section):
    """All of `params.yaml`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Root of every random stream of the lineage."""
    dataset: Annotated[str, Field(exclude_if=not_)] = ""
    """Folder of imported games, relative to the project (`zero import`). The games of its training split are the window
    with which the lineage starts. Empty: the window starts without games."""
    game: GameParams
    network: NetworkParams = NetworkParams()
    search: SearchParams = SearchParams()
    selfplay: SelfplayParams = SelfplayParams()
    replay: ReplayParams = ReplayParams()
    training: TrainingParams = TrainingParams()
    gating: GatingParams = GatingParams()
    verification: VerificationParams = VerificationParams()
    profile: ProfileParams = ProfileParams()
    executor: ExecutorParams = ExecutorParams()

    @model_validator(mode="after")
    def _first_window_has_games(self) -> Self:
        if not self.selfplay.num_games:
            if not self.dataset:
                raise ValueError("selfplay.num_games 0 leaves no games to learn from; raise it, or set dataset")
            if self.selfplay.overlap:
                raise ValueError("selfplay.overlap has no effect with selfplay.num_games 0; set it to false")
        return self

    @model_validator(mode="after")
    def _shards_and_trees_fit(self) -> Self:
        for name, stage in (("selfplay", self.selfplay), ("gating", self.gating)):
            if self.search.max_nodes < stage.num_simulations + 2:
                raise ValueError(
                    f"search.max_nodes {self.search.max_nodes} is too small: {name}.num_simulations "
                    f"{stage.num_simulations} needs at least {stage.num_simulations + 2}"
                )
        if self.network.global_pooling and self.network.tower == "shallow":
            raise ValueError("network.global_pooling needs blocks, a 'shallow' tower has none; set it to false")
        if self.training.batch_size % self.profile.training_processes:
            raise ValueError(
                f"training.batch_size {self.training.batch_size} is not a multiple of profile.training_processes "
                f"{self.profile.training_processes}; make it one"
            )
        if self.search.root == "gumbel":
            for name in ("dirichlet_fraction", "forced_playouts", "temperature_moves"):
                if value := getattr(self.selfplay, name):
                    raise ValueError(f"selfplay.{name} {value} has no effect at a Gumbel root; set it to 0")
        if self.game.name != "go":
            for name in ("ownership_head", "score_head"):
                if getattr(self.network, name):
                    raise ValueError(f"network.{name} is only for Go; set it to false for {self.game.name}")
        return self


class ParamsLoader(yaml.SafeLoader):
    """Rejects a name that occurs twice in a section, as DVC does, which reads the same file."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The names and values of a section.

        Raises:
          ConstructorError: a name occurs twice.
        """
        lines: dict[str, int] = {}
        for name, _ in node.value:
            line = name.start_mark.line + 1
            if name.value in lines:
                problem = f"{name.value!r} is in line {lines[name.value]} and again in line {line}; remove one of them"
                raise yaml.constructor.ConstructorError(problem=problem)
            lines[name.value] = line
        tree: dict[Any, Any] = super().construct_mapping(node, deep)
        return tree


def parse_params(text: str, source: str = PARAMS_FILE) -> Params:
    """Parameters from the text of a YAML file.

    Raises:
      ParamsError: a parameter is unknown, missing or out of range; the message has the first one, and the remedy.
    """
    return _validated(Params, text, source)


class _GameOnly(BaseModel):
    """A parameters file of which only the game is read; `auto` and other versions' parameters do not matter."""

    game: GameParams


def parse_game(text: str, source: str = PARAMS_FILE) -> GameParams:
    """The section `game` of the text of a YAML file; the other sections are not checked.

    Raises:
      ParamsError: as `parse_params`.
    """
    return _validated(_GameOnly, text, source).game


def _validated(kind: type[Model], text: str, source: str) -> Model:
    try:
        return kind.model_validate(_tree(text, source))
    except ValidationError as error:
        raise ParamsError(f"{source}: {_first_violation(error)}") from None


def _tree(text: str, source: str) -> Any:
    try:
        return yaml.load(text, ParamsLoader)
    except (yaml.YAMLError, *YAML_ERRORS) as error:
        raise ParamsError(f"{source} is not YAML: {' '.join(str(error).split())}") from None


def with_changes(text: str, changes: Sequence[str], source: str = PARAMS_FILE) -> str:
    """The text of a parameters file with other values; comments are lost. `parse_params` reports unknown names.

    Args:
      text: the file.
      changes: such as `seed=7` or `search.c_puct=2`, with the value in YAML.
      source: name of the file in errors.

    Raises:
      ParamsError: the text or a value is not YAML, or a change has another form.
    """
    tree = _tree(text, source) if changes else None
    if not isinstance(tree, dict):
        return text
    for change in changes:
        name, equals, value = change.partition("=")
        section, dot, field = name.strip().rpartition(".")
        if not equals or not field or "." in section or (dot and not isinstance(tree.get(section, {}), dict)):
            raise ParamsError(f"{change!r} is not a change; write section.name=value, such as search.c_puct=2")
        changed = tree.setdefault(section, {}) if section else tree
        changed[field] = _tree(value, f"the value of {name.strip()}")
    return yaml.safe_dump(tree, sort_keys=False)


def params_text(params: Params) -> str:
    """Text of a parameters file that holds every parameter, also those with default values."""
    tree = yaml.safe_dump(_complete(params), sort_keys=False)
    return f"# Every parameter of the lineage; explained in zero/config.\n{tree}"


def load_params(folder: Path) -> Params:
    """Parameters of a lineage's workspace, in which no value is `auto`.

    Raises:
      ParamsError: the file is missing or is not YAML, or a parameter is unknown, missing or out of range.
    """
    return parse_params(read_params_text(folder), str(folder / PARAMS_FILE))


def read_params_text(folder: Path) -> str:
    """Text of the parameters file of a workspace or the project.

    Raises:
      ParamsError: the file is missing or is not UTF-8.
    """
    path = folder / PARAMS_FILE
    try:
        return path.read_text("utf-8")
    except OSError:
        raise ParamsError(f"no {PARAMS_FILE} in {folder}; run this in a lineage's workspace or the project") from None
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path} is not YAML: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def overlap_of(text: str) -> bool:
    """`selfplay.overlap` of a parameters file of any version, even one that this version cannot validate."""
    # As `Params` reads it: the field is strict, so no other value means True.
    return section_of(text, "selfplay").get("overlap") is True


def section_of(text: str, name: str) -> dict[str, Any]:
    """A section of a parameters file as written; empty if the text has none, or is not a parameters file."""
    try:
        tree = _tree(text, "")
    except ParamsError:
        return {}
    section = tree.get(name) if isinstance(tree, dict) else None
    return section if isinstance(section, dict) else {}


def presets() -> list[str]:
    """Names of the presets: parameter files to start a lineage with."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def preset_text(name: str) -> str:
    """Text of a preset.

    Raises:
      ParamsError: the preset does not exist.
    """
    if name not in presets():
        raise ParamsError(f"unknown preset {name!r}{did_you_mean(name, presets())}; presets: {', '.join(presets())}")
    return (PRESETS_DIR / f"{name}.yaml").read_text()


PLAY_SECTIONS = (
    *("seed", "game", "search"),
    *("profile.device", "profile.backend", "profile.precision", "profile.isa"),
    *("profile.selfplay_threads", "profile.search_threads", "profile.half_batches"),
)
STAGE_SECTIONS = {
    "selfplay": (*PLAY_SECTIONS, "selfplay"),
    "replay": ("seed", "game", "search", "selfplay", "replay"),
    "training": (
        *("seed", "game", "network", "training", "profile.device", "profile.training_precision", "profile.isa"),
        *("profile.training_threads", "profile.training_processes"),
    ),
    "gating": (*PLAY_SECTIONS, "gating"),
    "verification": (*PLAY_SECTIONS, "selfplay", "gating", "verification"),
}
"""The parameters that a stage depends on; `dvc.yaml` has the same list."""


def params_digest(params: Params, stage: str | None = None) -> str:
    """SHA-256 (hex) of the parameters that a stage depends on; without a stage, of all parameters but the executor."""
    tree = params.model_dump(mode="json", exclude={"executor"})
    if stage is not None:
        tree = {name: _dig(tree, name) for name in STAGE_SECTIONS[stage]}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _first_violation(error: ValidationError) -> str:
    """The first violation as `name = value: cause; remedy`; unknown names come first, since they explain the rest."""
    violations = error.errors()
    violation = next((v for v in violations if v["type"] == "extra_forbidden"), violations[0])
    loc = violation["loc"]
    # Without the tag that pydantic adds below `game`.
    path = [str(part) for index, part in enumerate(loc) if not (index == 1 and loc[0] == "game" and part in GAMES)]
    name = ".".join(path) or "the file"
    if violation["type"] == "extra_forbidden":
        return f"unknown parameter {name}{did_you_mean(path[-1], _names_beside(violation['loc']))}"
    if violation["type"] == "missing":
        return f"parameter {name} is missing and has no default; add it, see docs/parameters.md"
    if violation["input"] == AUTO and name in AUTO_FIELDS:
        expected = violation["ctx"]["expected"]
        return f"{name} = 'auto' is for `zero new`, which records the value it chose; write {expected}"
    if violation["type"] == "union_tag_invalid":
        return f"{name}.name = {violation['ctx']['tag']!r}: must be one of {violation['ctx']['expected_tags']}"
    if violation["type"] == "model_type":
        return f"{name} must be a mapping, got {violation['input']!r}"
    cause = violation["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
    if isinstance(violation["input"], dict):  # a rule about several parameters, which names them
        return ": ".join([*path, cause])
    return f"{name} = {violation['input']!r}: {cause}"


def _names_beside(location: tuple[int | str, ...]) -> list[str]:
    """Names of the section that a field is in, by the path that pydantic gives."""
    section: type[Section] = Params
    for part in location[:-1]:  # pydantic adds the tag of a union and the index of a list to the path
        if isinstance(part, int):
            section = LearningRateStep  # the only list
        elif part in GAMES:
            section = GAMES[part]
        elif isinstance(annotation := section.model_fields[part].annotation, type) and issubclass(annotation, Section):
            section = annotation
    return list(section.model_fields)


def _complete(value: Any) -> Any:
    """A section as plain YAML values, with the fields that `model_dump` leaves out because they are off."""
    if isinstance(value, Section):
        return {name: _complete(getattr(value, name)) for name in type(value).model_fields}
    return [_complete(item) for item in value] if isinstance(value, tuple) else value


def _dig(tree: Any, name: str) -> Any:
    for part in name.split("."):
        tree = tree[part]
    return tree
