"""Variants of parameters, written as `section.name=value,...`."""

from typing import Any

import yaml
from pydantic import ValidationError

from zero.config.params import Params
from zero.errors import ParamsError

AS_IT_IS = "as it is"
WIDE = 160
"""Columns of a table that is written to a file."""
RATE = "training.rate"
"""Short form of a schedule with one learning rate."""


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
