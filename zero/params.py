"""The experiment: `params.yaml`, read in one place, frozen and validated.

Every field is required, so that a file says the whole of what was run and DVC sees every change. A preset is such a
file in `zero/presets/`. What belongs to a machine and not to an experiment (addresses, folders) is in `settings`.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zero.errors import ParamsError, did_you_mean

PARAMS_FILE = "params.yaml"

PositiveInt = Annotated[int, Field(ge=1)]
NumSimulations = Annotated[int, Field(ge=1, le=65_535)]  # more visits than a game record can hold
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen section of the parameters; an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class GoParams(Section):
    """Go with area scoring, positional superko as legality, and two passes or 2*S*S moves as its end."""

    name: Literal["go"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    komi: Annotated[float, Field(ge=-400.0, le=400.0, multiple_of=0.5)]
    """Points added to White's area; 7.5 in the paper, 7 is fair on 9x9 (and allows draws)."""
    allow_suicide: bool
    """True where a move may remove the player's own stones; the paper and most rule sets forbid it."""


class GomokuParams(Section):
    """Gomoku: the first to own `in_a_row` points on a line wins; a full board is a draw."""

    name: Literal["gomoku"]
    """The game."""
    size: Annotated[int, Field(ge=2, le=19)]
    """Points on a side of the board, S."""
    in_a_row: Annotated[int, Field(ge=2, le=19)]
    """Stones in a row (or more) that win."""

    @model_validator(mode="after")
    def _line_fits(self) -> Self:
        if self.in_a_row > self.size:
            raise ValueError(f"in_a_row {self.in_a_row} does not fit on a board of size {self.size}")
        return self


GameParams = Annotated[GoParams | GomokuParams, Field(discriminator="name")]


class NetworkParams(Section):
    """The network of the paper (Methods, 'Neural network architecture') at any size."""

    tower: Literal["residual", "plain", "shallow"]
    """`residual`: one convolution and `num_blocks` residual blocks; `plain`: the same layers without the skips;
    `shallow`: `num_blocks` single convolutions."""
    heads: Literal["joint", "separate"]
    """`joint`: one tower with both heads ('dual' in the paper); `separate`: a tower a head."""
    num_blocks: Annotated[int, Field(ge=1, le=80)]
    """Blocks of the tower: 19 or 39 in the paper."""
    num_channels: Annotated[int, Field(ge=1, le=1024)]
    """Channels of every convolution of the tower: 256 in the paper."""
    value_hidden: PositiveInt
    """Units of the hidden layer of the value head: 256 in the paper."""
    global_pooling: bool
    """True: the second half of the blocks also see means and maxima over the whole board (KataGo; not in the paper)."""
    ownership_head: bool
    """True: training also predicts who owns each point at the end of the game (KataGo; not in the paper)."""
    score_head: bool
    """True: training also predicts the margin at the end of the game (KataGo; not in the paper)."""


class SearchParams(Section):
    """PUCT search, shared by self-play and matches."""

    c_puct: Annotated[float, Field(gt=0.0, le=100.0)]
    """Exploration constant of the PUCT formula."""
    first_play: Literal["zero", "parent"]
    """Value of an action before its first visit: 0 as in the paper, or the mean value of the position. With few
    simulations 0 makes a player that is behind try everything once and then play by its prior alone."""
    random_symmetry: bool
    """True: each leaf is evaluated under a symmetry of the board drawn at random, as in the paper."""
    tree_reuse: bool
    """True: the subtree of the move played becomes the next tree, as in the paper."""
    max_nodes: PositiveInt
    """Nodes a tree can hold; of a larger reused subtree the newest nodes are forgotten."""
    root: Literal["puct", "gumbel"]
    """How the root spends its simulations: `puct` as in the paper, or `gumbel`: sequential halving over actions drawn
    without replacement, with the improved policy as the target (Danihelka et al. 2022). For few simulations."""
    considered_actions: PositiveInt
    """Actions that a Gumbel root considers: 16 in its paper."""
    value_scale: Annotated[float, Field(gt=0.0, le=10.0)]
    """How much Q-values weigh against priors in a Gumbel search, its paper's c_scale: 0.5 of values from -1 to 1 is the
    paper's for Go, 0.1 of rescaled ones mctx's."""
    rescale_values: bool
    """True: in a Gumbel search the Q-values of a node are brought to [0, 1] by the least and the greatest of them."""
    evaluation_cache: Annotated[int, Field(ge=0, le=2**20)]
    """Evaluations that a shard remembers, so that equal questions are asked once; 0: none, as in the paper."""


