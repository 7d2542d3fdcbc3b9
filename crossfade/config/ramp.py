"""The part of the config file that says how a route goes across."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from crossfade.config.section import Section


class RampConfig(Section):
    """How `crossfade ramp` moves a route, and what brings it back."""

    steps: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(min_length=1, max_length=20)] = Field(
        (1, 5, 25, 50, 100), description="percents of the candidate, growing"
    )
    min_stay_s: Annotated[float, Field(ge=0)] = Field(3600.0, description="the least time at each step")
    min_requests: Annotated[int, Field(ge=1)] = Field(
        60, description="requests that the candidate must have served at a step before the next"
    )
    alarm_after: Annotated[float, Field(ge=100)] = Field(
        10_000.0, description="good observations, on average, before a watch raises a false alarm"
    )

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if list(self.steps) != sorted({*self.steps}):
            raise ValueError(f"steps must grow, not {list(self.steps)}")
        return self
