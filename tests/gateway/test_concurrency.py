"""Requests at once: slots, the queue for them, and that no slot is ever lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.limiting.limiter import Limiter
from gateway.limiting.rules import Charge, Visit, charges_of, make_rules, slots_rule
from gateway.limiting.store import RedisCounters
from gateway.limiting.verdict import Admission, Refusal
from gateway.settings import Concurrency, Limit
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import Cut, encode
from tests.gateway.harness import SOON_S, WAIT_S, Running, one_route, running, with_limits, with_route
from tests.gateway.limits import allowed, limiter
from tests.gateway.redis_server import RedisServer


def asking(concurrency: Concurrency, *limits: str | Limit, key: str = "k") -> tuple[Charge, ...]:
    """Return what a request costs that takes a slot."""
    rules = make_rules(limits, realm="route test", default_strategy="moving-window")
    rules += (slots_rule(concurrency, route="test"),)
    identities = {rule.per: "" if rule.per == "everyone" else key for rule in rules}
    return charges_of(rules, Visit(identities, 1, 0), spread=False)


async def until_waiting(limiter: Limiter, count: int) -> None:
    """Let the others run until so many wait."""
    for _ in range(1000):
        if limiter.waiting == count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{limiter.waiting} wait")


@pytest.mark.anyio
async def test_who_waits_is_served_first_come_first_served() -> None:
    order: list[int] = []
    async with limiter(clock=time.monotonic) as bench:
        asked = asking(Concurrency(2, max_waiting=10, max_wait_s=10))
        holding = [await bench.admit(asked) for _ in range(2)]

        async def one(number: int) -> Admission:
            admission = await bench.admit(asked)
            order.append(number)
            return admission

        tasks = []
        for number in range(6):
            tasks.append(asyncio.create_task(one(number)))
            await until_waiting(bench.limiter, number + 1)
        for admission in holding:
            admission.release()
        for task in tasks:
            (await task).release()
        assert order == [0, 1, 2, 3, 4, 5]
        assert allowed(await bench.admit_many(asked, 2)) == [True, True], "all slots are back"


@pytest.mark.anyio
async def test_a_full_queue_refuses_at_once_and_a_wait_ends_in_time() -> None:
    async with limiter(clock=time.monotonic) as bench:
        patient, asked = (asking(Concurrency(1, max_waiting=1, max_wait_s=wait_s)) for wait_s in (60, 0.2))
        held = await bench.admit(asked)
        waiting = asyncio.create_task(bench.admit(patient))
        await until_waiting(bench.limiter, 1)
        refused = await bench.admit(patient)
        assert refused.refusal is Refusal.SLOTS
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait({waiting})
        started = time.monotonic()
        gave_up = await bench.admit(asked)
        assert gave_up.refusal is Refusal.SLOTS
        assert 0.2 <= time.monotonic() - started < SOON_S
        assert bench.limiter.waiting == 0
        held.release()
        held.release()
        assert (await bench.admit(asked)).allowed
    assert refused.retry_after_s == gave_up.retry_after_s == 1
    assert dict(refused.headers) == {
        b"ratelimit-policy": b'"1 at once";q=1;qu="concurrent-requests"',
        b"ratelimit": b'"1 at once";r=0',
    }


@pytest.mark.anyio
async def test_nobody_waits_longer_than_the_backend_would_have() -> None:
    async with limiter(clock=time.monotonic) as bench:
        asked = asking(Concurrency(1, max_waiting=1, max_wait_s=60))
        await bench.admit(asked)
        started = time.monotonic()
        refused = await bench.limiter.admit(asked, "another", patience_s=0.1)
        assert refused.refusal is Refusal.SLOTS
        assert time.monotonic() - started < SOON_S


@pytest.mark.anyio
async def test_a_request_without_a_slot_is_charged_by_no_limit_and_the_other_way_round() -> None:
    async with limiter(clock=time.monotonic) as bench:
        asked = asking(Concurrency(1, max_waiting=1, max_wait_s=0), "2/hour")
        held = await bench.admit(asked)
        for _ in range(5):
            assert (await bench.admit(asked)).refusal is Refusal.SLOTS
        held.release()
        again = await bench.admit(asked)
        assert dict(again.headers)[b"ratelimit"].startswith(b'"2/3600s";r=0;')
        again.release()
        for _ in range(3):
            assert (await bench.admit(asked)).refusal is Refusal.RATE, "and leaves the slot free"
        assert (await bench.admit(asking(Concurrency(1)))).allowed


@pytest.mark.anyio
async def test_who_is_over_a_limit_is_told_so_without_waiting() -> None:
    async with limiter(clock=time.monotonic) as bench:
        patient = Concurrency(1, max_waiting=5, max_wait_s=30)
        held = await bench.admit(asking(patient, "1/hour"))
        waiting = asyncio.create_task(bench.admit(asking(patient)))
        await until_waiting(bench.limiter, 1)
        assert (await bench.admit(asking(patient, "1/hour"))).refusal is Refusal.RATE
        held.release()
        assert (await waiting).allowed


@pytest.mark.anyio
async def test_a_wait_that_is_cancelled_leaves_the_queue_in_order() -> None:
    async with limiter(clock=time.monotonic) as bench:
        asked = asking(Concurrency(1, max_waiting=5, max_wait_s=30))
        held = await bench.admit(asked)
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(bench.admit(asked)))
            await until_waiting(bench.limiter, number + 1)
        tasks[0].cancel()
        await asyncio.wait({tasks[0]})
        await until_waiting(bench.limiter, 2)
        held.release()
        (await tasks[1]).release()
        assert (await tasks[2]).allowed


@pytest.mark.anyio
async def test_callers_have_slots_of_their_own_where_the_limit_says_so() -> None:
    async with limiter() as bench:
        own = Concurrency(1, per="caller")
        admissions = [await bench.admit(asking(own, key=key)) for key in ("a", "b", "a")]
    assert [admission.refusal for admission in admissions] == [None, None, Refusal.SLOTS]


@pytest.mark.anyio
async def test_a_dry_run_takes_slots_and_refuses_nobody() -> None:
    async with limiter() as bench:
        asked = asking(Concurrency(1, dry_run=True))
        first, second = await bench.admit_many(asked, 2)
        assert first.would_refuse == ()
        assert second.would_refuse == ("1 at once",)
        second.release()
        first.release()
        assert (await bench.admit(asked)).would_refuse == ()


class Held:
    """A backend that answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, peer: Peer) -> None:
        while peer.read_request() is not None:
            self.go_on.wait(WAIT_S)
            peer.send(plain())


