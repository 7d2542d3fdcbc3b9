"""Faults that the demo can put into the candidate on purpose, to show that the verdict finds and names them.

A fault is an ASGI wrapper around the genuine on-prem server; nothing in the server itself knows about faults.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageOps
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossfade.demo.pictures import ORIENTATION_TAG

SLOW_EXTRA_S = 4.0
FAIL_ONE_IN = 4

FAULTS = {
    **{
        (route, "ignores-exif"): "treats a turned photograph as if it had no orientation tag"
        for route in ("remove-background", "face-blur", "restore")
    },
    **{
        (route, "swaps-red-blue"): "returns the picture with red and blue exchanged"
        for route in ("remove-background", "face-blur", "restore", "erase")
    },
    ("face-blur", "misses-faces"): "returns the picture with every face left as it was",
    **{
        (route, "slow"): f"takes {SLOW_EXTRA_S:g} s longer"
        for route in ("classify", "remove-background", "face-blur", "restore", "erase")
    },
    **{
        (route, "errors"): f"answers 500 to one request in {FAIL_ONE_IN}"
        for route in ("classify", "remove-background", "face-blur", "restore", "erase")
    },
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault on one route."""

    route: str
    name: str


def parse_fault(text: str) -> Fault:
    """Read ``ROUTE:FAULT``. Raises ``ValueError`` that lists what there is."""
    route, _, name = text.partition(":")
    if (route, name) not in FAULTS:
        known = ", ".join(f"{r}:{n}" for r, n in sorted(FAULTS))
        raise ValueError(f"there is no fault '{text}'. Choose one of: {known}")
    return Fault(route, name)


class Faulty:
    """The on-prem server with one fault on one path; every other path is untouched."""

    def __init__(self, app: ASGIApp, fault: Fault) -> None:
        self._app, self._fault, self._count = app, fault, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != f"/v1/{self._fault.route}":
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        match self._fault.name:
            case "slow":
                await asyncio.sleep(SLOW_EXTRA_S)
                await self._app(scope, _replay(body), send)
            case "errors":
                self._count += 1
                if self._count % FAIL_ONE_IN == 0:
                    await _fail(send)
                else:
                    await self._app(scope, _replay(body), send)
            case "ignores-exif":
                await self._app(_resized(scope, changed := without_orientation(body)), _replay(changed), send)
            case "swaps-red-blue":
                await self._answer_changed(scope, body, send, lambda _, answer: swap_red_blue(answer))
            case "misses-faces":
                await self._answer_changed(scope, body, send, lambda request, answer: leave_faces(request, answer))

    async def _answer_changed(
        self, scope: Scope, body: bytes, send: Send, change: Callable[[bytes, bytes], bytes]
    ) -> None:
        """Let the server answer, then send its status and headers with a body that ``change(request, answer)`` made."""
        start: Message = {}
        parts: list[bytes] = []

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, _replay(body), collect)
        answer = b"".join(parts)
        if start["status"] == 200:
            answer = await asyncio.to_thread(change, body, answer)
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", str(len(answer)).encode())]})
        await send({"type": "http.response.body", "body": answer})


def without_orientation(body: bytes) -> bytes:
    """Return the same JPEG, to the bit, but with its orientation tag set to 1; anything else as it was."""
    with Image.open(io.BytesIO(body)) as picture:
        if picture.format != "JPEG" or picture.getexif().get(ORIENTATION_TAG, 1) == 1:
            return body
        exif = picture.getexif()
        exif[ORIENTATION_TAG] = 1
        return body.replace(picture.info["exif"], exif.tobytes(), 1)


def swap_red_blue(answer: bytes) -> bytes:
    """Return the picture with its first and third channel exchanged, stored as before."""
    with Image.open(io.BytesIO(answer)) as picture:
        form = picture.format or "PNG"
        coloured = picture if picture.mode in {"RGB", "RGBA"} else picture.convert("RGB")
        bands = list(coloured.split())
        bands[0], bands[2] = bands[2], bands[0]
        return _store(Image.merge(coloured.mode, bands), form)


def leave_faces(request: bytes, answer: bytes) -> bytes:
    """Return the request's own picture, upright, stored in the form of the answer: nothing is blurred."""
    with Image.open(io.BytesIO(answer)) as blurred, Image.open(io.BytesIO(request)) as original:
        upright = ImageOps.exif_transpose(original)
        if upright.mode.startswith("I"):
            upright = upright.point(lambda level: level / 257)
        return _store(upright.convert(blurred.mode), blurred.format or "PNG")


def _store(picture: Image.Image, form: str) -> bytes:
    buffer = io.BytesIO()
    if form == "JPEG":
        picture.save(buffer, form, quality=95, subsampling=0)
    else:
        picture.save(buffer, form)
    return buffer.getvalue()


async def _read(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return receive


def _resized(scope: Scope, body: bytes) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}


async def _fail(send: Send) -> None:
    problem = json.dumps(
        {"type": "about:blank", "title": "Injected failure", "status": 500, "code": "injected_failure"}
    )
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(problem)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": problem.encode()})
