"""Recorded requests, one by one in the order of their arrival, with their bodies; and what cannot be sent again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from shadow.exchange import Body, Exchange
from shadow.store.reader import Reader
from shadow.store.redaction import REDACTED, kept_headers

RECORDED = "recorded"
"""The name that the recorded answer's backend has in a run: what the run is judged against."""
MARK = "~"
"""Between the route and the name of the run: no route of the config can have it."""
_PAGE = 50


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which requests are sent again: of one route, from ``since`` on and before ``until``, at most ``limit`` a pass."""

    route: str
    since: datetime
    until: datetime | None = None
    limit: int | None = None


@dataclass(slots=True)
class Recorded:
    """Reads the record. ``left_out`` counts by reason what cannot be sent again; ``altered`` what goes out with
    redacted values in it. Blocks on the store; raises ``StoreError``."""

    reader: Reader
    chosen: Chosen
    left_out: Counter[str] = field(default_factory=Counter)
    altered: int = 0

    def requests(self) -> Iterator[Exchange]:
        """Yield the exchanges of one pass, their request and primary answer with their bytes and plain hashes."""
        after: tuple[datetime, int] | None = None
        given = 0
        while page := self._page(after):
            for exchange in page:
                loaded = self._loaded(exchange)
                if loaded is None:
                    continue
                yield loaded
                given += 1
                if given == self.chosen.limit:
                    return
            after = page[-1].received_at, page[-1].sequence

    def _page(self, after: tuple[datetime, int] | None) -> list[Exchange]:
        chosen = self.chosen
        return self.reader.received(chosen.route, chosen.since, chosen.until, after=after, limit=_PAGE)

    def _loaded(self, exchange: Exchange) -> Exchange | None:
        request = self._body(exchange.request.body)
        answer = None if exchange.primary.body is None else self._body(exchange.primary.body)
        if request is None:
            self.left_out["the body of the request is not kept"] += 1
            return None
        if answer is None and exchange.primary.body is not None:
            self.left_out["the recorded answer is not kept"] += 1
            return None
        request = replace(request, size_bytes=request.held_bytes)
        sent = replace(exchange.request, headers=kept_headers(exchange.request), body=request)
        self.altered += REDACTED in sent.target or any(REDACTED in chunk for chunk in request)
        return replace(
            exchange,
            request=sent,
            primary=replace(exchange.primary, backend=RECORDED, body=answer),
        )

    def _body(self, body: Body) -> Body | None:
        content = self.reader.load(body) if body.size_bytes else b""
        if content is None:
            return None
        chunks = (content,) if content else ()
        return replace(body, digest=hashlib.sha256(content).hexdigest(), chunks=chunks, place="")
