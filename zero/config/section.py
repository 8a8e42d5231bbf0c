"""What all sections of the parameters are, and the kinds of numbers in them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
NumSimulations = Annotated[int, Field(ge=1, le=65_535)]  # more visits than a game record can hold
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A frozen section of the parameters; an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