class SelfplayParams(Section):
    """Self-play of the champion against itself."""

    num_games: PositiveInt
    """Games a generation: 25,000 in the paper."""
    games_per_shard: PositiveInt
    """Games a shard, the unit of distribution; give a shard 60 seconds of work or more."""
    num_slots: PositiveInt
    """Games of a shard in play at once: the largest batch of the network."""
    num_simulations: NumSimulations
    """Simulations a move, beside the evaluation of a new root: 1,600 in the paper."""
    temperature_moves: Annotated[int, Field(ge=0)]
    """Moves at the start of a game drawn in proportion to the visit counts; later the most visited move is played.
    30 in the paper at 19x19; scaled by the area of the board 7 at 9x9, 5 at 8x8."""
    dirichlet_concentration: Annotated[float, Field(gt=0.0)]
    """Sum of the root noise's parameters: alpha is this over the number of legal moves; 10.83 gives 0.03 at 19x19."""
    dirichlet_fraction: Fraction
    """Share of the noise in the root's prior: 0.25 in the paper, 0 for none."""
    forced_playouts: Annotated[float, Field(ge=0.0, le=100.0)]
    """k of forced playouts: root actions get at least sqrt(k P N) visits, which the policy target leaves out where they
    did not pay (KataGo: 2); 0: none, as in the paper."""
    full_search_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of moves with `num_simulations`, drawn at random; the others are played fast, without noise, and are no
    policy target (playout-cap randomisation; KataGo: 0.25). 1: every move, as in the paper."""
    fast_simulations: NumSimulations
    """Simulations of a fast move."""
    calibration_fraction: Fraction
    """Share of games that never resign and measure what resignation costs: 0.1 in the paper; 0: no game resigns."""
    false_positive_target: Fraction
    """Of the calibration games that would have been resigned, the share that may have been won: 0.05 in the paper. The
    next generation's threshold is set by it."""

    @model_validator(mode="after")
    def _fast_is_faster(self) -> Self:
        if self.fast_simulations > self.num_simulations:
            raise ValueError(
                f"fast_simulations {self.fast_simulations} is above num_simulations {self.num_simulations}"
            )
        return self


