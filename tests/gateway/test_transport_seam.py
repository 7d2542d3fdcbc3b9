"""The transport is a seam: respx stands behind it, and the gateway asks it for exactly what the client asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
import respx
from starlette.types import Message

from gateway.app import Parts, create_app
from gateway.problem import AnswerAborted
from shadow.exchange import FailureKind
from tests.gateway.harness import MemorySource, one_route, running


def test_respx_behind_the_transport_sees_the_request_as_it_is() -> None:
    router = respx.Router()
    predict = router.post("http://backend.test/v1/predict", params={"top": "5"}).respond(
        200, json={"label": "cat"}, headers={"X-Model": "m1"}
    )
    with running(
        one_route("http://backend.test"), transport_factory=lambda: httpx.MockTransport(router.async_handler)
    ) as gateway:
        answer = gateway.request("POST", "/v1/predict?top=5", [(b"Content-Type", b"image/png")], b"\x89PNG")
        exchange = gateway.taps.wait()[0]
    assert answer.json() == {"label": "cat"}
    assert answer.values(b"x-model") == [b"m1"]
    assert predict.call_count == 1
    request = predict.calls.last.request
    assert request.content == b"\x89PNG"
    assert request.extensions["target"] == b"/v1/predict?top=5"
    assert dict(request.headers) == {
        "host": "backend.test", "content-type": "image/png", "content-length": "4", "x-request-id": exchange.id,
    }  # fmt: skip


def test_a_cut_answer_is_an_error_for_any_server() -> None:
    class Cut(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"half"
            raise httpx.ReadError("gone")

    sent: list[Message] = []
    coming: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not coming:
            await anyio.sleep_forever()
        return coming.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Cut())

    app = create_app(
        MemorySource(one_route("http://backend.test")), Parts(transport_factory=lambda: httpx.MockTransport(answer))
    )
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}

    async def serve() -> None:
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    with pytest.raises(AnswerAborted):
        anyio.run(serve)
    assert [message.get("more_body") for message in sent] == [None, True]


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (httpx.ConnectError("x"), 502, "backend_unreachable", FailureKind.CONNECT),
        (httpx.ConnectTimeout("x"), 502, "backend_unreachable", FailureKind.CONNECT),
        (httpx.PoolTimeout("x"), 503, "gateway_busy", FailureKind.TIMEOUT),
        (httpx.ReadTimeout("x"), 504, "backend_timeout", FailureKind.TIMEOUT),
        (httpx.ReadError("x"), 502, "backend_reset", FailureKind.RESET),
        (httpx.RemoteProtocolError("x"), 502, "backend_protocol_error", FailureKind.PROTOCOL),
    ],
)
def test_each_failure_has_one_code(error: httpx.TransportError, status: int, code: str, kind: FailureKind) -> None:
    router = respx.Router()
    route = router.post("http://backend.test/").mock(side_effect=error)
    with running(
        one_route("http://backend.test"), transport_factory=lambda: httpx.MockTransport(router.async_handler)
    ) as gateway:
        answer = gateway.request("POST", "/", body=b"")
        failure = gateway.taps.wait()[0].primary.failure
    assert (answer.status, answer.code) == (status, code)
    assert failure is not None
    assert failure.kind is kind
    assert route.call_count == 1, "a POST is never tried again"
