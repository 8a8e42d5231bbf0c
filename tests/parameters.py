"""Parameters for tests: small sections of `go9-paper` with changes, and the tree of the smoke preset."""

from typing import Any

import yaml

from zero.config.auto import Machine, resolve_auto
from zero.config.params import (
    NetworkParams,
    Params,
    ProfileParams,
    SelfplayParams,
    TrainingParams,
    params_text,
    parse_params,
    preset_text,
)

PLAIN = Machine(cpu="x86-64", bf16_unit="")
"""A machine with fp32 only, so that tests have the same parameters on every machine."""


def preset(name: str = "go9-paper") -> Params:
    """A preset with `auto` resolved for `PLAIN`."""
    return parse_params(resolved_preset(name), name)


def resolved_preset(name: str) -> str:
    """Text of a preset with `auto` resolved for `PLAIN`."""
    return resolve_auto(preset_text(name), PLAIN)


def network_params(**changes: object) -> NetworkParams:
    """A tiny residual network of the paper's kind."""
    small = {"num_blocks": 1, "num_channels": 4, "value_hidden": 5}
    return NetworkParams.model_validate(preset().network.model_dump() | small | changes)


def profile_params(**changes: object) -> ProfileParams:
    """PyTorch on one thread of a CPU, fp32."""
    plain = {"backend": "torch", "selfplay_threads": 1, "training_threads": 1}
    return ProfileParams.model_validate(preset().profile.model_dump() | plain | changes)


def selfplay_params(**changes: object) -> SelfplayParams:
    return SelfplayParams.model_validate(preset().selfplay.model_dump() | changes)


def training_params(**changes: object) -> TrainingParams:
    return TrainingParams.model_validate(preset().training.model_dump() | changes)


def with_sections(params: Params, **changes: Any) -> Params:
    """Other parameters: `replay={"window_games": 9}` changes fields of a section, `seed=2` replaces a value."""
    sections = {
        name: getattr(params, name).model_copy(update=value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return params.model_copy(update=sections)


def smoke_text() -> str:
    """A valid file that holds every parameter, as `zero new` writes it."""
    return params_text(preset("smoke"))


def smoke() -> dict[str, Any]:
    """The tree of that file."""
    tree = yaml.safe_load(smoke_text())
    assert isinstance(tree, dict)
    return tree


def with_value(name: str, value: Any) -> dict[str, Any]:
    """A valid file with one parameter set, or removed if the value is `...`."""
    return with_values({name: value})


def with_values(values: dict[str, Any]) -> dict[str, Any]:
    """As `with_value`, for several parameters."""
    tree = smoke()
    for name, value in values.items():
        *path, last = name.split(".")
        section = tree
        for part in path:
            section = section[part]
        if value is ...:
            del section[last]
        else:
            section[last] = value
    return tree


def parsed(tree: Any) -> Params:
    return parse_params(yaml.safe_dump(tree))
