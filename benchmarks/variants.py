"""Variants of a recipe: parameters with some values replaced, written as `section.name=value,...`."""

from typing import Any

import yaml
from pydantic import ValidationError

from zero.config.params import Params
from zero.errors import ParamsError

AS_IT_IS = "as it is"
RATE = "training.rate"
"""Stands for a schedule of one learning rate."""


def changed(params: Params, variant: str) -> Params:
    """The parameters with `section.name=value` replaced, several with commas between them.

    Raises:
      ParamsError: there is no such parameter, or it has no such value.
    """
    tree: dict[str, Any] = params.model_dump()
    for change in variant.split(",") if variant != AS_IT_IS else ():
        name, _, text = change.partition("=")
        section, _, field = name.strip().partition(".")
        value = yaml.safe_load(text)
        if name.strip() == RATE:
            field, value = "learning_rate", [{"from_step": 0, "learning_rate": value}]
        if field not in getattr(type(getattr(params, section, None)), "model_fields", ()):
            raise ParamsError(f"{variant!r}: there is no parameter {name.strip()!r}; docs/parameters.md")
        tree[section][field] = value
    try:
        return Params.model_validate(tree)
    except ValidationError as error:
        raise ParamsError(f"{variant!r}: {error.errors()[0]['msg']}") from None
