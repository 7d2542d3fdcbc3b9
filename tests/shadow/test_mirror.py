"""What the shadow gets and what is kept of it, over real sockets."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import replace

import pytest

from shadow.call import MAX_ARRIVALS, Target
from shadow.exchange import Exchange, Headers, Role, SkipReason
from shadow.rule import MirrorLimits
from tests.fakes.shadow_server import ShadowServer, answers, sends, waits
from tests.shadow.bench import ALL, Bench, body_of, exchange_of, mirroring, routes_of, targets_of

pytestmark = pytest.mark.anyio


async def test_both_answers_are_kept_and_the_shadow_is_measured() -> None:
    script = answers(b'{"cat": 1}', headers=b"Content-Type: application/json\r\nX-A: \xff\r\n")
    async with ShadowServer(script) as server, mirroring(targets_of(server.url)) as bench:
        sent = exchange_of()
        stored = await bench.mirrored(sent)
    shadow = stored.shadow
    assert shadow is not None
    assert stored == replace(sent, shadow=shadow, sequence=1)
    assert (shadow.backend, shadow.server, shadow.status, shadow.failure) == ("onprem", server.url, 200, None)
    assert shadow.body == body_of(b'{"cat": 1}', media_type="application/json")
    assert (b"X-A", b"\xff") in shadow.headers
    assert shadow.first_byte_s is not None
    assert shadow.total_s is not None
    assert 0 < shadow.first_byte_s <= shadow.total_s < 5


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 5 * 2**20, 20 * 2**20])
@pytest.mark.parametrize("framing", [b"Content-Length", b"Transfer-Encoding"])
async def test_m02_the_shadows_body_is_identical_at_every_size(size: int, framing: bytes) -> None:
    whole = os.urandom(size)
    body = body_of(*(whole[at : at + 65536] for at in range(0, size, 65536)))
    value = b"%d" % size if framing == b"Content-Length" else b"chunked"
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        stored = await bench.mirrored(exchange_of(headers=((framing, value),), body=body))
    (received,) = server.received
    assert received.sha256 == stored.request.body.sha256 == body.sha256
    assert received.values(b"content-length") == [b"%d" % size]
    assert received.values(b"transfer-encoding") == []


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", ()),
        ("HEAD", ()),
        ("POST", ((b"Content-Length", b"0"),)),
        ("POST", ((b"Transfer-Encoding", b"chunked"),)),
    ],
)
async def test_m03_an_empty_body_passes_a_size_limit(method: str, headers: Headers) -> None:
    rule = replace(ALL, max_body_bytes=1024)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), rule=rule) as bench:
        stored = await bench.mirrored(exchange_of(method=method, headers=headers, body=body_of()))
    assert (server.received[0].method, server.received[0].body) == (method.encode(), b"")
    assert stored.shadow is not None
    assert stored.shadow.status == 200


async def test_m06_200_copies_at_once_leave_the_requests_as_they_were() -> None:
    secret = (b"Authorization", b"Bearer client")
    sent = [
        exchange_of(f"id-{n}", headers=((b"Host", b"api.example"), secret, (b"X-N", b"%d" % n))) for n in range(200)
    ]
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        for exchange in sent:
            bench.send(exchange)
        await bench.drained(20)
    kept = {exchange.id: exchange.request for exchange in bench.store.saved}
    assert kept == {exchange.id: exchange.request for exchange in sent}
    assert all(secret in request.headers for request in kept.values())
    assert sorted(int(received.values(b"x-n")[0]) for received in server.received) == list(range(200))
    assert not any(received.values(b"authorization") for received in server.received)


async def test_m07_the_host_on_the_wire_follows_the_rule_and_the_marker_is_its_own_field() -> None:
    host = ((b"Host", b"api.example:8443"),)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        await bench.mirrored(exchange_of(headers=host))
        bench.mirror.configure(routes_of(replace(ALL, preserve_host=True), "classify"), targets_of(server.url))
        await bench.mirrored(exchange_of(headers=host))
    assert [received.values(b"host") for received in server.received] == [
        [server.authority.encode()],
        [b"api.example:8443"],
    ]
    assert [received.values(b"x-crossfade-shadow") for received in server.received] == [[b"1"], [b"1"]]


async def test_m08_each_copy_is_a_span_of_its_own_in_the_clients_trace() -> None:
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    headers = ((b"traceparent", parent), (b"tracestate", b"a=1"))
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        for _ in range(2):
            await bench.mirrored(exchange_of(headers=headers))
    seen = [received.values(b"traceparent") for received in server.received]
    assert all(re.fullmatch(rb"00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-00", value) for (value,) in seen)
    assert len({parent, *(value for (value,) in seen)}) == 3
    assert {received.values(b"tracestate")[0] for received in server.received} == {b"a=1"}


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize(
    ("target", "seen"),
    [(b"/api/x%2Fy?q=1", b"/v2/api/x%2Fy?q=1"), (b"/", b"/v2/"), (b"/a b?\x7e[]{}|'\"", None)],
)
async def test_m10_a_prefix_is_put_before_the_raw_target(slash: str, target: bytes, seen: bytes | None) -> None:
    target = target.replace(b" ", b"%20")
    async with ShadowServer(answers()) as server, mirroring(targets_of(f"{server.url}/v2{slash}")) as bench:
        await bench.mirrored(exchange_of(method="GET", target=target, body=body_of()))
    assert server.received[0].target == (seen or b"/v2" + target)


async def test_m12_the_shadow_sees_no_credentials_but_its_own() -> None:
    secrets = ((b"Authorization", b"Bearer client"), (b"Cookie", b"sid=1"), (b"X-Api-Key", b"k"), (b"Accept", b"*/*"))
    async with ShadowServer(answers()) as server:
        own = replace(targets_of(server.url)["onprem"], credential=("Authorization", "Bearer onprem"))
        async with mirroring(targets_of(server.url) | {"onprem": own}) as bench:
            await bench.mirrored(exchange_of(method="DELETE", headers=secrets, body=body_of()))
    (received,) = server.received
    assert received.values(b"authorization") == [b"Bearer onprem"]
    assert received.values(b"cookie") + received.values(b"x-api-key") == []
    assert received.values(b"accept") == [b"*/*"]


async def test_the_backend_that_did_not_answer_is_called() -> None:
    async with (
        ShadowServer(answers(b"cloud")) as cloud,
        ShadowServer(answers(b"onprem")) as onprem,
        mirroring(targets_of(onprem.url, cloud.url)) as bench,
    ):
        from_cloud = await bench.shadowed(exchange_of(served_by="cloud"))
        from_onprem = await bench.shadowed(exchange_of(served_by="onprem"))
    assert (from_cloud.backend, from_onprem.backend) == ("onprem", "cloud")
    assert (len(cloud.received), len(onprem.received)) == (1, 1)


async def test_a_sampled_control_call_goes_to_the_baseline_and_is_marked() -> None:
    async with ShadowServer(answers(b"again")) as cloud, ShadowServer(answers(b"mine")) as onprem:
        rule = replace(ALL, control_percent=100)
        async with mirroring(targets_of(onprem.url, cloud.url), rule=rule) as bench:
            stored = await bench.mirrored(exchange_of())
    assert {role: leg.backend for role, leg in stored.observations()} == {
        Role.PRIMARY: "cloud",
        Role.SHADOW: "onprem",
        Role.CONTROL: "cloud",
    }
    assert stored.control is not None
    assert stored.control.body == body_of(b"again", media_type="application/json")
    assert cloud.received[0].values(b"x-crossfade-control") == [b"1"]
    assert cloud.received[0].values(b"x-crossfade-shadow") == []


async def test_an_exchange_keeps_the_targets_it_was_tapped_with() -> None:
    gate = asyncio.Event()
    async with (
        ShadowServer(waits(gate, answers())) as old,
        ShadowServer(answers()) as new,
        mirroring(targets_of(old.url), limits=MirrorLimits(max_concurrent=1)) as bench,
    ):
        for n in range(3):
            bench.send(exchange_of(f"old-{n}"))
        bench.mirror.configure(routes_of(ALL, "classify"), targets_of(new.url))
        bench.send(exchange_of("new"))
        gate.set()
        await bench.drained()
    assert (len(old.received), len(new.received)) == (3, 1)


async def test_an_unknown_target_changes_nothing() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        with pytest.raises(ValueError, match=r"route 'new' names an unknown target: cloud, onprem"):
            bench.mirror.configure(routes_of(ALL, "new"), {})
        await bench.mirrored(exchange_of())


async def test_several_servers_of_a_target_are_all_used() -> None:
    async with ShadowServer(answers()) as one, ShadowServer(answers()) as two:
        pair = Target("onprem", (one.url, two.url))
        async with mirroring(targets_of(one.url) | {"onprem": pair}) as bench:
            for n in range(20):
                await bench.mirrored(exchange_of(f"id-{n}"))
    assert {leg.shadow.server for leg in bench.store.saved if leg.shadow} == {one.url, two.url}
    assert len(one.received) + len(two.received) == 20


async def test_the_arrival_of_each_chunk_of_an_event_stream_is_kept() -> None:
    events = b"".join(b"b\r\ndata: %02d \n\n\r\n" % n for n in range(3)) + b"0\r\n\r\n"
    wire = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + events
    async with ShadowServer(sends(wire)) as server, mirroring(targets_of(server.url)) as bench:
        shadow = await bench.shadowed()
    assert shadow.body is not None
    assert b"".join(shadow.body) == b"data: 00 \n\ndata: 01 \n\ndata: 02 \n\n"
    assert 0 < len(shadow.arrivals_s) <= MAX_ARRIVALS
    assert list(shadow.arrivals_s) == sorted(shadow.arrivals_s)


async def test_compressed_answers_are_kept_as_they_crossed() -> None:
    gzipped = bytes.fromhex("1f8b08000000000000034b4c4a0600c241243503000000")
    script = answers(gzipped, headers=b"Content-Encoding: gzip\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n")
    async with ShadowServer(script) as server, mirroring(targets_of(server.url)) as bench:
        shadow = await bench.shadowed()
    assert shadow.body == body_of(gzipped, content_encoding="gzip")
    assert [value for name, value in shadow.headers if name == b"Set-Cookie"] == [b"a=1", b"b=2"]


async def test_c09_durations_come_from_the_injected_clock_alone() -> None:
    times = iter([100.0, 100.0, 100.0, 100.0, 107.0, 109.0] + [109.0] * 10)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), clock=lambda: next(times)) as bench:
        shadow = await bench.shadowed()
    assert (shadow.first_byte_s, shadow.total_s) == (7.0, 9.0)


async def test_an_answer_that_the_budget_cannot_hold_is_recorded_by_hash_and_size() -> None:
    big = os.urandom(300_000)
    limits = MirrorLimits(byte_budget_bytes=100_000)
    async with ShadowServer(answers(big)) as server, mirroring(targets_of(server.url), limits=limits) as bench:
        shadow = await bench.shadowed()
    assert shadow.failure is None
    assert shadow.body == replace(body_of(big, media_type="application/json"), chunks=None)


async def test_the_status_tells_queue_budget_and_breakers() -> None:
    gate = asyncio.Event()
    limits = MirrorLimits(max_concurrent=1)
    async with (
        ShadowServer(waits(gate, answers())) as server,
        mirroring(targets_of(server.url), limits=limits) as bench,
    ):
        held = tap_three(bench)
        await server.connected.wait()
        assert bench.mirror.status() == {
            "queued": 2,
            "in_flight": 3,
            "budget_used_bytes": held,
            "disk_used_bytes": 0,
            "budget_total_bytes": limits.byte_budget_bytes,
            "breakers": {"cloud": "closed", "onprem": "closed"},
            "store_works": True,
            "defects": 0,
        }
        assert bench.account().in_flight == 3
        gate.set()
        await bench.drained()


def tap_three(bench: Bench) -> int:
    exchanges: list[Exchange] = [exchange_of(f"id-{n}") for n in range(3)]
    for exchange in exchanges:
        bench.send(exchange)
    return sum(exchange.held_bytes for exchange in exchanges)


async def test_tap_swallows_and_counts_a_defect_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.send(exchange_of())
        await bench.drained()
        unreserved = exchange_of("never-reserved", skipped=SkipReason.CLIENT_GONE)
        bench.mirror.tap(unreserved)
        assert bench.mirror.status()["defects"] == 1
        assert "never-reserved" in caplog.text
        bench.received["classify"] += 1
        bench.expected_defects = 1


async def test_a_settled_exchange_is_not_held_any_longer() -> None:
    chunk = os.urandom(20_000)
    before = sys.getrefcount(chunk)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.store.failing = True  # else the bench keeps it
        bench.send(exchange_of(body=body_of(chunk)))
        await bench.drained()
        assert bench.skipped() == {SkipReason.STORE_FAILED: 1}
        await asyncio.sleep(0)  # the worker goes back to its queue
        assert sys.getrefcount(chunk) == before
