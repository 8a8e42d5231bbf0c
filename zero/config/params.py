"""The experiment: `params.yaml`, read in one place, frozen and validated.

The project's `params.yaml` and the presets in `zero/config/presets/` hold only what differs from the defaults, and some
of their fields may be `auto`. `zero new` resolves `auto` and writes every parameter into the lineage's `params.yaml`:
that file states everything that ran, and DVC sees every change. Addresses and folders, which belong to a machine and
not to an experiment, are in `settings`.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from zero.config.auto import AUTO, AUTO_FIELDS
from zero.config.learning import LearningRateStep, NetworkParams, ReplayParams, TrainingParams, ValueLoss
from zero.config.machine import ExecutorKind, ExecutorParams, ProfileParams
from zero.config.play import (
    GameParams,
    GatingParams,
    GomokuParams,
    GoParams,
    PlayParams,
    SearchParams,
    SelfplayParams,
    VerificationParams,
    match_play,
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
    "PlayParams",
    "ProfileParams",
    "ReplayParams",
    "SearchParams",
    "SelfplayParams",
    "TrainingParams",
    "ValueLoss",
    "VerificationParams",
    "load_params",
    "match_play",
    "overlap_of",
    "params_digest",
    "params_text",
    "parse_params",
    "read_params_text",
]

PARAMS_FILE = "params.yaml"
GAMES: dict[int | str, type[Section]] = {"go": GoParams, "gomoku": GomokuParams}


class Params(Section):
    """All of `params.yaml`."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Root of every random stream of the lineage."""
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


class _Loader(yaml.SafeLoader):
    """Rejects a name that occurs twice in a section, as DVC does, which reads the same file."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
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
    try:
        return Params.model_validate(_tree(text, source))
    except ValidationError as error:
        raise ParamsError(f"{source}: {_first_violation(error)}") from None


class _GameOnly(BaseModel):
    """A parameters file of which only the game is read; `auto` and other versions' parameters do not matter."""

    game: GameParams


def parse_game(text: str, source: str = PARAMS_FILE) -> GameParams:
    """The section `game` of the text of a YAML file; the other sections are not checked.

    Raises:
      ParamsError: as `parse_params`.
    """
    try:
        return _GameOnly.model_validate(_tree(text, source)).game
    except ValidationError as error:
        raise ParamsError(f"{source}: {_first_violation(error)}") from None


def _tree(text: str, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ParamsError(f"{source} is not YAML: {' '.join(str(error).split())}") from None


def params_text(params: Params) -> str:
    """Text of a parameters file that holds every parameter, also those with default values."""
    tree = yaml.safe_dump(_complete(params), sort_keys=False)
    return f"# Every parameter of the lineage; explained in zero/config.\n{tree}"


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
        raise ParamsError(f"{path} is not YAML: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def overlap_of(text: str) -> bool:
    """`selfplay.overlap` of a parameters file of any version, even one that this version cannot validate."""
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
    path = [str(part) for part in violation["loc"] if part not in GAMES]
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
