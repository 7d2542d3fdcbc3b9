"""The model server's HTTP face: routes, uploads in, pictures and problems out. The composition root."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onprem_backend.album_answers import AlbumAnswer
from onprem_backend.albums import AlbumLimits, open_album
from onprem_backend.catalog import SPECS, ModelSpec
from onprem_backend.clients import until_disconnect
from onprem_backend.control import Control
from onprem_backend.forms import Reservation, is_form, parse_form, pick_file, read_body
from onprem_backend.manifest import MANIFEST, ModelFile
from onprem_backend.metrics import Metrics
from onprem_backend.options import check_options
from onprem_backend.pictures import Ask, Pictures
from onprem_backend.problems import Problem
from onprem_backend.registry import Registry
from onprem_backend.settings import FEATURES, Settings
from onprem_backend.tracing import Tracer, no_tracer

_log = logging.getLogger("onprem_backend")

_FILE_FIELDS = ("file", "image")
_MASK_FIELDS = ("mask",)
_CLOSE_DEADLINE_S = 10.0
_CLIENT_CLOSED_REQUEST = 499
_PATHS = {feature: [f"/v1/{feature}"] for feature in FEATURES}
_PATHS["classify"].append("/predict")


def create_app(
    settings: Settings,
    *,
    specs: Sequence[ModelSpec] = SPECS,
    manifest: Mapping[str, ModelFile] = MANIFEST,
    tracer: Tracer = no_tracer,
    on_broken: Callable[[], None] = lambda: None,
    load_first: bool = False,
) -> Starlette:
    """Build the server. Its lifespan starts loading the models and closes them; until one is loaded it answers 503
    ``starting``, or, with ``load_first``, is not started. ``specs`` are the models to serve, ``manifest`` pins their
    files; ``on_broken`` is called once, when the device is lost and the process should end. The registry is at
    ``state.registry``."""
    metrics = Metrics()
    registry = Registry(settings, specs, metrics=metrics, manifest=manifest, on_broken=on_broken)
    pictures = Pictures(settings, registry, metrics, tracer)
    control = Control(settings, registry, metrics, pictures.budget)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await registry.start()
        try:
            if load_first:
                await registry.loaded()
            yield
        finally:
            pictures.close()
            await registry.aclose(_CLOSE_DEADLINE_S)

    app = Starlette(
        routes=[*_picture_routes(Uploads(pictures)), *_control_routes(control)],
        lifespan=lifespan,
        middleware=[Middleware(ServerName, name=settings.server_name), Middleware(LastResort)],
        exception_handlers={
            Problem: _answer_problem,
            HTTPException: _answer_http_exception,
            ClientDisconnect: _answer_nobody,
        },
    )
    app.state.registry = registry
    return app


def _picture_routes(uploads: Uploads) -> list[Route]:
    one = [
        Route(path, partial(uploads.serve, feature), methods=["POST"])
        for feature, paths in _PATHS.items()
        for path in paths
    ]
    many = [
        Route(f"/v1/batch/{feature}", partial(uploads.serve_album, feature), methods=["POST"]) for feature in FEATURES
    ]
    return one + many


def _control_routes(control: Control) -> list[Route]:
    return [
        Route("/v2/health/live", control.live, methods=["GET"]),
        Route("/v2/health/ready", control.ready, methods=["GET"]),
        Route("/v2/models/{name}/ready", control.model_ready, methods=["GET"]),
        Route("/v2/repository/models/{name}/load", control.load, methods=["POST"]),
        Route("/v2/repository/models/{name}/unload", control.unload, methods=["POST"]),
        Route("/v1/models", control.models, methods=["GET"]),
        Route("/metrics", control.metrics, methods=["GET"]),
    ]


class ServerName:
    """Names the server in every answer."""

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["server"] = self._name
            await send(message)

        await self._app(scope, receive, send_named if scope["type"] == "http" else send)


class LastResort:
    """Answers what nobody expected. An exception that gets as far as the server closes the connection without a word,
    which costs the next request on it: a gateway's connections are shared."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_watched)
        except Exception:  # the boundary of a request
            if scope["type"] != "http" or started:
                raise
            _log.exception("a request failed in a way that nobody expected")
            fallen = Problem("internal_error", "the server failed; its log says why")
            await (await _answer_problem(Request(scope), fallen))(scope, receive, send)


class Uploads:
    """The endpoints that take pictures."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._settings = pictures.settings

    async def serve(self, feature: str, request: Request) -> Response:
        """Answer one picture."""
        ask = self._ask(feature, request)
        with self._pictures.budget.reservation() as reservation:
            body = await self._read(request, reservation, self._settings.max_body_bytes)
            content_type = request.headers.get("content-type", "")
            split = partial(_files, content_type, body, with_mask=feature == "erase")
            del body
            image, mask = await self._pictures.in_codec(split) if is_form(content_type) else split()
            del split
            return await until_disconnect(request.receive, self._pictures.answer(ask, image, mask))

    async def serve_album(self, feature: str, request: Request) -> Response:
        """Answer many pictures, each as soon as it is ready."""
        ask = self._ask(feature, request)
        settings = self._settings
        limits = AlbumLimits(settings.max_album_pictures, settings.max_body_bytes, settings.max_album_bytes)
        with ExitStack() as held:
            reservation = held.enter_context(self._pictures.budget.reservation())
            body = await self._read(request, reservation, settings.max_album_bytes)
            content_type = request.headers.get("content-type", "")
            with_masks = feature == "erase"
            open_it = partial(open_album, content_type, body, limits, with_masks=with_masks)
            del body
            items = await self._pictures.in_codec(open_it)
            del open_it
            loaded = self._pictures.registry.choose(feature, ask.options).loaded
            window = 1 if loaded is None else loaded.pictures.size
            return AlbumAnswer(self._pictures, ask, items, window, held.pop_all())

    def _ask(self, feature: str, request: Request) -> Ask:
        """Check what can be refused before the body is read."""
        headers = {**request.headers, "accept": ", ".join(request.headers.getlist("accept"))}
        ask = Ask(feature, check_options(feature, request.query_params), headers)
        self._pictures.registry.choose(feature, ask.options)
        return ask

    async def _read(self, request: Request, reservation: Reservation, max_bytes: int) -> bytes:
        return await read_body(request, reservation, max_bytes=max_bytes, timeout_s=self._settings.body_timeout_s)


def _files(content_type: str, body: bytes, *, with_mask: bool) -> tuple[bytes, bytes | None]:
    """Return the picture and, where the feature wants one, the mask. Blocking for a form."""
    if not is_form(content_type):
        if with_mask:
            raise Problem("form_required", "erase takes multipart/form-data with the fields file and mask")
        return body, None
    parts = parse_form(content_type, body)
    return pick_file(parts, _FILE_FIELDS), pick_file(parts, _MASK_FIELDS) if with_mask else None


async def _answer_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, Problem):
        raise error
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.document(), error.status, headers, "application/problem+json")


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "internal_error")
    response = await _answer_problem(request, Problem(code, error.detail))
    response.headers.update(error.headers or {})
    return response


async def _answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED_REQUEST)
