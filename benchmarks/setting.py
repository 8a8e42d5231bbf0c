"""Parameters of a benchmark: a preset with changes."""

from collections.abc import Mapping
from typing import Any

from benchmarks.results import Side
from zero.config.params import Params, params_text, parse_params, preset_text, with_changes
from zero.errors import ParamsError
from zero.network.profile import resolve_here
from zero.play.slots import PlaySettings
from zero.stages.spec import plan_shards
from zero.stages.worker import shard_settings
from zero.storage.files import sha256_bytes

WIDE = 160
"""Columns of a table that is written to a file."""
ON_CPU = {"device": "cpu", "backend": "torch", "precision": "fp32", "isa": "native", "selfplay_threads": 1}
"""Profile of work that does not depend on the speed of the networks."""
RATE = "training.rate"
"""Short form of a schedule with one learning rate."""


def params_of(side: Side, profile: Mapping[str, Any]) -> Params:
    """Parameters of a side. Sides on all cores are those of a GPU, and keep the profile of their preset.

    Raises:
      ParamsError: the preset does not exist.
    """
    tree = parse_params(resolve_here(preset_text(side.preset)), side.preset).model_dump()
    if side.cores != (0,):
        tree["profile"] |= profile
    for section, fields in side.changes.items():
        tree[section] |= fields
    return Params.model_validate(tree)  # which rejects unknown fields


def changed(params: Params, changes: str) -> Params:
    """The parameters with changes such as `search.max_nodes=802,training.rate=0.01`.

    Raises:
      ParamsError: a parameter does not exist, or a value is invalid.
    """
    listed = [_without_rate(change) for change in changes.split(",")] if changes else []
    return parse_params(with_changes(params_text(params), listed), repr(changes))


def _without_rate(change: str) -> str:
    name, _, value = change.partition("=")
    if name.strip() != RATE:
        return change
    return f"training.learning_rate=[{{from_step: 0, learning_rate: {value}}}]"


def numbers_of(option: str, text: str) -> tuple[int, ...]:
    """Different whole numbers from a list separated by commas, the value of an option.

    Raises:
      ParamsError: the text has another format.
    """
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ParamsError(f"{option} {text!r}: give whole numbers separated by commas, such as 1,2") from None


def selfplay_settings(params: Params) -> PlaySettings:
    """Settings of self-play with these parameters, but with full searches only and without resignation."""
    few = params.selfplay.model_copy(update={"num_games": 1, "full_search_fraction": 1.0})
    params = params.model_copy(update={"selfplay": few})
    return shard_settings(plan_shards(params, "selfplay", 0, (sha256_bytes(b""),))[0])
