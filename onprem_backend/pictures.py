"""One picture's way: decoded, computed on, encoded; each step bounded, and none on the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import JSONResponse, Response

from onprem_backend.account import Account
from onprem_backend.catalog import ModelSpec
from onprem_backend.encoding import choose_media_type, encode
from onprem_backend.forms import ByteBudget
from onprem_backend.images import Limits, decode
from onprem_backend.jpegs import without_metadata
from onprem_backend.masks import decode_mask
from onprem_backend.metrics import Metrics
from onprem_backend.problems import Problem
from onprem_backend.registry import Finish, ModelState, Registry
from onprem_backend.sessions import Job, Prepared
from onprem_backend.settings import Settings
from onprem_backend.tracing import Tracer
from onprem_backend.workers import start_workers

if TYPE_CHECKING:
    from onprem_backend.loading import Loaded

R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What is wanted of a picture. ``options`` are checked; ``headers`` are the request's."""

    feature: str
    options: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def accept(self) -> str | None:
        """The request's Accept."""
        return self.headers.get("accept")


class Pictures:
    """Answers pictures, over one registry. Closed with ``close``."""

    def __init__(self, settings: Settings, registry: Registry, metrics: Metrics, tracer: Tracer) -> None:
        self.settings = settings
        self.registry = registry
        self.metrics = metrics
        self.budget = ByteBudget(settings.max_buffered_bytes)
        self._tracer = tracer
        self._limits = Limits(settings.max_pixels, settings.max_frames)
        self._codec = start_workers(settings.codec_threads, "codec")

    def close(self) -> None:
        """Start no more decoding or encoding."""
        self._codec.shutdown(wait=False, cancel_futures=True)

    async def in_codec(self, work: Callable[[], R]) -> R:
        """Run blocking work on bytes and pixels. Raises ``Problem("out_of_memory")``, and what the work raises."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._codec, work)
        except MemoryError:
            pass  # its frames hold what there is too much of
        raise Problem("out_of_memory", "there is no memory for this picture now", retry_after_s=5)

    async def answer(self, ask: Ask, image: bytes, mask: bytes | None) -> Response:
        """Return the answer to one picture. Raises ``Problem``. Counted, measured and traced either way."""
        account = Account(ask.feature)
        code = "cancelled"
        try:
            response = await self._answer(ask, image, mask, account)
            code = "ok"
            return response
        except Problem as problem:
            code = problem.code
            raise
        finally:
            account.report(code, self.metrics, self._tracer, ask.headers)

    async def _answer(self, ask: Ask, image: bytes, mask: bytes | None, account: Account) -> Response:
        state = self.registry.choose(ask.feature, ask.options)
        account.model = state.spec.name
        loaded = state.loaded
        if loaded is None:
            raise Problem("starting", "the model is being loaded", retry_after_s=1)
        async with loaded.pictures.lease():
            account.done("queue")
            step = await self.in_codec(lambda: self._decode(state, loaded, ask, image, mask))
            account.done("decode")
            frames = step.frames
            timed = await self.registry.run(state, loaded, step.work)
            account.done("inference", waited_s=timed.queue_s)
            finish, media_type, source = timed.value, step.media_type, image if step.same_format else b""
            del step, timed
            response = await self.in_codec(lambda: _respond(finish, media_type, source))
            account.done("encode")
        response.headers["X-Model"] = loaded.label
        if frames > 1:
            response.headers["X-Frames"] = str(frames)
        response.headers["Server-Timing"] = account.server_timing()
        return response

    def _decode(self, state: ModelState, loaded: Loaded, ask: Ask, image: bytes, mask: bytes | None) -> _Decoded:
        """Decode, check all that can be known before the model runs, and prepare."""
        spec = state.spec
        limits = self._limits
        if spec.scale > 1:
            most = self.settings.max_output_pixels // spec.scale**2
            limits = Limits(min(limits.max_pixels, most), limits.max_frames)
        picture = decode(image, limits)
        marked = None if mask is None else decode_mask(mask, self._limits, picture.size)
        media_type = "application/json"
        if not answers_document(spec, ask.options):
            media_type = choose_media_type(
                ask.accept,
                source_format=picture.format,
                transparent=picture_is_transparent(spec, ask.options, has_alpha=picture.alpha is not None),
                longest_px=max(picture.size) * spec.scale,
            )
        work = self.registry.prepare(state, loaded, Job(picture, marked, ask.options))
        return _Decoded(work, media_type, picture.frames, media_type == "image/jpeg" and picture.format == "JPEG")


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """``same_format``: the answer is a JPEG as the picture is."""

    work: Job | Prepared
    media_type: str
    frames: int
    same_format: bool


def answers_document(spec: ModelSpec, options: Mapping[str, str]) -> bool:
    """Say whether the answer is JSON and not a picture."""
    return spec.feature == "classify" or options.get("output") == "boxes"


def picture_is_transparent(spec: ModelSpec, options: Mapping[str, str], *, has_alpha: bool) -> bool:
    """Say whether the result has transparency: a background colour leaves none."""
    return not options.get("background") and (spec.adds_alpha or has_alpha)


def _respond(finish: Finish, media_type: str, source: bytes) -> Response:
    """Make the answer. ``source`` is the picture's file where the answer has its format and loses by being encoded."""
    result = finish()
    headers = dict(result.headers)
    if result.picture is None:
        return JSONResponse(result.document, headers=headers)
    same = without_metadata(source) if result.unchanged and source else None
    return Response(same or encode(result.picture, media_type), media_type=media_type, headers=headers)
