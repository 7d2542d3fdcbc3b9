"""``crossfade shadow check``: send one request through the gateway and see, step by step, that its mirror works.

The request goes the way of every other: it is answered by the active backend, mirrored by the route's own rule, stored
and compared, and it counts in the route's numbers. It says in its User-Agent that it is a check.
"""

from __future__ import annotations

import json
import mimetypes
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from compare.policy import Policy
from crossfade.composition import policies
from crossfade.config.loading import ConfigError
from crossfade.config.model import Config, RouteConfig
from shadow.exchange import Exchange, Observation
from shadow.store.reader import Reader

USER_AGENT = "crossfade-shadow-check"
POLL_S = 0.1


class _NoGateway(Exception):
    """What answers is no gateway."""


class _Account(NamedTuple):
    """What came on a route so far, what of it is under way, and what was not mirrored, by reason."""

    received: int
    in_flight: int
    skipped: Mapping[str, int]


class _Waited(NamedTuple):
    """The exchange, or the reasons that its route skipped something for meanwhile; ``ours`` is false where that may
    have been another request."""

    exchange: Exchange | None
    reasons: list[str]
    ours: bool = True


class Outcome(StrEnum):
    """How a step ended. ``UNSURE`` is neither good nor a fault of the mirror."""

    OK = "ok"
    UNSURE = "unsure"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """One step and what was seen; ``advice`` says what to do about it."""

    name: str
    outcome: Outcome
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent where. Times are bounds: for the answer, and for the copy to be stored."""

    gateway: str
    method: str
    target: str
    body: bytes
    media_type: str
    api_key: str | None
    timeout_s: float


def plan_check(
    config: Config,
    route: str,
    *,
    gateway: str | None,
    target: str | None,
    sample: Path | None,
    api_key: str | None,
    timeout_s: float,
) -> tuple[Plan, RouteConfig]:
    """Decide what to send. Raises ``ConfigError`` when the route is not known or asks for no mirror."""
    found = next((known for known in config.routes if known.name == route), None)
    if found is None:
        raise ConfigError(f"there is no route {route}; the config has {', '.join(r.name for r in config.routes)}")
    mirrored = [method for method in found.match.methods if method in found.shadow.methods]
    if not found.shadow.percent or not mirrored:
        raise ConfigError(f"route {route} is not mirrored: set shadow.percent (and shadow.methods) in the config")
    method = "POST" if "POST" in mirrored else mirrored[0]
    host, port = config.gateway.address
    place = f"127.0.0.1:{port}" if host in ("0.0.0.0", "::") else config.gateway.listen  # noqa: S104 - compared only
    body, media_type = _sample(sample) if method not in ("GET", "HEAD") else (b"", "")
    scheme = "https" if config.gateway.tls else "http"
    target = target or found.match.path.removesuffix("*")
    url = (gateway or f"{scheme}://{place}").rstrip("/")
    if not target.startswith("/"):
        raise ConfigError(f"--path {target} must begin with /")
    try:
        httpx.URL(url + target)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url}{target} is no URL: {error}") from error
    return Plan(url, method, target, body, media_type, api_key, timeout_s), found


def check(plan: Plan, route: RouteConfig, config: Config, reader: Reader) -> Iterator[Step]:
    """Take the steps one after the other, and stop after one that failed."""
    step = "answered"
    with httpx.Client(base_url=plan.gateway, trust_env=False, timeout=plan.timeout_s) as http:
        try:
            before = _account(http, route.name)
            began_s = time.monotonic()
            answer = http.request(plan.method, plan.gateway + plan.target, content=plan.body, headers=_headers(plan))
            request_id = answer.headers.get("x-request-id", "")
            yield _answered(answer, time.monotonic() - began_s)
            if answer.status_code in (401, 403, 404, 405, 413, 429):
                return
            step = "mirrored"
            waited = _wait_stored(http, reader, request_id, route.name, before, plan.timeout_s)
        except (httpx.HTTPError, _NoGateway) as error:
            seen = "is no gateway" if isinstance(error, _NoGateway) else f"does not answer ({type(error).__name__})"
            advice = "is `crossfade gateway` running there? Name it with --gateway URL"
            yield Step(step, Outcome.FAILED, f"{plan.gateway} {seen}", advice)
            return
    exchange = waited.exchange
    if exchange is None:
        yield _not_mirrored(waited, route)
        return
    yield _shadow_step(exchange)
    yield Step("stored", Outcome.OK, f"as number {exchange.sequence}, id {exchange.id}")
    yield _compared(exchange, reader, next(p for p in policies(config) if p.route == route.name))


def exit_code(steps: list[Step]) -> int:
    """Return 0 when every step went well, 1 when one failed, 10 when it cannot be told."""
    outcomes = {step.outcome for step in steps}
    return 1 if Outcome.FAILED in outcomes else 10 if Outcome.UNSURE in outcomes else 0


def as_json(route: str, steps: list[Step]) -> str:
    """Return the steps for a machine."""
    return json.dumps(
        {"route": route, "ok": exit_code(steps) == 0, "steps": [asdict(step) for step in steps]}, indent=2
    )


def _answered(answer: httpx.Response, took_s: float) -> Step:
    seen = f"{answer.status_code} in {took_s * 1000:.0f} ms, {len(answer.content)} bytes"
    if answer.status_code < 400:
        return Step("answered", Outcome.OK, seen)
    if code := _code(answer):
        seen += f" ({code})"
    advice = {401: "name an API key with --api-key", 403: "name an API key that may use this route with --api-key"}
    outcome = Outcome.FAILED if answer.status_code in (401, 403, 404, 405, 413, 429) else Outcome.UNSURE
    return Step("answered", outcome, seen, advice.get(answer.status_code, "try --sample FILE and --path PATH"))


def _code(answer: httpx.Response) -> str:
    """Return the code of a problem (RFC 9457), empty where there is none."""
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return ""
    try:
        document = answer.json()
    except ValueError:
        return ""
    return str(document.get("code", "")) if isinstance(document, dict) else ""


def _wait_stored(
    http: httpx.Client, reader: Reader, request_id: str, route: str, before: _Account, timeout_s: float
) -> _Waited:
    """Wait for the exchange, until it is stored or, where no other request came, something was skipped."""
    deadline_s = time.monotonic() + timeout_s
    last = before.received + 1 if not before.in_flight else 0
    grown: list[str] = []
    while time.monotonic() < deadline_s:
        now = _account(http, route)
        exchange = reader.exchange(request_id)  # looked for last: what is stored is not skipped
        grown = [reason for reason, count in now.skipped.items() if count > before.skipped.get(reason, 0)]
        if exchange is not None or (grown and now.received <= last):
            return _Waited(exchange, grown)
        time.sleep(POLL_S)
    return _Waited(None, grown, ours=False)


def _account(http: httpx.Client, route: str) -> _Account:
    try:
        account = http.get("/-/status").json()["routes"].get(route, {}).get("account", {})
        return _Account(account.get("received", 0), account.get("in_flight", 0), account.get("skipped", {}))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _NoGateway from error


def _not_mirrored(waited: _Waited, route: RouteConfig) -> Step:
    reasons = ", ".join(waited.reasons)
    if not reasons:
        advice = "with mirror.transport set, is `crossfade shadow work` running? Else raise --timeout"
        return Step("mirrored", Outcome.FAILED, "not stored in time, and no skip was counted", advice)
    if not waited.ours:
        seen = f"not stored in time, and of all requests meanwhile some were skipped: {reasons}"
        return Step("mirrored", Outcome.UNSURE, seen, "check again when fewer requests come, or raise --timeout")
    if reasons == "not_sampled":
        advice = f"the route mirrors {route.shadow.percent:g} %: run the check again until it is chosen"
        return Step("mirrored", Outcome.UNSURE, "this request was not sampled", advice)
    return Step("mirrored", Outcome.FAILED, f"skipped: {reasons}", "docs/mirror.md says why a request is skipped")


def _shadow_step(exchange: Exchange) -> Step:
    shadow = exchange.shadow
    if shadow is None:
        return Step("shadow", Outcome.FAILED, "was not called")
    if shadow.failure is not None:
        seen = (
            f"{shadow.backend} at {shadow.server or 'no server'}: {shadow.failure.kind.value} ({shadow.failure.detail})"
        )
        return Step("shadow", Outcome.FAILED, seen, f"is {shadow.backend} running, and is its address right?")
    outcome = Outcome.FAILED if shadow.failed else Outcome.OK
    return Step("shadow", outcome, f"{shadow.backend} at {shadow.server} answered {_told(shadow)}")


def _told(leg: Observation) -> str:
    took = f" in {leg.total_s * 1000:.0f} ms" if leg.total_s is not None else ""
    return f"{leg.status}{took}, {leg.body.size_bytes if leg.body is not None else 0} bytes"


def _compared(exchange: Exchange, reader: Reader, policy: Policy) -> Step:
    try:
        from compare.job import measure_one
    except ModuleNotFoundError as error:
        return Step("compared", Outcome.UNSURE, f"{error.name} is not installed", "pip install 'crossfade[compare]'")
    measured = measure_one(exchange, reader, policy)
    found = measured.judgement.output_class
    if measured.not_comparable is not None or found is None:
        seen = measured.judgement.note or (measured.not_comparable.value if measured.not_comparable else "no outputs")
        return Step("compared", Outcome.UNSURE, seen, "try --sample FILE with a real request of this route")
    return Step("compared", Outcome.OK, f"the outputs are {found.value}")


def _headers(plan: Plan) -> dict[str, str]:
    headers = {"user-agent": USER_AGENT}
    if plan.media_type:
        headers["content-type"] = plan.media_type
    if plan.api_key:
        headers["x-api-key"] = plan.api_key
    return headers


def _sample(path: Path | None) -> tuple[bytes, str]:
    if path is None:
        return sample_picture(), "image/png"
    try:
        return path.read_bytes(), mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def sample_picture(side: int = 64) -> bytes:
    """Return a small colour gradient as a PNG (RFC 2083): ``(side, side, 3)`` uint8, sRGB."""
    rows = b"".join(
        b"\0" + b"".join(bytes((x * 255 // side, y * 255 // side, 128)) for x in range(side)) for y in range(side)
    )

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def show(step: Step, console: Any) -> None:
    """Print one step as it is taken."""
    from rich.markup import escape

    mark = {Outcome.OK: "[green]ok[/]    ", Outcome.UNSURE: "[yellow]unsure[/]", Outcome.FAILED: "[red]failed[/]"}
    console.print(f"{mark[step.outcome]}  {step.name:<9} {escape(step.seen)}", highlight=False)
    if step.advice and step.outcome is not Outcome.OK:
        console.print(f"                  -> {escape(step.advice)}", highlight=False)
