"""What a route lets the store keep: everything, mismatches, or hashes; and JSON values that are never written."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shadow.errors import StoreError
from shadow.exchange import Exchange
from shadow.keeping import Bodies, KeepRule, keeps_match
from shadow.store.database import writing
from shadow.store.reader import Reader
from tests.shadow.bench import body_of, exchange_of
from tests.shadow.store.shelf import LARGE, Shelf

pytestmark = pytest.mark.anyio
OWN = KeepRule(Bodies.MISMATCHES)


def with_answers(id_: str, content: bytes, route: str = "classify") -> Exchange:
    exchange = exchange_of(id_, route=route, body=body_of(content, media_type="application/json"))
    leg = replace(exchange.primary, body=body_of(content, media_type="application/json"))
    return replace(exchange, primary=leg, shadow=replace(leg, backend="onprem"))


def loaded(reader: Reader, id_: str) -> list[bytes | None]:
    """Return the bodies of the request and of both answers."""
    found = reader.exchange(id_)
    assert found is not None
    assert found.shadow is not None
    bodies = [found.request.body, found.primary.body, found.shadow.body]
    return [None if body is None else reader.load(body) for body in bodies]


async def test_with_hashes_no_body_is_written_and_equality_can_still_be_told(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        store.configure({"classify": KeepRule(Bodies.HASHES)})
        for name, content in (("small", b"a face"), ("large", b"a face " * 4000)):
            await store.save(with_answers(name, content))
            assert loaded(store.reader(), name) == [None] * 3
        small, large = store.reader().exchanges()
        assert small.shadow is not None
        assert small.shadow.body is not None
        assert small.request.body.sha256 == small.shadow.body.sha256 != large.request.body.sha256
        assert large.request.body.size_bytes == 28_000
    assert shelf.files() == []


async def test_the_bodies_of_a_match_can_be_dropped_without_harm_to_a_mismatch_with_the_same_bytes(
    shelf: Shelf,
) -> None:
    async with shelf.stored() as store:
        store.configure({"classify": OWN, "other": KeepRule()})
        for name, route in (("match", "classify"), ("mismatch", "classify"), ("other", "other")):
            await store.save(with_answers(name, LARGE, route))
            await store.save(with_answers(f"small-{name}", b"a face", route))
        assert len(shelf.files()) == 3  # the same bytes three times: two exchanges' own, one shared
        reader = store.reader()
        assert reader.drop_bodies(["match", "small-match", "other", "small-other", "nobody"]) == 2
        assert reader.drop_bodies(["match"]) == 0
        for prefix, content in (("", LARGE), ("small-", b"a face")):
            assert loaded(reader, f"{prefix}match") == [None] * 3
            assert loaded(reader, f"{prefix}mismatch") == [content] * 3
            assert loaded(reader, f"{prefix}other") == [content] * 3
        assert len(shelf.files()) == 2


async def test_bodies_that_cannot_be_dropped_as_the_database_is_locked_are_told(shelf: Shelf) -> None:
    async with shelf.stored(lock_timeout_s=0.1) as store:
        store.configure({"classify": KeepRule(Bodies.MISMATCHES)})
        await store.save(exchange_of("match", body=body_of(LARGE)))
        locked = writing(store.reader().engine)
        with locked.connect() as other, other.begin(), pytest.raises(StoreError, match="could not be deleted"):
            await asyncio.to_thread(store.reader().drop_bodies, ["match"])
        assert store.reader().drop_bodies(["match"]) == 1


async def test_json_values_are_redacted_before_anything_is_written(shelf: Shelf) -> None:
    secret = b'{"user": {"email": "me@example.org"}, "kind": "cat", "filler": "' + b"x" * 9000 + b'"}'
    async with shelf.stored() as store:
        store.configure({"classify": KeepRule(redact_json=("user.email",))})
        await store.save(with_answers("small", b'{"user": {"email": "me@example.org"}, "kind": "cat"}'))
        await store.save(with_answers("large", secret))
        await store.save(with_answers("broken", b'{"user": {"email": "me@exa'))
        await store.save(with_answers("elsewhere", secret, route="other"))
        reader = store.reader()
        for content in loaded(reader, "small"):
            assert content == b'{"user":{"email":"[redacted]"},"kind":"cat"}'
        for content in loaded(reader, "large"):
            assert content is not None
            assert b"me@example.org" not in content
            assert b'"kind":"cat"' in content
        assert loaded(reader, "broken") == [None] * 3
        assert loaded(reader, "elsewhere") == [secret] * 3  # that route redacts nothing; and shares no object
        a, b = reader.exchange("large"), reader.exchange("elsewhere")
        assert a is not None
        assert b is not None
        assert a.request.body.sha256 == b.request.body.sha256


async def test_a_route_that_the_settings_lost_keeps_its_rule_for_what_is_on_its_way(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        store.configure({"classify": KeepRule(Bodies.HASHES)})
        store.configure({"other": KeepRule()})
        await store.save(with_answers("late", b"a face"))
        assert loaded(store.reader(), "late") == [None] * 3


def test_the_sample_of_matches_is_the_same_each_time_and_of_the_asked_size() -> None:
    ids = [f"id-{number}" for number in range(4000)]
    kept = {id_ for id_ in ids if keeps_match(KeepRule(Bodies.MISMATCHES, 5.0), id_)}
    assert 140 < len(kept) < 260
    assert kept <= {id_ for id_ in ids if keeps_match(KeepRule(Bodies.MISMATCHES, 10.0), id_)}
    assert not any(keeps_match(KeepRule(Bodies.MISMATCHES, 0), id_) for id_ in ids)
    assert all(keeps_match(KeepRule(Bodies.MISMATCHES, 100), id_) for id_ in ids)
    assert all(keeps_match(KeepRule(Bodies.ALL, 0), id_) for id_ in ids)
