"""The experiment: `params.yaml`, read in one place, frozen and validated.

Most fields are required, so that a file says the whole of what was run and DVC sees every change. A few came later and
are optional (`docs/parameters.md` lists them): a file without one of them is a file from before it, in which it is off.
A preset is such a file in `zero/config/presets/`. Settings of a machine rather than of an experiment (addresses,
folders) are in `settings`.

In the project's params.yaml and in presets some fields may be `auto`. `zero new` writes the value that it chose into
the lineage's file.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from zero.config.auto import AUTO, AUTO_FIELDS
from zero.config.learning import LearningRateStep, NetworkParams, ReplayParams, TrainingParams, ValueLoss
from zero.config.machine import ExecutorKind, ExecutorParams, ProfileParams
from zero.config.play import (
    GameParams,
    GatingParams,
    GomokuParams,
    GoParams,
    SearchParams,
    SelfplayParams,
    VerificationParams,
)
from zero.config.section import Section
from zero.errors import ParamsError, did_you_mean

__all__ = [
    "PARAMS_FILE",
    "PLAY_SECTIONS",
    "STAGE_SECTIONS",
    "ExecutorKind",
    "ExecutorParams",
    "GameParams",
    "GatingParams",
    "GoParams",
    "GomokuParams",
    "LearningRateStep",
    "NetworkParams",
    "Params",
    "ProfileParams",
    "ReplayParams",
    "SearchParams",
    "SelfplayParams",
    "TrainingParams",
    "ValueLoss",
    "VerificationParams",
    "load_params",
    "overlap_of",
    "params_digest",
    "parse_params",
    "read_params_text",
]

PARAMS_FILE = "params.yaml"


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
            for name in ("dirichlet_fraction", "forced_playouts", "temperature_moves"):
                if value := getattr(self.selfplay, name):
                    raise ValueError(f"selfplay.{name} {value} has no place at a Gumbel root; set it to 0")
        if self.game.name != "go":
            for name in ("ownership_head", "score_head"):
                if getattr(self.network, name):
                    raise ValueError(f"network.{name} is for Go alone; set it to false for {self.game.name}")
        return self


class _Loader(yaml.SafeLoader):
    """Takes no name twice in a section: DVC, which reads the same file, does not either."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for name, _ in node.value:
            line = name.start_mark.line + 1
            if name.value in lines:
                words = f"{name.value!r} is in line {lines[name.value]} and again in line {line}; remove one of them"
                raise yaml.constructor.ConstructorError(problem=words)
            lines[name.value] = line
        tree: dict[Any, Any] = super().construct_mapping(node, deep)
        return tree


def parse_params(text: str, source: str = PARAMS_FILE) -> Params:
    """Parameters from the text of a YAML file.

    Raises:
      ParamsError: with the first field at fault, its value and the remedy.
    """
    try:
        tree = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ParamsError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        raise ParamsError(f"{source}: {_first_fault(error, tree)}") from None


def load_params(folder: Path) -> Params:
    """Parameters of a lineage's workspace, in which no value is `auto`.

    Raises:
      ParamsError: the file is missing, misspelt or out of range.
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
        raise ParamsError(f"{path} is not YAML: byte {error.start} is no UTF-8; save the file as UTF-8") from None


def overlap_of(text: str) -> bool:
    """`selfplay.overlap` of a parameters file of any version, also of one that this version cannot read."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    section = tree.get("selfplay") if isinstance(tree, dict) else None
    return isinstance(section, dict) and section.get("overlap") is True


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
        return f"parameter {name} is missing; every parameter is written out, see zero/config/presets/"
    if fault["input"] == AUTO and name in AUTO_FIELDS:
        return f"{name} = 'auto' is for `zero new`, which records the value it chose; write {fault['ctx']['expected']}"
    value = "" if isinstance(fault["input"], dict) else f" = {fault['input']!r}"
    return f"{name}{value}: {fault['msg'].removeprefix('Value error, ')}"


def _dig(tree: Any, name: str) -> Any:
    for part in name.split("."):
        tree = tree[part]
    return tree
