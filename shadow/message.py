"""``httpx`` messages that cost little: what is seldom asked for is made when somebody asks.

A gateway looks at raw fields and a target. It would otherwise pay for a parsed URL and for a header object, twice per
request, that nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import httpx

RawFields = list[tuple[bytes, bytes]]


class LightHeaders(httpx.Headers):
    """Headers over a raw list that is not to be changed by anyone else from now on."""

    def __init__(self, fields: RawFields) -> None:
        self._encoding = None
        self._fields = fields

    @property
    def raw(self) -> RawFields:
        """The raw list."""
        return self._fields if "_list" not in self.__dict__ else super().raw

    @cached_property
    def _list(self) -> list[tuple[bytes, bytes, bytes]]:  # type: ignore[override]
        return [(key, key.lower(), value) for key, value in self._fields]


class LightRequest(httpx.Request):
    """A request to send. ``make_url`` is called if anybody asks for the URL; the target goes as an extension."""

    def __init__(
        self,
        method: str,
        make_url: Callable[[], httpx.URL],
        fields: RawFields,
        stream: httpx.AsyncByteStream,
        extensions: dict[str, Any],
    ) -> None:
        self.method = method
        self.headers = LightHeaders(fields)
        self.stream = stream
        self.extensions = extensions
        self._make_url = make_url

    @cached_property
    def url(self) -> httpx.URL:  # type: ignore[override]
        """The URL, which nobody on the way needs."""
        return self._make_url()


class LightResponse(httpx.Response):
    """An answer that is still being read."""

    # What the class below sets for each, where nobody changes it in place; a test holds the two side by side.
    _request = None
    next_request = None
    is_closed = False
    is_stream_consumed = False
    default_encoding = "utf-8"
    _num_bytes_downloaded = 0

    def __init__(
        self, status_code: int, fields: RawFields, stream: httpx.AsyncByteStream, extensions: dict[str, Any]
    ) -> None:
        self.status_code = status_code
        self.headers = LightHeaders(fields)
        self.extensions = extensions
        self.stream = stream

    @cached_property
    def history(self) -> list[httpx.Response]:  # type: ignore[override]
        """The answers before it: none, since nobody follows redirects."""
        return []

    async def aclose(self) -> None:
        """Close the stream."""
        if not self.is_closed:
            self.is_closed = True
            assert isinstance(self.stream, httpx.AsyncByteStream), "it was made with one"
            await self.stream.aclose()
