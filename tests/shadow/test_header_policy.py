"""The fields of the copy, as a pure function of the client's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fields import request_fields
from gateway.settings import Credential
from shadow.call import Target
from shadow.exchange import Headers, Role
from shadow.header_policy import copy_headers, join_target
from shadow.rule import SECRET_HEADERS, ShadowRule, is_secret
from tests.shadow.bench import body_of, exchange_of

TRACE = b"0af7651916cd43dd8448eb211c80319c"
PARENT = b"b7ad6b7169203331"


def copied(
    *headers: tuple[bytes, bytes],
    rule: ShadowRule | None = None,
    body: bytes = b"",
    role: Role = Role.SHADOW,
    credential: tuple[str, str] | None = None,
) -> Headers:
    request = exchange_of(headers=headers, body=body_of(body)).request
    return copy_headers(
        request,
        rule or ShadowRule(),
        role=role,
        request_id="rid",
        authority=b"127.0.0.1:9002",
        credential=credential,
        parent_id=0xDEF,
    )


def values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def test_other_fields_keep_order_case_repetition_and_bytes() -> None:
    fields = ((b"X-B", b"2"), (b"x-a", b"\xff\xfe"), (b"X-B", b"1"), (b"Accept", b"*/*"))
    assert tuple(field for field in copied(*fields) if field in fields) == fields


def test_m07_the_host_is_the_targets_unless_the_rule_preserves_the_clients() -> None:
    host = (b"Host", b"api.example:8443")
    assert values(copied(host), b"host") == [b"127.0.0.1:9002"]
    assert values(copied(host, rule=ShadowRule(preserve_host=True)), b"host") == [b"api.example:8443"]
    assert values(copied(rule=ShadowRule(preserve_host=True)), b"host") == [b"127.0.0.1:9002"]


def test_hop_by_hop_fields_and_those_that_connection_names_are_gone() -> None:
    headers = copied(
        (b"Connection", b"close, X-Mine"),
        (b"X-Mine", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"TE", b"trailers"),
        (b"Trailer", b"X-Sum"),
        (b"Upgrade", b"h2c"),
        (b"Expect", b"100-continue"),
        (b"Proxy-Connection", b"keep-alive"),
    )
    assert {name for name, _ in headers} == {b"Host", b"X-Crossfade-Shadow", b"X-Request-Id"}


NAMES = sorted(
    {
        *(b"host expect te upgrade trailer keep-alive keep_alive proxy-authenticate proxy-authorization".split()),
        *(b"transfer-encoding transfer_encoding content_length x-request-id x_request_id proxy_connection".split()),
        *(b"x-forwarded-for x-forwarded-port forwarded x-real-ip traceparent x-crossfade-shadow".split()),
        *(b"authorization x-client-key x_client_key x-mine x_mine accept content-type".split()),
    }
)


@given(
    names=st.lists(st.sampled_from(NAMES), max_size=8),
    nominated=st.lists(st.sampled_from(NAMES), max_size=3),
    credential=st.sampled_from([None, ("X-Client-Key", "ours")]),
)
def test_the_copy_has_no_field_that_production_lacks_and_lacks_only_credentials(
    names: list[bytes], nominated: list[bytes], credential: tuple[str, str] | None
) -> None:
    fields: list[tuple[bytes, bytes]] = [(name, b"clients") for name in names]
    if nominated:
        fields.append((b"connection", b", ".join(nominated)))
    primary = request_fields(
        tuple(fields), authority=b"a", request_id="rid", chunked=False, dropped=frozenset(), added=(),
        credential=Credential(*credential) if credential is not None else None,
    )  # fmt: skip
    copy = copied(*fields, credential=credential)
    sent, seen = {name for name, _ in primary}, {name.lower() for name, _ in copy}
    assert seen - sent <= {b"x-crossfade-shadow", b"content-length"}
    assert {name for name in sent - seen if not is_secret(name.decode())} <= {b"traceparent"}, "it is no valid one"
    assert [value for name, value in copy if name.lower() == b"x-crossfade-shadow"] == [b"1"]


@pytest.mark.parametrize("option", [b"X-Forwarded-For", b"x-real-ip, X-Forwarded-Port"])
def test_a_connection_field_takes_nothing_of_what_a_trusted_proxy_said(option: bytes) -> None:
    said = [(b"X-Forwarded-For", b"1.2.3.4"), (b"X-Real-Ip", b"1.2.3.4"), (b"X-Forwarded-Port", b"443")]
    headers = copied((b"Connection", option), *said)
    assert [field for field in headers if field in said] == said


@pytest.mark.parametrize(
    "name",
    [
        "Cf-Access-Jwt-Assertion",
        "X-Amzn-Oidc-Accesstoken",
        "X-CsrfToken",
        "x-user-pwd",
        "jsessionid",
        "X-Bearer",
        "sid",
    ],
)
def test_a_credential_is_known_by_its_words(name: str) -> None:
    assert copied((name.encode(), b"hush")) == copied()


@pytest.mark.parametrize("name", ["Accept", "X-Max-Tokens", "X-Keyword", "X-Side", "X-Author", "Idempotency-Key"])
def test_what_only_looks_like_a_credential_passes(name: str) -> None:
    assert (name.encode(), b"1") in copied((name.encode(), b"1"))


def test_a_secret_stays_one_with_an_underscore_for_a_hyphen() -> None:
    rule = ShadowRule(secret_names=frozenset({"x-cloud-pass"}))
    assert values(copied((b"X_Cloud_Pass", b"hush"), rule=rule), b"x_cloud_pass") == []


@pytest.mark.parametrize("name", sorted(SECRET_HEADERS - {"proxy-authorization"}))
def test_m12_credentials_are_stripped_unless_the_rule_forwards_them(name: str) -> None:
    field = (name.title().encode(), b"secret")
    assert values(copied(field), name.encode()) == []
    assert values(copied(field, rule=ShadowRule(forward_headers=frozenset({name}))), name.encode()) == [b"secret"]


def test_the_targets_credential_replaces_the_clients_of_the_same_name() -> None:
    rule = ShadowRule(forward_headers=frozenset({"authorization"}))
    headers = copied((b"authorization", b"client"), rule=rule, credential=("Authorization", "Bearer ours"))
    assert values(headers, b"authorization") == [b"Bearer ours"]


@pytest.mark.parametrize(
    ("role", "marker", "absent"),
    [
        (Role.SHADOW, b"x-crossfade-shadow", b"x-crossfade-control"),
        (Role.CONTROL, b"x-crossfade-control", b"x-crossfade-shadow"),
    ],
)
def test_the_copy_is_marked_and_a_clients_marker_does_not_pass(role: Role, marker: bytes, absent: bytes) -> None:
    headers = copied((marker, b"forged"), (absent, b"forged"), (b"X-Request-ID", b"theirs"), role=role)
    assert values(headers, marker) == [b"1"]
    assert values(headers, absent) == []
    assert values(headers, b"x-request-id") == [b"rid"]


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        ((), b"", []),
        (((b"Content-Length", b"0"),), b"", [b"0"]),
        (((b"Transfer-Encoding", b"chunked"),), b"", [b"0"]),
        (((b"Content-Length", b"3"),), b"abc", [b"3"]),
        (((b"Transfer-Encoding", b"chunked"),), b"abc", [b"3"]),
    ],
)
def test_m02_the_copy_declares_the_length_it_has(
    fields: tuple[tuple[bytes, bytes], ...], body: bytes, expected: list[bytes]
) -> None:
    headers = copied(*fields, body=body)
    assert values(headers, b"content-length") == expected
    assert values(headers, b"transfer-encoding") == []


@pytest.mark.parametrize(("flags", "written"), [(b"00", b"00"), (b"01", b"01"), (b"03", b"01")])
def test_m08_the_trace_goes_on_under_a_new_parent(flags: bytes, written: bytes) -> None:
    headers = copied((b"traceparent", b"00-%b-%b-%b" % (TRACE, PARENT, flags)), (b"tracestate", b"a=1"))
    assert values(headers, b"traceparent") == [b"00-%b-0000000000000def-%b" % (TRACE, written)]
    assert values(headers, b"tracestate") == [b"a=1"]


@pytest.mark.parametrize(
    "parents",
    [
        [],
        [b"nonsense"],
        [b"ff-%b-%b-01" % (TRACE, PARENT)],
        [b"00-%b-%b-01" % (b"0" * 32, PARENT)],
        [b"00-%b-%b-01-more" % (TRACE, PARENT)],
        [b"00-%b-%b-01" % (TRACE, PARENT)] * 2,
    ],
)
def test_m08_a_broken_trace_is_not_passed_on(parents: list[bytes]) -> None:
    headers = copied(*((b"traceparent", parent) for parent in parents), (b"tracestate", b"a=1"))
    assert values(headers, b"traceparent") + values(headers, b"tracestate") == []


@pytest.mark.parametrize(
    ("prefix", "target", "joined"),
    [
        (b"/v2", b"/api/x%2Fy?q=1", b"/v2/api/x%2Fy?q=1"),
        (b"/v2/", b"/api/x%2Fy?q=1", b"/v2/api/x%2Fy?q=1"),
        (b"/v2", b"/", b"/v2/"),
        (b"/", b"/", b"/"),
        (b"", b"/a//b/../c?x=%zz&x", b"/a//b/../c?x=%zz&x"),
        (b"/v2", b"*", b"*"),
    ],
)
def test_m10_the_prefix_is_joined_byte_for_byte(prefix: bytes, target: bytes, joined: bytes) -> None:
    assert join_target(prefix, target) == joined


def test_a_credential_does_not_show_in_a_repr() -> None:
    shown = repr(Target("onprem", ("http://a",), credential=("Authorization", "Bearer hush")))
    assert not re.search("hush|Authorization", shown)
