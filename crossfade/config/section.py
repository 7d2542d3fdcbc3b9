"""What every part of the config file is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]


class Section(BaseModel):
    """Base of every part of the config: immutable, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