def wait_waiting(gateway: Running, count: int) -> None:
    """Read the metric until so many requests wait for a slot."""
    deadline = time.monotonic() + WAIT_S
    while b"crossfade_limits_waiting %d.0" % count not in gateway.request("GET", "/-/metrics").body:
        assert time.monotonic() < deadline


def test_a_gpu_slot_over_real_sockets() -> None:
    script = Held()
    with Backend(script) as backend:
        settings = with_route(one_route(backend.url), concurrency=Concurrency(1, max_waiting=1, max_wait_s=WAIT_S))
        with running(settings) as gateway, gateway.client() as first, gateway.client() as second:
            first.send(encode("GET", "/"))
            assert backend.wait_requests(1)
            second.send(encode("POST", "/", [(b"Content-Length", b"5"), (b"Expect", b"100-continue")]))
            wait_waiting(gateway, 1)
            third = gateway.request("POST", "/", body=b"never read")
            assert (third.status, third.code) == (429, "concurrency_limited")
            assert third.values(b"retry-after") == [b"1"]
            assert third.values(b"ratelimit-policy") == [b'"1 at once";q=1;qu="concurrent-requests"']
            script.go_on.set()
            assert first.read().status == 200
            assert second.read_line() == b"HTTP/1.1 100 Continue\r\n", "asked for its body only when it has a slot"
            assert second.read_line() == b"\r\n"
            second.send(b"hello")
            assert second.read("POST").status == 200
        assert [request.body for request in backend.requests] == [b"", b"hello"]


def test_a_client_that_leaves_the_queue_makes_room_at_once() -> None:
    script = Held()
    with Backend(script) as backend:
        settings = with_route(one_route(backend.url), concurrency=Concurrency(1, max_waiting=1, max_wait_s=WAIT_S))
        with running(settings) as gateway, gateway.client() as first:
            first.send(encode("GET", "/"))
            assert backend.wait_requests(1)
            for number in range(3):
                second = gateway.client()
                second.send(encode("POST", "/", body=b"some body"))
                wait_waiting(gateway, 1)
                left = time.monotonic()
                second.reset() if number % 2 else second.close()
                wait_waiting(gateway, 0)
                assert time.monotonic() - left < SOON_S
            script.go_on.set()
            assert first.read().status == 200
        assert len(backend.requests) == 1


