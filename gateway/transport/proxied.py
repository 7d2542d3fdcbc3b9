"""Stock httpx through a proxy, with request-targets as they are.

httpcore takes the ``target`` extension for every request that it makes of one, also for the CONNECT that opens a
tunnel. So here the target travels in the URL, which then must not normalise it.
"""

from __future__ import annotations

import httpx

from shadow.message import LightRequest


class _RawUrl(httpx.URL):
    """A URL whose path and query are these very bytes."""

    def __init__(self, url: httpx.URL, target: bytes) -> None:
        super().__init__(url)
        self._target = target

    @property
    def raw_path(self) -> bytes:
        """The bytes."""
        return self._target


class ProxiedTransport(httpx.AsyncBaseTransport):
    """Hands requests to ``inner``, which it owns, without the extension."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request."""
        extensions = dict(request.extensions)
        url = _RawUrl(request.url, extensions.pop("target", None) or request.url.raw_path)
        assert isinstance(request.stream, httpx.AsyncByteStream)
        return await self._inner.handle_async_request(
            LightRequest(request.method, lambda: url, request.headers.raw, request.stream, extensions)
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._inner.aclose()
