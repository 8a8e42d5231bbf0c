"""Base class of the sections of the parameters, and the kinds of numbers in them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
NumSimulations = Annotated[int, Field(ge=1, le=65_535)]  # more visits than a game record can hold
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen section of the parameters; an unknown name is an error.

    A field that is added later must default to off and have `exclude_if` for that value: digests of files that were
    written before it then stay the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
