"""Any exchange that is stored comes back as it was."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shadow.exchange import Body, Exchange, Failure, FailureKind, Observation, Request, SkipReason
from shadow.rule import is_secret
from shadow.store.schema import INLINE_LIMIT_BYTES
from shadow.store.vault import Vault
from tests.shadow.bench import body_of
from tests.shadow.store.postgres_server import PostgresServer
from tests.shadow.store.shelf import Shelf

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
"""Without NUL, which PostgreSQL's text cannot hold and no field of HTTP may."""
NAMES = st.binary(max_size=12).filter(lambda name: not is_secret(name.decode("latin-1")))  # the store redacts those
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=20)), max_size=4).map(tuple)
SECONDS = st.none() | st.floats(0, allow_nan=False)
CONTENT = st.binary(max_size=60) | st.integers(INLINE_LIMIT_BYTES - 1, INLINE_LIMIT_BYTES + 2).map(bytes)


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    content = draw(st.lists(CONTENT, max_size=2))
    body = body_of(*content, media_type=draw(TEXT), content_encoding=draw(TEXT))
    return body if draw(st.booleans()) else replace(body, chunks=None)


def timed(arrivals: list[tuple[float, int]], sized: bool, **others: Any) -> Observation:
    """Return an observation with arrivals, the sizes of its chunks known or not."""
    sizes = tuple(size for _, size in arrivals) if sized else ()
    return Observation(arrivals_s=tuple(at for at, _ in arrivals), arrival_bytes=sizes, **others)


OBSERVATIONS = st.builds(
    timed,
    backend=TEXT,
    server=TEXT,
    status=st.none() | st.integers(100, 999),
    headers=HEADERS,
    body=st.none() | bodies(),
    first_byte_s=SECONDS,
    total_s=SECONDS,
    arrivals=st.lists(st.tuples(st.floats(0, allow_nan=False), st.integers(0, 2**40)), max_size=4),
    sized=st.booleans(),
    failure=st.none() | st.builds(Failure, st.sampled_from(FailureKind), TEXT),
)
EXCHANGES = st.builds(
    Exchange,
    id=st.just("given anew by the test"),
    route=TEXT,
    received_at=st.datetimes(timezones=st.sampled_from([UTC])),
    request=st.builds(Request, TEXT, st.binary(max_size=20), HEADERS, bodies()),
    primary=OBSERVATIONS,
    shadow=st.none() | OBSERVATIONS,
    control=st.none() | OBSERVATIONS,
    skipped=st.none() | st.sampled_from(SkipReason),
    client_request_id=TEXT,
)


def as_stored(body: Body, vault: Vault, found: Body) -> Body:
    """Return the body as a reader sees it: its keyed digest, one chunk in a row, none in an object."""
    body = replace(body, digest=vault.digest(body.sha256), place=found.place)
    if body.chunks is None or body.size_bytes > INLINE_LIMIT_BYTES:
        return replace(body, chunks=None)
    return replace(body, chunks=(b"".join(body),) if body.size_bytes else ())


def leg_as_stored(leg: Observation, vault: Vault, found: Observation) -> Observation:
    if leg.body is None or found.body is None:
        return leg
    return replace(leg, body=as_stored(leg.body, vault, found.body))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_shelf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    if request.param == "sqlite":
        return Shelf.in_folder(tmp_path_factory.mktemp("store"))
    server: PostgresServer = request.getfixturevalue("postgres")
    return Shelf.in_folder(tmp_path_factory.mktemp("store"), url=server.new_database())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(EXCHANGES, min_size=1, max_size=4))
def test_any_exchange_comes_back_as_it_was(shared_shelf: Shelf, drawn: list[Exchange]) -> None:
    batch = [replace(exchange, id=uuid.uuid4().hex) for exchange in drawn]

    async def save_all() -> list[int]:
        async with shared_shelf.stored() as store:
            return await asyncio.gather(*(store.save(exchange) for exchange in batch))

    sequences = asyncio.run(save_all())
    with shared_shelf.reading() as reader:
        vault = reader.parts.vault
        for exchange, sequence in zip(batch, sequences, strict=True):
            found = reader.exchange(exchange.id)
            assert found is not None
            body = exchange.request.body
            assert found == replace(
                exchange,
                request=replace(exchange.request, body=as_stored(body, vault, found.request.body)),
                primary=leg_as_stored(exchange.primary, vault, found.primary),
                sequence=sequence,
                shadow=exchange.shadow and found.shadow and leg_as_stored(exchange.shadow, vault, found.shadow),
                control=exchange.control and found.control and leg_as_stored(exchange.control, vault, found.control),
            )
            if body.chunks is not None:
                assert reader.load(found.request.body) == b"".join(body)
