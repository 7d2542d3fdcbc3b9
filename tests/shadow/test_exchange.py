"""The record's vocabulary."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from shadow.exchange import Body, Exchange, Observation, Request, Role, SkipReason


@pytest.mark.parametrize(("role", "name"), [(Role.SHADOW, "shadow"), (Role.CONTROL, "control")])
def test_a_leg_is_added_and_everything_else_is_kept(role: Role, name: str) -> None:
    primary, other = Observation("cloud", "http://a"), Observation("onprem", "http://b", 200)
    request = Request("GET", b"/", (), Body("", 0))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    whole = Exchange("1", "r", now, request, primary, primary, primary, SkipReason.LOST, "theirs", 7)
    plain = {field.name: field.default for field in fields(Exchange)}
    assert all(getattr(whole, name) != default for name, default in plain.items()), "a new field belongs here too"
    assert whole.with_leg(role, other) == replace(whole, **{name: other})  # type: ignore[arg-type]
