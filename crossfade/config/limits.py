"""The parts of the config file that say who may call, how often, and how much at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from crossfade.config.section import Name, Section

Per = Annotated[str, Field(pattern=r"^(caller|address|everyone|header:[!#$%&'*+.^_`|~0-9A-Za-z-]+)$")]
KeyHash = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Origin = Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")]


class LimitConfig(Section):
    """One limit. A text stands for its quota, with everything else as it is by default."""

    quota: str = Field(description="such as 10/second, 1000/hour, 5 per 2 minutes")
    per: Per = Field(
        "caller",
        description="who is counted together: caller (the owner of the API key, else address), address "
        "(IPv6: its /64), everyone, or header:NAME (what the client claims)",
    )
    unit: Literal["request", "megabyte"] = Field("request", description="megabyte: 10^6 bytes of request body")
    strategy: Literal["moving-window", "fixed-window", "sliding-window-counter"] | None = Field(
        None, description="left out: limits.strategy"
    )
    dry_run: bool = Field(False, description="count and tell, but refuse nobody")

    @field_validator("quota")
    @classmethod
    def _check_quota(cls, value: str) -> str:
        from gateway.limiting.rules import parse_quota

        try:
            parse_quota(value)
        except ValueError as error:
            raise ValueError(f"{error}; write for example 10/second, 1000/hour, 5 per 2 minutes") from error
        return value


def _from_text(value: Any) -> Any:
    return {"quota": value} if isinstance(value, str) else value


LimitEntry = Annotated[LimitConfig, BeforeValidator(_from_text, json_schema_input_type=str | LimitConfig)]


class ConcurrencyConfig(Section):
    """How many requests may be under way at once, such as one for each GPU slot."""

    slots: Annotated[int, Field(ge=1, le=100_000)] = Field(description="requests at once")
    per: Per = Field("everyone", description="as in limits")
    name: Name | None = Field(None, description="routes with the same name share the slots")
    max_waiting: Annotated[int, Field(ge=0, le=10_000)] = Field(
        16, description="requests that wait for a slot, in this gateway; more are refused at once"
    )
    max_wait_s: Annotated[float, Field(ge=0, le=300)] = Field(
        1.0, description="how long one may wait, never longer than its backend's timeout_s"
    )
    dry_run: bool = Field(False, description="count and tell, but refuse nobody")


class CorsConfig(Section):
    """Which web pages may read the gateway's own answers, such as a 429; a backend's answers keep its own fields."""

    origins: Annotated[tuple[Origin, ...], Field(min_length=1)] = Field(
        description="such as https://app.example, or * for every page"
    )
    credentials: bool = Field(False, description="the pages send cookies or credentials")


class CallerConfig(Section):
    """Someone with API keys. With any caller in the config, routes that are not public ask for a key."""

    keys: Annotated[tuple[KeyHash, ...], Field(min_length=1)] = Field(
        description="hashes of its keys, from crossfade key new; several while one follows another"
    )
    routes: tuple[Name, ...] | None = Field(None, description="the routes that it may use; all if left out")
    limits: tuple[LimitEntry, ...] = Field((), description="its own limits, counted over all routes")
