"""The parameters of a benchmark: a preset with some fields changed; a new parameter has its preset's value here."""

from collections.abc import Mapping
from typing import Any

from zero.config.params import Params, ProfileParams, parse_params
from zero.config.presets import preset_text
from zero.network.profile import resolve_here

GO9, GO19, GPU9 = "go9-paper", "go19-paper", "go9-gpu"
Fields = Mapping[str, Any]


def params_of(preset: str, profile: ProfileParams | None, **sections: Fields) -> Params:
    """A preset with fields of its sections changed, as `search={"max_nodes": 802}`.

    Without a profile, it keeps its own, with `auto` resolved for this machine.

    Raises:
      ParamsError: there is no such preset.
    """
    params = parse_params(resolve_here(preset_text(preset)))
    tree = params.model_dump()
    if profile is not None:
        tree["profile"] = profile.model_dump()
    for section, fields in sections.items():
        assert fields.keys() <= type(getattr(params, section)).model_fields.keys(), (section, sorted(fields))
        tree[section] |= fields
    return Params.model_validate(tree)


def residual_tower(num_blocks: int, num_channels: int, value_hidden: int = 64) -> Fields:
    """Section `network` of a tower of the paper's kind: 4x32 is `residual_tower(4, 32)`."""
    return {
        "tower": "residual",
        "heads": "joint",
        "num_blocks": num_blocks,
        "num_channels": num_channels,
        "value_hidden": value_hidden,
    }
