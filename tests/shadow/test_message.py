"""Light messages are httpx messages in everything but cost."""

from __future__ import annotations

import httpx
import pytest

from shadow.message import LightRequest, LightResponse

FIELDS = [(b"Host", b"a.test"), (b"X-D", b"1"), (b"x-d", b"caf\xe9")]


def test_a_request_is_what_httpx_would_make_of_it() -> None:
    made = 0

    def url() -> httpx.URL:
        nonlocal made
        made += 1
        return httpx.URL("http://a.test/b?c")

    light = LightRequest("POST", url, FIELDS, httpx.ByteStream(b"body"), {"target": b"/b?c"})
    stock = httpx.Request(
        "POST", url(), headers=FIELDS, stream=httpx.ByteStream(b"body"), extensions={"target": b"/b?c"}
    )
    assert light.headers.raw is FIELDS
    assert made == 1, "nobody asked for the URL yet"
    assert (light.url, light.url) == (stock.url, stock.url)
    assert made == 2
    assert (light.method, light.headers, light.extensions) == (stock.method, stock.headers, stock.extensions)
    assert light.read() == stock.read() == light.content
    assert light.headers["X-d"] == stock.headers["X-d"] == "1, caf\xe9"


@pytest.mark.anyio
async def test_an_answer_has_all_that_httpx_gives_one() -> None:
    light = LightResponse(404, list(FIELDS), httpx.ByteStream(b"body"), {"http_version": b"HTTP/1.1"})
    stock = httpx.Response(
        404, headers=FIELDS, stream=httpx.ByteStream(b"body"), extensions={"http_version": b"HTTP/1.1"}
    )
    for name, value in stock.__dict__.items():
        assert name in ("headers", "stream") or getattr(light, name) == value, name
    assert light.headers.raw == stock.headers.raw
    light.headers["X-New"] = "yes"
    assert light.headers.raw == [*FIELDS, (b"X-New", b"yes")]
    assert await light.aread() == await stock.aread()
    assert (light.text, light.http_version, light.is_client_error) == ("body", "HTTP/1.1", True)
    await light.aclose()
    assert light.is_closed
