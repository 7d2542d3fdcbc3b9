"""What every part of the config file is made of."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]


def _check_networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for network in value:
        ip_network(network)
    return value


Networks = Annotated[tuple[str, ...], AfterValidator(_check_networks)]
"""Networks as CIDR, such as 10.0.0.0/8. Host bits have to be zero."""


class Section(BaseModel):
    """Base of every part of the config: immutable, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
