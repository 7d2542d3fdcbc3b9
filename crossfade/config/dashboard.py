"""The part of the config file that says who may see the dashboard."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from crossfade.config.section import HeaderName, Networks, Section


class DashboardConfig(Section):
    """A proxy that knows its users may name them. Tokens are in the environment: see `crossfade dashboard --help`."""

    user_header: HeaderName | None = Field(None, description="the field in which a trusted proxy names the user")
    trusted_proxies: Networks = Field((), description="networks (CIDR) whose user_header is believed")
    reviewers: tuple[str, ...] = Field((), description="users who may see bodies and label pairs; others see verdicts")
    operators: tuple[str, ...] = Field((), description="users who may also move traffic")

    @model_validator(mode="after")
    def _check_both(self) -> Self:
        if (self.user_header is None) != (not self.trusted_proxies):
            raise ValueError("user_header and trusted_proxies go together: what anybody may send proves nothing")
        return self
