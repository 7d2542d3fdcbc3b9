"""The servers that the mirror's calls go to: chosen by their state, and never to a client's cost."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from gateway.backend_tls import ClientContexts
from gateway.condition import Outcome, ServerState
from gateway.fleet import Fleet
from gateway.generation import Server, all_servers
from gateway.mirror_servers import MirrorServers
from gateway.settings import Backend, ServerRules
from shadow.exchange import Failure, FailureKind, Observation
from shadow.store.reader import Reader
from tests.fakes.backend import Backend as FakeBackend
from tests.fakes.backend import answering, plain
from tests.gateway.harness import one_route, running, stored, with_backend, with_route

URLS = ("http://a.test", "http://b.test")


class Clock:
    """Seconds that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return them."""
        return self.now_s


def pair(rules: ServerRules | None = None) -> tuple[Backend, tuple[Server, ...], Fleet, MirrorServers]:
    """Return a backend of two servers with the clients' fleet and the mirror's choice."""
    clock = Clock()
    settings = with_backend(one_route(URLS[0]), "onprem", servers=URLS, rules=rules or ServerRules())
    backend = settings.backends["onprem"]
    fleet = Fleet(clock, random.Random(1))
    fleet.configure(settings.backends)
    mirror = MirrorServers(fleet, clock, random.Random(2))
    mirror.configure(settings.backends)
    return backend, all_servers(settings, ClientContexts())["onprem"], fleet, mirror


def observed(kind: FailureKind | None = None, status: int = 200) -> Observation:
    """Return what a server did."""
    failure = Failure(kind, "test") if kind is not None else None
    return Observation("onprem", "", status, (), None, None, 0.0, (), failure)


def test_calls_are_spread_by_what_is_outstanding_and_cost_no_client_anything() -> None:
    backend, servers, fleet, mirror = pair()
    calls = [mirror.choose(backend, servers) for _ in range(10)]
    names = [call.way.name for call in calls if call is not None]
    assert sorted(names) == sorted(URLS * 5)
    assert [view.outstanding for view in fleet.views()] == [0, 0, 0]
    for call in calls:
        assert call is not None
        call.end(observed(FailureKind.CONNECT))
    assert all(fleet.is_available("onprem", url) for url in URLS), "the mirror's failures eject nothing for clients"


def test_a_request_that_waited_through_a_change_brings_nothing_of_the_old_settings_back() -> None:
    """Neither a server that was removed nor rules under which an open breaker would be forgotten."""
    backend, servers, fleet, _ = pair()
    patient = replace(backend, rules=ServerRules(breaker_failures=1))
    fleet.configure({"onprem": replace(patient, servers=URLS[:1])})
    first = fleet.begin(patient, servers[:1])
    assert first is not None
    first.end(Outcome.NO_CONNECTION)
    late = fleet.begin(backend, servers)
    assert late is not None
    assert late.server.name != URLS[0], "its breaker is open, whatever the old rules say"
    assert [(view.server, view.state) for view in fleet.views()] == [(URLS[0], ServerState.BROKEN)]
    late.end(Outcome.SUCCESS)
    assert [(view.server, view.state) for view in fleet.views()] == [(URLS[0], ServerState.BROKEN)]


def test_a_server_that_fails_the_mirror_is_left_alone_by_it() -> None:
    backend, servers, _, mirror = pair(ServerRules(eject_after=3))
    for _ in range(40):
        call = mirror.choose(backend, servers)
        assert call is not None
        call.end(observed(status=503 if call.way.name == URLS[0] else 200))
    for _ in range(10):
        call = mirror.choose(backend, servers)
        assert call is not None
        assert call.way.name == URLS[1]
        call.end(None)


def test_a_server_that_is_ejected_for_clients_gets_no_copy_unless_it_is_all_there_is() -> None:
    backend, servers, fleet, mirror = pair(ServerRules(eject_after=1))
    first = fleet.begin(backend, servers[:1])
    assert first is not None
    first.end(Outcome.FAILURE)
    for _ in range(10):
        call = mirror.choose(backend, servers)
        assert call is not None
        assert call.way.name == URLS[1]
        call.end(observed())
    only = mirror.choose(backend, servers[:1])
    assert only is not None


def test_where_no_server_takes_a_call_none_is_chosen() -> None:
    backend, servers, _, mirror = pair(ServerRules(breaker_failures=1, breaker_reset_s=60))
    for _ in range(2):
        call = mirror.choose(backend, servers)
        assert call is not None
        call.end(observed(FailureKind.CONNECT))
    assert mirror.choose(backend, servers) is None


def test_copies_go_round_a_dead_server_over_real_sockets(tmp_path: Path) -> None:
    with FakeBackend(answering(plain())) as gone:
        dead = gone.url
    with FakeBackend(answering(plain())) as cloud, FakeBackend(answering(plain())) as alive:
        settings = stored(one_route(cloud.url, alive.url), tmp_path)
        rules = ServerRules(eject_after=1, eject_s=60)
        settings = with_backend(settings, "onprem", servers=(dead, alive.url), rules=rules)
        settings = replace(settings, mirror=replace(settings.mirror, max_concurrent=1))
        with running(settings, mirror=True) as gateway:
            for _ in range(12):
                assert gateway.request("GET", "/").status == 200
            gateway.wait_status(lambda status: bool(status["routes"]["all"]["account"]["recorded"] == 12))
        assert len(alive.requests) >= 11


def test_what_no_server_was_asked_is_skipped_and_never_recorded_as_a_failure(tmp_path: Path) -> None:
    """The servers' breakers open before the mirror's own does: at five refusals of each, and not at twenty."""
    with FakeBackend(answering(plain())) as gone:
        dead = gone.url
    with FakeBackend(answering(plain())) as cloud:
        settings = stored(one_route(cloud.url, dead), tmp_path)
        settings = with_backend(settings, "onprem", rules=ServerRules(breaker_failures=5, breaker_reset_s=60))
        settings = replace(settings, mirror=replace(settings.mirror, max_concurrent=1))
        with running(settings, mirror=True) as gateway:
            for _ in range(40):
                assert gateway.request("GET", "/").status == 200
            status = gateway.wait_status(lambda status: bool(status["routes"]["all"]["account"]["in_flight"] == 0))
            account = status["routes"]["all"]["account"]
            assert status["mirror"]["breakers"]["onprem"] == "open"
    assert (account["recorded"], account["skipped"]) == (5, {"breaker_open": 35})
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    try:
        assert [found.shadow.server for found in reader.exchanges() if found.shadow] == [dead] * 5
    finally:
        reader.close()


def test_a_control_that_no_server_was_asked_is_none(tmp_path: Path) -> None:
    """The cloud is gone, and served by nobody to the mirror's controls, while the candidate answers the clients."""
    with FakeBackend(answering(plain())) as gone:
        dead = gone.url
    with FakeBackend(answering(plain())) as onprem:
        settings = stored(one_route(dead, onprem.url), tmp_path)
        rule = replace(settings.routes[0].shadow, control_percent=100, both_ways=True)
        settings = with_route(settings, active={"onprem": 100}, shadow=rule)
        settings = with_backend(settings, "cloud", rules=ServerRules(breaker_failures=3, breaker_reset_s=60))
        settings = replace(settings, mirror=replace(settings.mirror, max_concurrent=1))
        with running(settings, mirror=True) as gateway:
            for _ in range(4):
                assert gateway.request("GET", "/").status == 200
            status = gateway.wait_status(lambda status: bool(status["routes"]["all"]["account"]["in_flight"] == 0))
            account = status["routes"]["all"]["account"]
    assert (account["recorded"], account["skipped"]) == (2, {"breaker_open": 2})
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    try:
        legs = [(found.shadow, found.control) for found in reader.exchanges()]
        assert [(leg and leg.server, control and control.server) for leg, control in legs] == [
            (dead, dead),
            (dead, None),
        ]
    finally:
        reader.close()
