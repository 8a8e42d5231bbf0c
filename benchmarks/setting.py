"""Parameters of a benchmark: a preset with some fields changed, also as `section.name=value,...`."""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from zero.config.params import Params, ProfileParams, parse_params, preset_text
from zero.errors import ParamsError
from zero.network.profile import resolve_here
from zero.play.slots import PlaySettings
from zero.stages.spec import plan_shards
from zero.stages.worker import shard_settings
from zero.storage.files import sha256_bytes

GO9, GO19, GPU9 = "go9-paper", "go19-paper", "go9-gpu"
Fields = Mapping[str, Any]
AS_IT_IS = "as it is"
WIDE = 160
"""Columns of a table that is written to a file."""
RATE = "training.rate"
"""Short form of a schedule with one learning rate."""


def params_of(preset: str, profile: ProfileParams | None, **sections: Fields) -> Params:
    """A preset with changed fields of its sections, such as `search={"max_nodes": 802}`.

    Without a profile, the profile of the preset is used, with `auto` resolved for this machine.

    Raises:
      ParamsError: the preset does not exist.
    """
    tree = parse_params(resolve_here(preset_text(preset))).model_dump()
    if profile is not None:
        tree["profile"] = profile.model_dump()
    for section, fields in sections.items():
        tree[section] |= fields
    return Params.model_validate(tree)  # which rejects unknown fields


def residual_tower(num_blocks: int, num_channels: int, value_hidden: int = 64) -> Fields:
    """Section `network` of the paper's architecture: `residual_tower(4, 32)` is 4x32."""
    sizes = {"num_blocks": num_blocks, "num_channels": num_channels, "value_hidden": value_hidden}
    return {"tower": "residual", "heads": "joint", **sizes}


def selfplay_settings(params: Params) -> PlaySettings:
    """Settings of self-play with these parameters, but with full searches only and without resignation."""
    few = params.selfplay.model_copy(update={"num_games": 1, "full_search_fraction": 1.0})
    return shard_settings(plan_shards(params, "selfplay", few, 0, (sha256_bytes(b""),))[0])


def changed(params: Params, variant: str) -> Params:
    """The parameters with changes `section.name=value`, separated by commas.

    Raises:
      ParamsError: a parameter does not exist, or the value is invalid.
    """
    tree: dict[str, Any] = params.model_dump()
    for change in variant.split(",") if variant != AS_IT_IS else ():
        name, _, text = change.partition("=")
        section, _, field = name.strip().partition(".")
        value = yaml.safe_load(text)
        if name.strip() == RATE:
            field, value = "learning_rate", [{"from_step": 0, "learning_rate": value}]
        if field not in getattr(type(getattr(params, section, None)), "model_fields", ()):
            raise ParamsError(f"{variant!r}: unknown parameter {name.strip()!r}; see docs/parameters.md")
        tree[section][field] = value
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        raise ParamsError(f"{variant!r}: {error.errors()[0]['msg']}") from None
