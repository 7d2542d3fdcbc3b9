"""What a decision means for the client: whether it may pass, what it is told, and for how long. Pure.

``RateLimit-Policy`` and ``RateLimit`` follow draft-ietf-httpapi-ratelimit-headers-10: both are lists with one item for
each limit that is enforced; ``qu`` is left out where it is ``requests``; slots have neither ``w`` nor ``t``. Limits on
trial are in neither; those that would have refused are named in ``X-Crossfade-Dry-Run``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from gateway.limiting.counting import NEVER_US, Decision, Look
from gateway.limiting.rules import Charge, Rule, Strategy
from shadow.exchange import Headers

DRY_RUN = b"x-crossfade-dry-run"


class Refusal(StrEnum):
    """Why a request may not pass."""

    RATE = "rate"
    COST = "cost"
    SLOTS = "slots"
    UNAVAILABLE = "unavailable"


def _nothing() -> None:
    """Release nothing."""


class Admission(NamedTuple):
    """Whether a request may pass; who passes calls ``release`` when it is done, whatever happened.

    ``retry_after_s`` is at least 1 where a wait helps, else 0. ``checked`` is false when the storage could not be asked
    and the policy decided. ``headers`` are fields for the answer. ``would_refuse`` names the limits on trial that would
    have refused."""

    refusal: Refusal | None = None
    checked: bool = True
    retry_after_s: int = 0
    headers: Headers = ()
    would_refuse: tuple[str, ...] = ()
    release: Callable[[], None] = _nothing

    @property
    def allowed(self) -> bool:
        """Whether the request may pass."""
        return self.refusal is None


FREE = Admission()
"""Where nothing is limited."""


def refusal_of(charges: Sequence[Charge], decision: Decision) -> Refusal | None:
    """Return the gravest reason why the enforced limits refuse: never, later, or no free slot."""
    refusing = [(charge, look) for charge, look in zip(charges, decision.looks, strict=True) if _refuses(charge, look)]
    if any(look.wait_us == NEVER_US for _, look in refusing):
        return Refusal.COST
    if any(charge.rule.strategy is not Strategy.SLOTS for charge, _ in refusing):
        return Refusal.RATE
    return Refusal.SLOTS if refusing else None


def admission_of(
    charges: Sequence[Charge], decision: Decision, *, checked: bool, release: Callable[[], None] = _nothing
) -> Admission:
    """Return what the client is told."""
    for look in decision.looks:
        if look.refused:
            break
    else:
        return Admission(None, checked, 0, _fields(charges, decision.looks), (), release)
    refusal = refusal_of(charges, decision)
    pairs = list(zip(charges, decision.looks, strict=True))
    wait_s = 0
    if refusal in (Refusal.RATE, Refusal.SLOTS):
        # For a slot nobody can say when; a second is the least that a client may be told (RFC 9110 section 10.2.3).
        wait_s = max([1, *(seconds_of(look.wait_us) for charge, look in pairs if _refuses(charge, look))])
    would_refuse = tuple(charge.rule.name for charge, look in pairs if look.refused and charge.rule.dry_run)
    return Admission(
        refusal,
        checked=checked,
        retry_after_s=wait_s,
        headers=_fields(charges, decision.looks, would_refuse),
        would_refuse=would_refuse,
        release=release,
    )


def seconds_of(wait_us: int) -> int:
    """Return the whole seconds after which the wait is over for certain."""
    return -(-wait_us // 1_000_000)


def _refuses(charge: Charge, look: Look) -> bool:
    return look.refused and not charge.rule.dry_run


def _fields(charges: Sequence[Charge], looks: Sequence[Look], would_refuse: Sequence[str] = ()) -> Headers:
    policies, states = list[bytes](), list[bytes]()
    for charge, look in zip(charges, looks, strict=True):
        rule = charge.rule
        if not rule.dry_run:
            policies.append(rule.policy)
            states.append(_state(rule, look))
    fields: list[tuple[bytes, bytes]] = []
    if policies:
        fields.append((b"ratelimit-policy", b", ".join(policies)))
        fields.append((b"ratelimit", b", ".join(states)))
    if would_refuse:
        fields.append((DRY_RUN, ", ".join(f'"{name}"' for name in would_refuse).encode("ascii")))
    return tuple(fields)


def _state(rule: Rule, look: Look) -> bytes:
    if not rule.window_s or look.wait_us < 0:
        return b"%b%d" % (rule.state, look.remaining)
    return b"%b%d;t=%d" % (rule.state, look.remaining, max(int(look.refused), seconds_of(look.wait_us)))
