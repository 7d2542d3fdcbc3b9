"""Who may call: API keys, over real sockets."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from gateway.keyring import Identified, Keyring, Unknown, new_key
from gateway.settings import ApiCaller, Credential, Limit, Settings
from shadow.exchange import Headers
from tests.fakes.backend import Backend
from tests.gateway.harness import applied, one_route, running, with_backend

OLD, NEW, OTHER = b"cf_old", b"cf_new", b"cf_other"
PREFLIGHT = [(b"Origin", b"http://a.test"), (b"Access-Control-Request-Method", b"POST")]


def digest(key: bytes) -> str:
    return "sha256:" + hashlib.sha256(key).hexdigest()


ACME = ApiCaller("acme", (digest(OLD), digest(NEW)))
BETA = ApiCaller("beta", (digest(OTHER),), routes=frozenset({"open", "first"}))


def guarded(backend: Backend, *callers: ApiCaller) -> Settings:
    """Return settings with a public route at /open and two that ask for a key."""
    settings = one_route(backend.url)
    (route,) = settings.routes
    routes = (
        replace(route, name="open", path="/open", public=True),
        replace(route, name="first", path="/first"),
        replace(route, name="second", path="/second"),
    )
    return replace(settings, routes=routes, callers=callers)


@pytest.mark.parametrize(
    "field",
    [
        (b"X-Api-Key", OLD),
        (b"x-api-key", NEW),
        (b"Api-Key", NEW),
        (b"Authorization", b"Bearer " + OLD),
        (b"Authorization", b"bearer  " + NEW),
    ],
)
def test_a_known_key_lets_in_and_goes_no_further(backend: Backend, field: tuple[bytes, bytes]) -> None:
    with running(guarded(backend, ACME, BETA)) as gateway:
        assert gateway.request("GET", "/second", [field, (b"X-Other", b"stays")]).status == 200
        (exchange,) = gateway.taps.wait()
    (request,) = backend.requests
    assert b"cf_" not in request.head
    assert request.values(b"x-other") == [b"stays"]
    assert b"cf_" not in repr(exchange).encode()


def test_the_key_reaches_neither_backend_nor_shadow_even_where_a_backend_has_its_own(backend: Backend) -> None:
    settings = guarded(backend, ACME)
    settings = with_backend(settings, "cloud", credential=Credential("X-Api-Key", "the gateway's own"))
    with running(settings) as gateway:
        assert gateway.request("GET", "/first", [(b"Authorization", b"Bearer " + OLD)]).status == 200
    assert backend.requests[0].values(b"x-api-key") == [b"the gateway's own"]
    assert backend.requests[0].values(b"authorization") == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([], "key_missing"),
        ([(b"X-Api-Key", b"")], "key_missing"),
        ([(b"Authorization", b"Basic " + OLD)], "key_missing"),
        ([(b"X-Api-Key", b"cf_wrong")], "key_unknown"),
        ([(b"X-Api-Key", OLD[:-1])], "key_unknown"),
        ([(b"Authorization", b"Bearer " + OLD.upper())], "key_unknown"),
        ([(b"X-Api-Key", digest(OLD).encode())], "key_unknown"),
        ([(b"X-Api-Key", OLD), (b"Authorization", b"Bearer " + OTHER)], "key_unknown"),
    ],
)
def test_without_a_known_key_nothing_is_served_nor_told(
    backend: Backend, fields: list[tuple[bytes, bytes]], code: str
) -> None:
    with running(guarded(backend, ACME, BETA)) as gateway:
        for path in ("/first", "/nowhere"):
            answer = gateway.request("POST", path, fields, b"body")
            assert (answer.status, answer.code) == (401, code)
            assert answer.values(b"www-authenticate") == [b"Bearer"]
            assert answer.interim == ()
        assert gateway.request("GET", "/open", fields).status == 200
        assert gateway.request("OPTIONS", "/first", PREFLIGHT).status == 200
        assert gateway.request("GET", "/-/live").status == 200
    assert [request.target for request in backend.requests] == [b"/open", b"/first"]


def test_a_key_is_for_its_routes_only(backend: Backend) -> None:
    with running(guarded(backend, ACME, BETA)) as gateway:
        fields = [(b"X-Api-Key", OTHER)]
        assert gateway.request("GET", "/first", fields).status == 200
        answer = gateway.request("GET", "/second", fields)
        assert (answer.status, answer.code) == (403, "route_not_allowed")
        assert gateway.request("GET", "/nowhere", fields).code == "route_not_found"


def test_a_callers_limits_hold_for_all_its_keys_on_all_routes(backend: Backend) -> None:
    acme = replace(ACME, limits=("3/minute",))
    with running(guarded(backend, acme, BETA)) as gateway:
        statuses = [
            gateway.request("GET", path, [(b"X-Api-Key", key)]).status
            for path, key in [("/first", OLD), ("/second", NEW), ("/open", NEW), ("/first", NEW), ("/first", OTHER)]
        ]
        assert statuses == [200, 200, 200, 429, 200]
        assert gateway.request("GET", "/open").status == 200, "and for nobody else"


def test_a_callers_own_limits_are_shared_with_no_other_caller(backend: Backend) -> None:
    for per in ("address", "everyone", "header:X-T"):
        own = (Limit("1/minute", per=per),)
        with running(guarded(backend, replace(ACME, limits=own), replace(BETA, limits=own))) as gateway:
            statuses = [gateway.request("GET", "/first", [(b"X-Api-Key", key)]).status for key in (OLD, OTHER, NEW)]
        assert statuses == [200, 200, 429], per


def test_a_route_limits_callers_by_their_owner_and_others_by_address(backend: Backend) -> None:
    settings = guarded(backend, ACME, BETA)
    routes = tuple(replace(route, limits=("1/minute",)) for route in settings.routes)
    with running(replace(settings, routes=routes)) as gateway:

        def status(*fields: tuple[bytes, bytes]) -> int:
            return gateway.request("GET", "/open", list(fields)).status

        assert [status((b"X-Api-Key", key)) for key in (OLD, NEW, OTHER)] == [200, 429, 200]
        assert [status((b"X-Api-Key", b"made up %d" % number)) for number in range(3)] == [200, 429, 429]
        assert status() == 429, "a made-up key is no caller, so it is its address"


def test_keys_can_follow_one_another_without_a_gap(backend: Backend) -> None:
    settings = guarded(backend, ApiCaller("acme", (digest(OLD),)))
    with running(settings) as gateway:
        for version, keys in enumerate([(OLD, NEW), (NEW,)], start=1):
            callers = (ApiCaller("acme", tuple(map(digest, keys))),)
            gateway.source.replace(replace(settings, callers=callers))
            gateway.wait_status(applied(version))
            assert gateway.request("GET", "/first", [(b"X-Api-Key", NEW)]).status == 200
        assert gateway.request("GET", "/first", [(b"X-Api-Key", OLD)]).code == "key_unknown"


@pytest.mark.parametrize(
    "callers",
    [
        (ApiCaller("a", ("sha256:12",)),),
        (ApiCaller("a", ("cf_plain",)),),
        (ApiCaller("a", (digest(OLD),)), ApiCaller("b", (digest(OLD),))),
        (ApiCaller("a", (digest(OLD), digest(OLD))),),
        (ApiCaller("a", (digest(OLD),), routes=frozenset({"nowhere"})),),
        (ApiCaller("a", (digest(OLD),), limits=("often",)),),
        (ApiCaller("a", (digest(OLD),), limits=(Limit("1/second", per="planet"),)),),
    ],
)
def test_callers_that_mean_nothing_are_refused(backend: Backend, callers: tuple[ApiCaller, ...]) -> None:
    with running(guarded(backend, ACME)) as gateway:
        gateway.source.replace(guarded(backend, *callers))
        gateway.wait_status(lambda status: status["config"]["rejected"] is not None)
        assert gateway.request("GET", "/first", [(b"X-Api-Key", OLD)]).status == 200


def test_a_caller_whose_keys_are_all_gone_still_closes_the_door() -> None:
    headers: Headers = ()
    assert not Keyring([ApiCaller("acme", ())]).is_empty
    assert Keyring([ApiCaller("acme", ())]).identify(headers) is Unknown.NO_KEY


def test_a_new_key_is_long_random_and_known_by_its_hash() -> None:
    made = [new_key() for _ in range(50)]
    assert len({key for key, _ in made}) == 50
    for key, text in made:
        assert len(key) >= 43
        identity = Keyring([ApiCaller("acme", (text,))]).identify(((b"x-api-key", key.encode()),))
        assert isinstance(identity, Identified)
        assert identity.headers == ()
        assert key not in text
        assert text not in repr(identity)
