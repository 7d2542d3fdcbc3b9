"""A store with real exchanges: real pictures, real JSON, and everything hostile that a client can send."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

from compare.kernels.pixels import Pixels
from compare.policy import Kind, Policy
from shadow.account import RouteAccount
from shadow.exchange import Body, Exchange, Failure, FailureKind, Headers, Observation, Request, SkipReason
from shadow.store.store import Store

START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LATER = START + timedelta(hours=1)
SCRIPT = "<script>alert(1)</script>"
BREAKOUT = '"><img src=x onerror=alert(1)>'
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>"
PICTURE_SIDE = 200


def route_policy(route: str, kind: Kind) -> Policy:
    return Policy(
        route=route, baseline="cloud", candidate="onprem", kind=kind, latency_slo_s=2.0, min_span_s=10.0, routes=5
    )


POLICIES = (
    route_policy("classify", Kind.CLASSIFICATION),
    route_policy("restore", Kind.IMAGE),
    route_policy("remove-background", Kind.CUTOUT),
    route_policy("hostile", Kind.AUTO),
    route_policy("waiting", Kind.JSON),
)


def body(content: bytes, media_type: str) -> Body:
    return Body(hashlib.sha256(content).hexdigest(), len(content), media_type, "", (content,))


def answer(backend: str, content: bytes, media_type: str, total_s: float, headers: Headers = ()) -> Observation:
    fields = ((b"Content-Type", media_type.encode()), (b"X-Model", b"net-1"), *headers)
    return Observation(backend, f"{backend}-1", 200, fields, body(content, media_type), total_s * 0.8, total_s)


def encode(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def sample(name: str) -> Pixels:
    """Return a photograph of scikit-image, ``(H, W, 3)`` uint8."""
    pixels: Pixels = getattr(data, name)()
    return pixels


def photograph(name: str, number: int) -> Image.Image:
    """Return a crop of a photograph that differs from number to number."""
    pixels = sample(name)
    left, top = (7 * number) % 90, (5 * number) % 60
    return Image.fromarray(pixels[top : top + PICTURE_SIDE, left : left + PICTURE_SIDE + 40])


def exchange(route: str, number: int, request: Request, primary: Observation, shadow: Observation) -> Exchange:
    at = START + timedelta(seconds=0.5 * number)
    digest = hashlib.sha256(f"{route}/{number}".encode()).hexdigest()[:32]
    return Exchange(digest, route, at, request, primary, shadow)


def ask(path: str, content: bytes, media_type: str) -> Request:
    fields = ((b"Content-Type", media_type.encode()), (b"Authorization", b"Bearer very-secret"))
    return Request("POST", path.encode(), fields, body(content, media_type))


def classified() -> Iterator[Exchange]:
    """Yield a healthy route, fast and always of one opinion."""
    for number in range(790):
        score = 0.5 + number / 2000
        content = json.dumps(
            {"predictions": [{"label": "cat", "prob": score}, {"label": "dog", "prob": 1 - score}]}
        ).encode()
        request = ask("/v1/classify", b"\x89PNG not kept", "image/png")
        yield exchange(
            "classify",
            number,
            request,
            answer("cloud", content, "application/json", 0.2 + number % 7 / 50),
            answer("onprem", content, "application/json", 0.05 + number % 5 / 100),
        )


def restored() -> Iterator[Exchange]:
    """Yield a route whose candidate swaps red and blue in two of three pictures, once turns one, and once times out."""
    timing = ((b"Server-Timing", b'queue;dur=91.2, inference;dur=281;desc="gpu", total;dur=372.2'),)
    for number in range(60):
        picture = photograph(("astronaut", "coffee")[number % 2], number)
        sent, right = encode(picture, "JPEG", quality=92), encode(picture)
        wrong = encode(Image.fromarray(np.asarray(picture)[..., ::-1])) if number % 3 else right
        if number == 7:
            wrong = encode(picture.transpose(Image.Transpose.ROTATE_90))
        candidate = answer("onprem", wrong, "image/png", 0.372, timing)
        if number == 8:
            candidate = Observation("onprem", "onprem-1", failure=Failure(FailureKind.TIMEOUT, "no answer in 30 s"))
        made = exchange(
            "restore",
            number,
            ask("/v1/restore", sent, "image/jpeg"),
            answer("cloud", right, "image/png", 0.81),
            candidate,
        )
        yield replace(made, control=answer("cloud", right, "image/png", 0.8))


def cut_out() -> Iterator[Exchange]:
    """Yield a route that agrees so far and needs more pairs."""
    for number in range(30):
        picture = photograph("astronaut", number)
        picture.putalpha(Image.radial_gradient("L").resize(picture.size).point(lambda level: 255 - level))
        content = encode(picture)
        yield exchange(
            "remove-background",
            number,
            ask("/v1/remove-background", content, "image/png"),
            answer("cloud", content, "image/png", 0.9 + number % 3 / 10),
            answer("onprem", encode(picture, compress_level=1), "image/png", 0.5),
        )


def hostile() -> Iterator[Exchange]:
    """Yield what case C10 lists: scripts in paths, headers, bodies, file names, labels; an SVG as a result."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a\\" onload=alert(1).png"\r\n\r\n'
    form = body(head + SVG + b"\r\n--x--\r\n", "multipart/form-data; boundary=x")
    fields = ((b"X-Foo", SCRIPT.encode()), (b"X-Raw", b"\xff\xfe'\"><svg onload=alert(1)>"))
    request = Request("GET", f"/{BREAKOUT}".encode(), fields, form)
    texts = [
        (b'{"label": "</script><script>alert(1)</script>"}', "application/json"),
        (SVG, "image/svg+xml"),
        (f"<html>{SCRIPT}</html>".encode(), "text/html"),
        (f'=HYPERLINK("javascript:alert(1)") {BREAKOUT}'.encode(), "text/csv"),
        (b'{"\\ud800": "\\udfff <img src=x onerror=alert(1)>"}', "application/json"),
        (SVG, f"image/png{BREAKOUT}"),
    ]
    for number, (content, media_type) in enumerate(texts):
        spoiled = content.replace(b"alert(1)", b"alert(2)").replace(b"\\udfff", b"\\udffe")
        yield exchange(
            "hostile",
            number,
            request,
            answer("cloud", content, media_type, 0.1, fields),
            answer("onprem", spoiled, media_type, 0.1, fields),
        )


def everything() -> list[Exchange]:
    return [*classified(), *restored(), *cut_out(), *hostile()]


def fill(url: str, bodies: Path, exchanges: list[Exchange]) -> None:
    """Write the exchanges and the gateway's account of them."""
    asyncio.run(_fill(url, bodies, exchanges))


async def _fill(url: str, bodies: Path, exchanges: list[Exchange]) -> None:
    store = Store.open(url, bodies, now=lambda: LATER)
    try:
        for start in range(0, len(exchanges), 200):
            await asyncio.gather(*(store.save(each) for each in exchanges[start : start + 200]))
        recorded = {route: sum(each.route == route for each in exchanges) for route in {e.route for e in exchanges}}
        await store.save_accounts("run-1", {route: account(route, n) for route, n in recorded.items()})
    finally:
        await store.aclose()


def account(route: str, recorded: int) -> RouteAccount:
    """Return an account that adds up and has named losses, and refusals beside it."""
    skipped = {SkipReason.NOT_SAMPLED: 40, SkipReason.BUDGET_FULL: 2} if route == "classify" else {}
    refused = {"rate_limited": 7, "key_unknown": 1} if route == "classify" else {}
    return RouteAccount(recorded + sum(skipped.values()), recorded, 0, skipped, refused)