class ReplayParams(Section):
    """The window of games that the network is trained on."""

    window_games: PositiveInt
    """Most recent self-play games to sample from: 500,000 in the paper."""
    window_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of the lineage's games in the window until it is full, but never less than the newest generation: with 0.5
    it forgets the first, nearly random players soon. 1 as in the paper: all, until there are `window_games`."""


class LearningRateStep(Section):
    """From `from_step` on the learning rate is `learning_rate`."""

    from_step: Annotated[int, Field(ge=0)]
    """First optimiser step (counted from generation 1) that it holds for."""
    learning_rate: Annotated[float, Field(gt=0.0, le=10.0)]
    """The rate."""


class TrainingParams(Section):
    """Optimisation of the trainee on the window."""

    num_steps: PositiveInt
    """Optimiser steps a generation."""
    batch_size: PositiveInt
    """Samples a step: 2,048 in the paper."""
    optimizer: Literal["sgd", "adam"]
    """SGD with momentum, as in the paper, or Adam."""
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)]
    """Momentum of SGD, first-moment decay of Adam: 0.9 in the paper."""
    weight_decay: Annotated[float, Field(ge=0.0)]
    """c of the L2 term c * |theta|^2 in the loss (so its gradient is 2 * c * theta): 1e-4 in the paper."""
    value_loss_weight: Annotated[float, Field(gt=0.0)]
    """Weight of the value loss: 1 in the paper for self-play, 0.01 for supervised learning."""
    ownership_loss_weight: Annotated[float, Field(ge=0.0)]
    """Weight of the ownership loss, where the network has that head."""
    score_loss_weight: Annotated[float, Field(ge=0.0)]
    """Weight of the score loss, where the network has that head."""
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)]
    """Decay of the moving average of the weights that becomes the challenger, min(ema_decay, (1 + n) / (10 + n)) after
    n steps; 0: the last weights, as in the paper."""
    learning_rate: Annotated[tuple[LearningRateStep, ...], Field(min_length=1)]
    """The schedule; the first entry starts at step 0."""
    kl_target: Annotated[float, Field(ge=0.0)]
    """KL divergence of the policy over a step that the learning rate is adapted to; 0: no adaptation."""
    random_symmetry: bool
    """True: each sample is shown under a symmetry of the board drawn at random."""
    checkpoint_interval: PositiveInt
    """Steps between the checkpoints that an interrupted training goes on from: 1,000 in the paper."""
    log_interval: PositiveInt
    """Steps a line of the training curve is the mean of."""

    @model_validator(mode="after")
    def _schedule_is_ordered(self) -> Self:
        steps = [entry.from_step for entry in self.learning_rate]
        if steps[0] != 0 or sorted(set(steps)) != steps:
            raise ValueError(f"learning_rate must start at step 0 and rise, got steps {steps}")
        return self


class GatingParams(Section):
    """The match of the challenger against the champion."""

    num_games: Annotated[int, Field(ge=2, multiple_of=2)]
    """Games of the match, half with each colour: 400 in the paper."""
    games_per_shard: Annotated[int, Field(ge=2, multiple_of=2)]
    """Games a shard."""
    num_slots: PositiveInt
    """Games of a shard in play at once."""
    num_simulations: NumSimulations
    """Simulations a move: 1,600 in the paper."""
    threshold: Fraction
    """Score (a draw is half a win) at which the challenger becomes champion: 0.55 in the paper."""


class VerificationParams(Section):
    """Double play: shards that are played a second time, by another process, before a generation is recorded."""

    shard_fraction: Fraction
    """Shards of self-play, and of the match, that are drawn for it; at least one of each, none where it is 0."""
    game_fraction: Annotated[float, Field(gt=0.0, le=1.0)]
    """Games of such a shard to compare: it is played until so many of its games have ended."""


class ProfileParams(Section):
    """What the bits of a result may depend on; the rest of the execution profile is read off the machine."""

    device: Literal["cpu", "cuda"]
    """Where the network runs."""
    backend: Literal["torch", "openvino"]
    """What runs the network in play: PyTorch (with captured graphs on CUDA), or OpenVINO on a CPU."""
    precision: Literal["fp32", "bf16"]
    """Arithmetic of the network in play."""
    training_precision: Literal["fp32", "bf16"]
    """Arithmetic of the convolutions in training; weights and sums are in fp32."""
    isa: Literal["native", "avx2"]
    """`avx2` limits the CPU's instruction set, so that machines with and without AVX-512 give the same bits."""
    selfplay_threads: PositiveInt
    """Threads of the network in a process that plays a shard."""
    search_threads: PositiveInt
    """Threads of the search in a process that plays a shard; each has its own part of the games. 1 on a CPU."""
    half_batches: bool
    """True: the games are in two halves, and one is searched while the network judges the other; for a GPU."""
    training_threads: PositiveInt
    """Threads of the process that trains."""
    training_processes: PositiveInt
    """Processes that train, each on its share of the batch; on CUDA one a GPU."""

    @model_validator(mode="after")
    def _backend_has_device(self) -> Self:
        if self.backend == "openvino" and self.device != "cpu":
            raise ValueError(f"backend 'openvino' runs on device 'cpu', got {self.device!r}; set backend to 'torch'")
        return self


