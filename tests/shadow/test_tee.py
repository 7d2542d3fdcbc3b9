"""The tee and the byte budget."""

from __future__ import annotations

import hashlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.exchange import Body, SkipReason
from shadow.tee import ByteBudget, Tee


def test_it_keeps_the_very_objects_it_was_fed() -> None:
    chunks = [b"a" * 1000, b"b" * 1000]
    tee = Tee(ByteBudget(10_000), 10_000)
    for chunk in chunks:
        tee.feed(chunk)
    body = tee.finish("image/png", "gzip")
    assert body.chunks is not None
    assert [id(chunk) for chunk in body.chunks] == [id(chunk) for chunk in chunks]
    assert body.sha256 == hashlib.sha256(b"".join(chunks)).hexdigest()
    assert (body.size_bytes, body.media_type, body.content_encoding) == (2000, "image/png", "gzip")


@pytest.mark.parametrize("size", [1, 2, 3, 100, 511, 512, 5000])
def test_a_body_that_comes_in_tiny_pieces_takes_little_more_than_its_size(size: int) -> None:
    tee, whole = Tee(ByteBudget(2**20), 2**20), bytes(range(256)) * 1000
    for at in range(0, len(whole), size):
        tee.feed(whole[at : at + size])
    chunks = tee.finish().chunks
    assert chunks is not None
    assert b"".join(chunks) == whole
    assert sum(map(sys.getsizeof, chunks)) + sys.getsizeof(chunks) < 1.2 * len(whole)


def test_m03_an_empty_body_is_kept_and_is_no_loss() -> None:
    tee = Tee(ByteBudget(0), 0)
    tee.feed(b"")
    body = tee.finish()
    assert (tee.lost, body.chunks, body.size_bytes) == (None, (), 0)


def test_it_reserves_from_the_first_chunk_on() -> None:
    budget = ByteBudget(10)
    Tee(budget, 10).feed(b"1234")
    assert budget.used_bytes == 4


@pytest.mark.parametrize(
    ("budget_bytes", "max_bytes", "reason"),
    [(5, 100, SkipReason.BUDGET_FULL), (100, 5, SkipReason.BODY_TOO_LARGE)],
)
def test_what_does_not_fit_is_dropped_named_and_released_but_still_hashed(
    budget_bytes: int, max_bytes: int, reason: SkipReason
) -> None:
    budget = ByteBudget(budget_bytes)
    tee = Tee(budget, max_bytes, hashed=True)
    for chunk in (b"1234", b"5678", b"9"):
        tee.feed(chunk)
    assert budget.used_bytes == 0
    body = tee.finish()
    assert (tee.lost, body.chunks) == (reason, None)
    assert (body.sha256, body.size_bytes) == (hashlib.sha256(b"123456789").hexdigest(), 9)


@pytest.mark.parametrize("hashed", [True, False])
def test_without_a_budget_it_counts_and_hashes_where_asked_to_and_loses_nothing(hashed: bool) -> None:
    tee = Tee(None, 1, hashed=hashed)
    tee.feed(b"123")
    body = tee.finish()
    assert (tee.lost, body.chunks, body.size_bytes) == (None, None, 3)
    assert body.sha256 == (hashlib.sha256(b"123").hexdigest() if hashed else "")


def test_a_late_digest_is_the_digest() -> None:
    tee = Tee(ByteBudget(10), 10)
    tee.feed(b"12")
    tee.feed(b"3")
    known = hashlib.sha256(b"123").hexdigest()
    late = tee.finish()
    assert late == Body(known, 3, chunks=(b"123",)), "whether it is known yet makes no difference"
    assert hash(late) == hash(Body(known, 3, chunks=(b"123",)))
    assert late != Body(hashlib.sha256(b"").hexdigest(), 3, chunks=(b"123",))


def test_discard_after_finish_leaves_the_reservation_with_the_body() -> None:
    budget = ByteBudget(10)
    tee = Tee(budget, 10)
    tee.feed(b"1234")
    body = tee.finish()
    tee.discard()
    assert budget.used_bytes == body.held_bytes == 4


def test_more_than_was_taken_cannot_be_given_back() -> None:
    budget = ByteBudget(10)
    assert budget.try_reserve(3)
    with pytest.raises(ValueError, match="released 4 bytes"):
        budget.release(4)


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.binary(max_size=40), st.sampled_from(["finish", "discard"]))),
    max_size=60,
)


@given(OPERATIONS, st.integers(0, 200), st.integers(0, 100))
def test_the_budget_is_conserved_whatever_happens_to_four_bodies(
    operations: list[tuple[int, bytes | str]], total: int, cap: int
) -> None:
    budget = ByteBudget(total)
    tees = [Tee(budget, cap) for _ in range(4)]
    bodies = []
    for which, operation in operations:
        if isinstance(operation, bytes):
            tees[which].feed(operation)
        elif operation == "finish":
            bodies.append(tees[which].finish())
        else:
            tees[which].discard()
        assert 0 <= budget.used_bytes <= total
        assert budget.used_bytes >= sum(body.held_bytes for body in bodies)
    for tee in tees:
        tee.discard()
    assert budget.used_bytes == sum(body.held_bytes for body in bodies)
    for body in bodies:
        budget.release(body.held_bytes)
    assert budget.used_bytes == 0


@given(st.binary(max_size=200), st.booleans(), st.data())
def test_hash_and_size_do_not_depend_on_where_the_chunks_end(whole: bytes, hashed: bool, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    tee = Tee(ByteBudget(1000), 1000, hashed=hashed)
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        tee.feed(whole[start:end])
    body = tee.finish()
    assert (body.sha256, body.size_bytes) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert b"".join(body) == whole
