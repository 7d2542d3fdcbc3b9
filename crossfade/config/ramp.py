"""The part of the config file that says how a route goes across."""

from __future__ import annotations

from typing import Annotated, Literal, Self

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
    verdict_max_age_s: Annotated[float, Field(gt=0)] = Field(
        86_400.0, description="how old the newest pair in the verdict may be that lets a ramp begin"
    )
    evidence_max_age_s: Annotated[float, Field(ge=1)] = Field(
        60.0,
        description="how long the gateways' counts or the store may not be readable before `on_no_evidence` applies",
    )
    on_no_evidence: Literal["hold", "back"] = Field(
        "hold",
        description="then: `hold` keeps the route where it is, with an error in the log each minute; `back` brings it "
        "all the way back",
    )

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if list(self.steps) != sorted({*self.steps}):
            raise ValueError(f"steps must grow, not {list(self.steps)}")
        return self