class ExecutorParams(Section):
    """Who plays the shards. Changes no result, and no stage depends on it."""

    kind: Literal["local", "pool"]
    """`local`: processes of this machine; `pool`: each shard a run of the `zero-shard` deployment."""
    num_processes: Annotated[int, Field(ge=0)]
    """Processes of the local executor; 0: one a core, or one a GPU."""


class Params(Section):
    """The whole of `params.yaml`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)]
    """Root of every random stream of the lineage."""
    game: GameParams
    network: NetworkParams
    search: SearchParams
    selfplay: SelfplayParams
    replay: ReplayParams
    training: TrainingParams
    gating: GatingParams
    verification: VerificationParams
    profile: ProfileParams
    executor: ExecutorParams

    @model_validator(mode="after")
    def _shards_and_trees_fit(self) -> Self:
        for name, stage in (("selfplay", self.selfplay), ("gating", self.gating)):
            if self.search.max_nodes < stage.num_simulations + 2:
                raise ValueError(
                    f"search.max_nodes {self.search.max_nodes} is too small: {name}.num_simulations "
                    f"{stage.num_simulations} needs at least {stage.num_simulations + 2}"
                )
        if self.network.global_pooling and self.network.tower == "shallow":
            raise ValueError("network.global_pooling has no blocks in a 'shallow' tower; set it to false")
        if self.training.batch_size % self.profile.training_processes:
            raise ValueError(
                f"training.batch_size {self.training.batch_size} cannot be shared by profile.training_processes "
                f"{self.profile.training_processes}; make it a multiple"
            )
        if self.search.root == "gumbel":
            for name in ("dirichlet_fraction", "forced_playouts"):
                if value := getattr(self.selfplay, name):
                    raise ValueError(f"selfplay.{name} {value} has no place at a Gumbel root; set it to 0")
        if self.game.name != "go":
            for name in ("ownership_head", "score_head"):
                if getattr(self.network, name):
                    raise ValueError(f"network.{name} is for Go alone; set it to false for {self.game.name}")
        return self


def parse_params(text: str, source: str = PARAMS_FILE) -> Params:
    """Parameters from the text of a YAML file.

    Raises:
      ParamsError: with the first field at fault, its value and the remedy.
    """
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ParamsError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        raise ParamsError(f"{source}: {_first_fault(error, tree)}") from None


def load_params(folder: Path) -> Params:
    """Parameters of a project folder or workspace.

    Raises:
      ParamsError: the file is missing, misspelt or out of range.
    """
    path = folder / PARAMS_FILE
    try:
        text = path.read_text("utf-8")
    except OSError:
        raise ParamsError(f"no {PARAMS_FILE} in {folder}; run this in a lineage's workspace or the project") from None
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path} is not YAML: byte {error.start} is no UTF-8; save the file as UTF-8") from None
    return parse_params(text, str(path))


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
"""The parameters that a stage depends on; `dvc.yaml` has the same."""


def params_digest(params: Params, stage: str | None = None) -> str:
    """SHA-256 (hex) of the parameters that a stage depends on; without a stage, of all but the executor."""
    tree = params.model_dump(mode="json", exclude={"executor"})
    if stage is not None:
        tree = {name: _dig(tree, name) for name in STAGE_SECTIONS[stage]}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _first_fault(error: ValidationError, tree: Any) -> str:
    faults = error.errors()
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    path = [str(part) for part in fault["loc"] if part not in ("go", "gomoku")]
    name = ".".join(path) or "the file"
    if fault["type"] == "extra_forbidden":
        siblings = [f["loc"][-1] for f in faults if f["type"] == "missing" and f["loc"][:-1] == fault["loc"][:-1]]
        return f"unknown parameter {name}{did_you_mean(path[-1], [str(s) for s in siblings])}"
    if fault["type"] == "missing":
        return f"parameter {name} is missing; every parameter is written out, see zero/presets/"
    value = "" if isinstance(fault["input"], dict) else f" = {fault['input']!r}"
    return f"{name}{value}: {fault['msg'].removeprefix('Value error, ')}"


def _dig(tree: Any, name: str) -> Any:
    for part in name.split("."):
        tree = tree[part]
    return tree
