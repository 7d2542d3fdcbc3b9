"""Small real exchanges, pictures and measurements for the comparison's tests."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
from PIL import Image
from skimage import data

from compare.epochs import Epoch, Epochs
from compare.kernels.pixels import Pixels
from compare.measurement import Critical, Diagnosis, Judgement, Leg, Measurement, OutputClass
from compare.policy import Kind, Policy
from shadow.exchange import Body, Exchange, Headers, Observation, Request

START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def policy(kind: Kind = Kind.AUTO, **changes: object) -> Policy:
    settings: dict[str, object] = {
        "route": "route",
        "baseline": "cloud",
        "candidate": "onprem",
        "kind": kind,
        "min_span_s": 30.0,
        "routes": 5,
    }
    return Policy(**{**settings, **changes})  # type: ignore[arg-type]


@cache
def photo(name: str = "astronaut") -> Pixels:
    pixels: Pixels = getattr(data, name)()
    return pixels


def encoded(pixels: Pixels, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def tagged(pixels: Pixels, orientation: int, form: str = "JPEG") -> bytes:
    """Return a picture whose EXIF says that it has to be turned to look like ``pixels``."""
    undo = {1: 0, 3: 2, 6: 1, 8: 3}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(np.rot90(pixels, undo), form, exif=exif, quality=95, subsampling=0)


def body(content: bytes | None, media_type: str = "image/png", encoding: str = "") -> Body:
    kept = b"" if content is None else content
    chunks = None if content is None else (kept,)
    return Body(hashlib.sha256(kept).hexdigest(), len(kept), media_type, encoding, chunks)


def answer(
    backend: str,
    content: bytes | None,
    media_type: str = "image/png",
    *,
    status: int = 200,
    total_s: float = 0.2,
    headers: Headers = ((b"X-Model", b"net-1"),),
    encoding: str = "",
) -> Observation:
    kept = body(content, media_type, encoding)
    return Observation(backend, f"{backend}-1", status, headers, kept, total_s / 2, total_s)


def exchange(
    number: int,
    primary: Observation,
    shadow: Observation | None,
    control: Observation | None = None,
    *,
    sent: bytes = b"",
    media_type: str = "image/jpeg",
    route: str = "route",
) -> Exchange:
    request = Request("POST", b"/v1/" + route.encode(), (), body(sent, media_type))
    at = START + timedelta(seconds=number)
    return Exchange(f"{route}-{number}", route, at, request, primary, shadow, control, sequence=number + 1)


def labels(*pairs: tuple[str, float]) -> bytes:
    return json.dumps({"predictions": [{"label": label, "prob": prob} for label, prob in pairs]}).encode()


def measured(
    number: int,
    output: OutputClass | None = OutputClass.IDENTICAL,
    *,
    critical: Critical | None = None,
    codes: Sequence[str] = (),
    control: OutputClass | None = None,
    baseline_s: float = 0.3,
    candidate_s: float = 0.1,
    baseline_failure: str | None = None,
    failure: str | None = None,
    orientation: int | None = None,
    build: str | None = "net-1",
    every_s: float = 1.0,
) -> Measurement:
    found = tuple(Diagnosis(code, f"an example of {code}") for code in codes)
    return Measurement(
        exchange_id=f"x{number}",
        sequence=number + 1,
        route="route",
        received_at=START + timedelta(seconds=number * every_s),
        judgement=Judgement(output, {}, found, critical),
        baseline=Leg("cloud", 200, None if baseline_failure else baseline_s, baseline_failure, "net-1"),
        candidate=Leg("onprem", 200, None if failure else candidate_s, failure, build),
        control_class=control,
        control_asked=control is not None,
        request_orientation=orientation,
        served_by="cloud",
    )


def split_epochs(measurements: Sequence[Measurement]) -> list[tuple[Epoch, int]]:
    """Return each epoch as it was last seen, with how many measurements it has."""
    epochs, found = Epochs(), list[tuple[Epoch, int]]()
    for m in measurements:
        fresh = epochs.take(m)
        count = 1 if fresh else found.pop()[1] + 1
        found.append((epochs.present, count))
    return found