def test_every_end_of_a_request_gives_its_slot_back() -> None:
    def script(peer: Peer) -> None:
        request = peer.read_request()
        match request.target if request is not None else b"":
            case b"/reset":
                peer.reset()
            case b"/cut":
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
            case b"/nonsense":
                peer.send(b"nonsense\r\n\r\n")
            case b"/slow":
                peer.wait_closed()
            case _:
                peer.send(plain())

    with Backend(script) as backend:
        settings = with_route(
            one_route(backend.url),
            concurrency=Concurrency(2, max_waiting=0),
            max_body_bytes=10,
            limits=("1000/minute",),
        )
        with running(settings) as gateway:
            for _ in range(3):
                for target in ("/reset", "/nonsense"):
                    assert gateway.request("GET", target).status == 502
                with gateway.client() as client:
                    client.send(encode("GET", "/cut"))
                    assert client.read_head().status == 200
                    with pytest.raises(Cut):
                        client.read_line()
                with gateway.client() as client:
                    client.send(encode("GET", "/slow"))
                    assert backend.wait_for(lambda: backend.requests[-1].target == b"/slow")
                with gateway.client() as client:
                    client.send(encode("POST", "/", [(b"Transfer-Encoding", b"chunked")]) + b"f\r\n" + b"x" * 15)
                    assert client.read("POST").code == "body_too_large"
            deadline = time.monotonic() + WAIT_S
            while (answer := gateway.request("GET", "/")).status != 200 or b"r=1" not in answer.values(b"ratelimit")[0]:
                assert time.monotonic() < deadline, answer


def test_routes_that_give_the_same_name_share_the_slots() -> None:
    script = Held()
    with Backend(script) as backend:
        settings = one_route(backend.url)
        (route,) = settings.routes
        gpu = Concurrency(1, name="gpu", max_waiting=0)
        routes = tuple(replace(route, name=name, path=f"/{name}", concurrency=gpu) for name in ("one", "other"))
        with running(replace(settings, routes=routes)) as gateway, gateway.client() as first:
            first.send(encode("GET", "/one"))
            assert backend.wait_requests(1)
            assert gateway.request("GET", "/other").code == "concurrency_limited"
            script.go_on.set()
            assert first.read().status == 200
            assert gateway.request("GET", "/other").status == 200


def test_two_gateways_share_slots_on_redis_and_one_that_dies_gives_them_back(redis_server: RedisServer) -> None:
    script = Held()
    with Backend(script) as backend:
        settings = with_limits(one_route(backend.url), storage=redis_server.uri)
        settings = with_route(settings, concurrency=Concurrency(1, max_waiting=3, max_wait_s=WAIT_S))
        with running(settings) as one, running(replace(settings)) as other:
            with one.client() as first, other.client() as second:
                first.send(encode("GET", "/"))
                assert backend.wait_requests(1)
                second.send(encode("GET", "/"))
                wait_waiting(other, 1)
                assert len(backend.requests) == 1
                script.go_on.set()
                assert first.read().status == second.read().status == 200
            assert one.request("GET", "/").status == 200
        with redis_server.connect() as admin:
            assert admin.keys("*") == [], "handed in at the end"


@pytest.mark.anyio
async def test_a_lease_is_renewed_while_its_gateway_lives_and_ends_when_it_died(redis_server: RedisServer) -> None:
    (slot,) = asking(Concurrency(1))
    counters = RedisCounters(redis_server.uri, timeout_s=5.0, lease_s=2.0)
    deadline = time.monotonic() + WAIT_S

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)  # leases come and end on Redis's clock

    try:
        with redis_server.connect() as admin:

            def lease() -> float | None:
                end_us: float | None = admin.zscore(slot.key, "alive")
                return end_us

            assert (await counters.decide([slot], "alive", commit=True)).charged
            first_us = lease()
            await until(lambda: lease() != first_us)
            assert not (await counters.decide([slot], "another", commit=True)).charged
            admin.flushall()
            await until(lambda: lease() is not None)
            counters.release(slot, "alive")
            await until(lambda: lease() is None)
            seconds, micro = admin.time()
            admin.zadd(slot.key, {"of a gateway that died": seconds * 1_000_000 + micro + 1_500_000})
            assert not (await counters.decide([slot], "another", commit=True)).charged
            while not (await counters.decide([slot], "another", commit=True)).charged:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
    finally:
        await counters.aclose()


def test_slots_without_their_store_follow_the_policy(redis_server: RedisServer) -> None:
    redis_server.kill()
    with Backend(answering(plain())) as backend:
        settings = with_limits(one_route(backend.url), storage=redis_server.uri)
        settings = with_route(settings, concurrency=Concurrency(1, max_waiting=0))
        for policy, status in (("open", 200), ("closed", 503), ("local", 200)):
            changed = replace(settings, limits=replace(settings.limits, on_failure=policy))
            with running(changed) as gateway:
                assert [gateway.request("GET", "/").status for _ in range(8)] == [status] * 8


@pytest.mark.parametrize("concurrency", [Concurrency(0), Concurrency(1, per="planet")])
def test_concurrency_that_means_nothing_is_refused(concurrency: Concurrency) -> None:
    with pytest.raises(ValueError, match="limit"):
        slots_rule(concurrency, route="a")
