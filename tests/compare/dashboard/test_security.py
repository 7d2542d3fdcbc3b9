"""Who may look, and where a login may lead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from starlette.datastructures import Headers

from compare.dashboard.access import Access, Role
from compare.dashboard.security import SESSION_S, Gate, host_name, is_loopback, local_path

START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
NOBODY = Headers()


def gate_at(moment: datetime, token: str | None = "a-long-token") -> Gate:
    return Gate(Access({Role.OPERATOR: token or ""}), lambda: moment)


def knows(gate: Gate, headers: Headers, cookie: str | None, peer: str = "10.0.0.9") -> bool:
    return gate.visitor(headers, cookie, peer) is not None


def test_without_a_token_everybody_is_known_and_none_is_demanded() -> None:
    gate = gate_at(START, None)
    assert not gate.demanded
    assert knows(gate, NOBODY, None)
    assert not gate.accepts("")


def test_an_empty_token_is_no_token_and_opens_nothing() -> None:
    assert not gate_at(START, "").demanded


@pytest.mark.parametrize(
    ("authorization", "known"),
    [
        ("Bearer a-long-token", True),
        ("bearer  a-long-token ", True),
        ("Bearer a-long-toke", False),
        ("Bearer a-long-token2", False),
        ("Bearer ", False),
        ("Basic a-long-token", False),
        ("a-long-token", False),
        ("", False),
    ],
)
def test_bearer_opens_only_with_the_very_token(authorization: str, known: bool) -> None:
    assert knows(gate_at(START), Headers({"authorization": authorization}), None) is known


def test_a_session_lasts_two_weeks_and_no_longer() -> None:
    cookie = gate_at(START).session(Role.OPERATOR)
    assert knows(gate_at(START), NOBODY, cookie)
    assert knows(gate_at(START + timedelta(seconds=SESSION_S - 2)), NOBODY, cookie)
    assert not knows(gate_at(START + timedelta(seconds=SESSION_S)), NOBODY, cookie)


def test_a_session_ends_with_its_token_and_cannot_be_prolonged_by_hand() -> None:
    cookie = gate_at(START).session(Role.OPERATOR)
    role, issued, mac = cookie.split(".")
    assert not knows(gate_at(START, "another-token"), NOBODY, cookie)
    assert not knows(gate_at(START), NOBODY, f"{role}.{int(issued) + 60}.{mac}")


def test_a_session_of_the_future_is_refused() -> None:
    cookie = gate_at(START + timedelta(days=300)).session(Role.OPERATOR)
    assert not knows(gate_at(START), NOBODY, cookie)


@pytest.mark.parametrize("cookie", ["", ".", "x.y", "²³.aa", "-1.aa", "1" * 400, "\ud800.aa"])
def test_nonsense_cookies_are_refused_without_a_fault(cookie: str) -> None:
    assert not knows(gate_at(START), NOBODY, cookie)


def test_the_cookie_and_the_repr_do_not_hold_the_token() -> None:
    gate = gate_at(START)
    assert "a-long-token" not in gate.session(Role.OPERATOR)
    assert "a-long-token" not in repr(gate)


@pytest.mark.parametrize(
    ("path", "led_to"),
    [
        ("/routes/classify?class=different", "/routes/classify?class=different"),
        ("/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("/a b", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_only_to_places_on_this_host(path: str, led_to: str) -> None:
    assert local_path(path) == led_to


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.4", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_loopback_addresses_count_as_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("127.0.0.1:8088", "127.0.0.1"),
        ("LOCALHOST", "localhost"),
        ("[::1]:8088", "[::1]"),
        ("[::1]", "[::1]"),
        ("evil.example:127.0.0.1", "evil.example"),
        ("", ""),
    ],
)
def test_the_name_of_a_host_field_is_read_without_its_port(field: str, name: str) -> None:
    assert host_name(field) == name
