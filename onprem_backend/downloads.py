"""A download over https that can break off and go on.

Theory of operation. The bytes so far are in ``path``; beside it ``path.json`` names the address, the validator that
the server gave (a strong ETag, else Last-Modified) and the whole size. A later try asks for the rest with ``Range`` and
``If-Range`` (RFC 9110 sections 13.1.5 and 14.2): a server that still has the same content answers 206 with the rest;
one whose content has changed, or that knows no ranges, answers 200, and everything begins again. Without a validator
nothing can be gone on with. What the bytes are worth is for the caller to check: a hash decides, not this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_ATTEMPTS = 4
_TIMEOUT_S = 60.0
_MOST_REDIRECTS = 5
_CHUNK_BYTES = 1 << 16
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

Advance = Callable[[int, int], None]
"""Called with (bytes done, bytes in all or 0 when unknown)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer. ``headers`` have lower-case names; ``chunks`` raise ``OSError`` when the connection breaks."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterable[bytes]


Open = Callable[[str, Mapping[str, str]], AbstractContextManager[Answer]]
"""Asks an address with these headers. Raises ``OSError``."""


@contextmanager
def open_https(url: str, headers: Mapping[str, str]) -> Iterator[Answer]:
    """Ask with requests, which honours the proxies of the environment. Every address on the way has to be https."""
    import requests  # only this needs it

    broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)

    def chunks(response: requests.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_content(_CHUNK_BYTES)
        except broken as error:
            raise ConnectionError(f"{url} broke off: {error}") from error

    with requests.Session() as session:
        session.max_redirects = _MOST_REDIRECTS
        del session.adapters["http://"]  # a redirect to there raises InvalidSchema, an OSError
        with session.get(url, headers=dict(headers), stream=True, timeout=_TIMEOUT_S) as response:
            lowered = {name.lower(): value for name, value in response.headers.items()}
            yield Answer(response.status_code, lowered, chunks(response))


class Download:
    """One download into ``path``. ``size_bytes`` is what it has to have in all, where that is known."""

    def __init__(self, url: str, path: Path, size_bytes: int | None) -> None:
        self.path = path
        self._url = url
        self._size_bytes = size_bytes
        self._notes = path.with_name(path.name + ".json")

    def run(self, open_url: Open, advance: Advance) -> None:
        """Download, or go on, until the file is complete; a broken connection is tried again a few times as long as
        there is progress. Raises ``OSError``; what has come is kept for the next time. Blocking."""
        if urlsplit(self._url).scheme != "https":
            raise OSError(f"{self._url} is not https: refused")
        done = self._done()
        if self._validator() and done == self._noted_total():
            advance(done, done)
            return
        for attempt in range(_ATTEMPTS):
            before = self._done()
            try:
                self._go_on(open_url, advance)
            except ConnectionError:
                if attempt == _ATTEMPTS - 1 or self._done() <= before:
                    raise
            else:
                return

    def forget(self) -> None:
        """Remove what is left of the download."""
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)

    def _done(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def _go_on(self, open_url: Open, advance: Advance) -> None:
        validator = self._validator()
        headers = {"Accept-Encoding": "identity"}
        if validator:
            headers |= {"Range": f"bytes={self._done()}-", "If-Range": validator}
        with open_url(self._url, headers) as answer:
            if answer.status == 416 and validator:
                self.forget()
                raise ConnectionError(f"{self._url} has no such range any more")
            if answer.status not in (200, 206):
                raise OSError(f"{self._url} answers {answer.status}")
            done, total = self._begin(answer)
            self._receive(answer, done, total, advance)

    def _begin(self, answer: Answer) -> tuple[int, int]:
        """Return where the answer's bytes belong and how many there will be (0: unknown); note the validator."""
        done, total = 0, int(answer.headers.get("content-length", 0))
        if answer.status == 206:
            found = _RANGE.fullmatch(answer.headers.get("content-range", ""))
            if found is None or int(found[1]) != self._done():
                self.forget()
                raise OSError(f"{self._url} answers with another range than the one asked for")
            done = int(found[1])
            total = 0 if found[2] == "*" else int(found[2])
        if self._size_bytes and total and total != self._size_bytes:
            self.forget()
            raise OSError(f"{self._url} has {total} bytes, pinned are {self._size_bytes}: refused")
        if answer.status == 200:
            self.forget()
            notes = {"url": self._url, "validator": _validator_of(answer), "total": total}
            self._notes.write_text(json.dumps(notes), encoding="utf-8")
        return done, total or self._size_bytes or 0

    def _receive(self, answer: Answer, done: int, total: int, advance: Advance) -> None:
        advance(done, total)
        with self.path.open("ab") as target:
            for chunk in answer.chunks:
                target.write(chunk)
                done += len(chunk)
                if total and done > total:
                    break
                advance(done, total)
        if total and done < total:
            raise ConnectionError(f"{self._url} broke off after {done} of {total} bytes")
        if total and done > total:
            self.forget()
            raise OSError(f"{self._url} sends more than the {total} bytes it announced: refused")

    def _validator(self) -> str:
        """Return what to go on with; empty when everything has to begin again."""
        return str(self._noted().get("validator") or "") if self._done() else ""

    def _noted_total(self) -> int:
        total = self._noted().get("total")
        return total if isinstance(total, int) else 0

    def _noted(self) -> dict[str, object]:
        """Return what was noted about this address; empty when that cannot be read."""
        try:
            notes = json.loads(self._notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) and notes.get("url") == self._url else {}


def _validator_of(answer: Answer) -> str:
    etag = answer.headers.get("etag", "")
    if etag and not etag.startswith("W/"):  # If-Range wants a strong one
        return etag
    return answer.headers.get("last-modified", "")
