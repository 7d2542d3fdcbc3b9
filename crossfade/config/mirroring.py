"""The part of the config file that says what is mirrored, by whom, and within which bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from crossfade.config.section import HeaderName, Section

Percent = Annotated[float, Field(ge=0, le=100)]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
MEBIBYTE = 1024 * 1024


class ShadowConfig(Section):
    """How a route is mirrored. Methods other than GET, HEAD and POST are mirrored only when named here."""

    percent: Percent = Field(0, description="share of the requests that are mirrored; 100 if rate_per_s is given alone")
    rate_per_s: Annotated[float, Field(gt=0)] | None = Field(None, description="mirror at most so many a second")
    sample_by: HeaderName | Literal[""] = Field(
        "", description="choose by the hash of this header, so that a user's requests go together; else by request id"
    )
    control_percent: Percent = Field(0, description="percent of mirrored requests that also call the baseline twice")
    methods: tuple[Method, ...] = Field(("GET", "HEAD", "POST"), description="what may be executed twice")
    both_ways: bool = Field(False, description="mirror to the baseline what the candidate served")
    back_percent: Percent | None = Field(
        None, description="with both_ways: share that is mirrored back of what the candidate served; left out: percent"
    )
    max_body_bytes: Annotated[int, Field(ge=0, le=1024 * MEBIBYTE)] = Field(
        64 * MEBIBYTE, description="larger requests and answers are not kept; the skip is counted"
    )
    preserve_host: bool = Field(False, description="send the client's Host instead of the backend's own")
    forward_headers: tuple[HeaderName, ...] = Field((), description="credentials that the shadow may see")

    @model_validator(mode="before")
    @classmethod
    def _fill_percent(cls, values: object) -> object:
        if isinstance(values, dict) and values.get("rate_per_s") is not None:
            return {"percent": 100, **values}
        return values


class MirrorConfig(Section):
    """Who makes the shadow calls, and bounds on everything the mirror may hold or do at once, for the whole process."""

    transport: SecretStr = Field(
        SecretStr("in-process"),
        description="in-process, or redis://host:6379/0: then `crossfade shadow work` processes make the shadow calls",
    )
    stream_max_length: Annotated[int, Field(ge=1)] = Field(10_000, description="exchanges that wait in Redis at most")
    stream_max_bytes: Annotated[int, Field(ge=0)] = Field(
        4096 * MEBIBYTE, description="and their bytes, with the bodies that wait in the place for bodies"
    )

    byte_budget_bytes: Annotated[int, Field(ge=0)] = Field(
        256 * MEBIBYTE, description="memory for all bodies under way"
    )
    spool_above_bytes: Annotated[int, Field(ge=64 * 1024)] = Field(
        MEBIBYTE, description="once half of that is taken a body over this waits on disk, in a nameless file"
    )
    spool_budget_bytes: Annotated[int, Field(ge=0)] = Field(
        1024 * MEBIBYTE, description="disk for all bodies under way"
    )
    spool_dir: str | None = Field(None, description="where; left out: the system's place for temporary files")
    slate_dir: str | None = Field(
        None,
        description="folder of the small file in which each gateway process counts, so that killing it loses no count; "
        "left out: one of this user in /dev/shm, the machine's memory, else among temporary files",
    )
    max_queued: Annotated[int, Field(ge=1)] = Field(1000, description="exchanges that wait; a full queue skips")
    max_concurrent: Annotated[int, Field(ge=1, le=1000)] = Field(16, description="shadow calls at once")

    def anchored(self, folder: Path) -> MirrorConfig:
        """Return the same with the path of ``slate_dir`` taken from ``folder``."""
        return self if self.slate_dir is None else self.model_copy(update={"slate_dir": str(folder / self.slate_dir)})

    @field_validator("transport")
    @classmethod
    def _check_transport(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text != "in-process" and not text.startswith(("redis://", "rediss://")):
            raise ValueError("must be in-process or redis://host:port/db")
        if text != "in-process":
            from shadow.redis_url import check_redis_url  # slow to import, and seldom needed

            check_redis_url(text)
        return value
