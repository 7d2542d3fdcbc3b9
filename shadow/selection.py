"""Decide, before any byte is copied, whether a request is to be mirrored. Pure: the same request always decides alike.

Who is chosen is a matter of the hash of a key alone: the request id, or a header of the client's that the rule names.
A growing share only ever adds keys.

Among a client's own requests, sampling is the first question, so that ``received - not_sampled`` is the number of
requests that ought to make a pair, and every other reason is a loss among those.
"""

from __future__ import annotations

import hashlib

from shadow.exchange import SkipReason
from shadow.rule import ShadowRule


def skip_reason(
    rule: ShadowRule,
    *,
    method: str,
    sampled: bool,
    served_by_candidate: bool,
    content_length: int | None,
    is_copy: bool = False,
) -> SkipReason | None:
    """Say why the request is not to be mirrored, or ``None`` when it is.

    ``sampled`` is what ``sampling.Sampler`` said.
    ``content_length`` is the declared size in bytes, ``None`` when it is not known in advance; a body that turns out
    to be too large while it streams is the ``Tee``'s to find. ``is_copy`` says that a mirror sent it: a copy is never
    mirrored again, or two gateways that point at each other would never stop.
    """
    if is_copy:
        return SkipReason.IS_A_COPY
    if not sampled:
        return SkipReason.NOT_SAMPLED
    if method not in rule.methods:
        return SkipReason.METHOD_NOT_ALLOWED
    if served_by_candidate and not rule.both_ways:
        return SkipReason.SERVED_BY_CANDIDATE
    if content_length is not None and content_length > rule.max_body_bytes:
        return SkipReason.BODY_TOO_LARGE
    return None


def is_sampled(rule: ShadowRule, key: str, share: float = 1.0, *, served_by_candidate: bool = False) -> bool:
    """Say whether a request with this key is among the ``percent`` that are chosen, narrowed to ``share`` of these.

    Of what the candidate served it is ``back_percent``, where the rule has one and mirrors both ways.
    """
    own = rule.back_percent if served_by_candidate and rule.both_ways else None
    return _is_chosen((rule.percent if own is None else own) * share, "mirror", key)


def wants_control(rule: ShadowRule, request_id: str) -> bool:
    """Say whether a mirrored request also gets a second call to the baseline; independent of ``skip_reason``'s draw."""
    return _is_chosen(rule.control_percent, "control", request_id)


def _is_chosen(percent: float, purpose: str, request_id: str) -> bool:
    # A share of the hash space rather than a random draw: a growing percent only ever adds requests.
    if percent >= 100 or percent <= 0:
        return percent > 0
    digest = hashlib.blake2b(f"{purpose}\0{request_id}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) < percent / 100 * 2**64
