"""What a route asks of the mirror, as frozen values. The pure decision is in ``shadow/selection.py``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"})
"""Always secret. Others are recognised by their words: see ``is_secret``."""

_SECRET_WORD = re.compile(
    r"(^|[-_.])(api-?key|key|[a-z0-9]*token|jwt|bearer|secret|signature|sig|password|passwd|pwd|credentials?|auth"
    r"|authorization|session|[a-z]*sess(ion)?id|sid)($|[-_.])"
)
_NOT_SECRET = frozenset({"idempotency-key", "sec-websocket-key", "x-request-key"})


@lru_cache(1024)
def is_secret(name: str) -> bool:
    """Say whether a header or query parameter of this name carries a credential.

    Known names, and every name with a word like key, token, secret or signature in it (``Ocp-Apim-Subscription-Key``,
    ``X-Amz-Security-Token``, ``?api_key=``): better one field too many than one credential.
    """
    lower = name.lower()
    return lower in SECRET_HEADERS or (lower not in _NOT_SECRET and _SECRET_WORD.search(lower) is not None)


def carries_secret(name: str, secret_names: frozenset[str]) -> bool:
    """Say the same of a name where ``secret_names`` (lower case) are secret as well: also with an underscore for a
    hyphen, because a server behind may take the one for the other."""
    lower = name.lower()
    return lower in secret_names or lower.replace("_", "-") in secret_names or is_secret(lower)


@dataclass(frozen=True, slots=True)
class ShadowRule:
    """How one route is mirrored.

    ``percent`` of requests (0 to 100) are mirrored, and of these at most ``rate_per_s`` where that is given. They are
    chosen by the hash of the request id, or of the header ``sample_by`` (lower case) where a request has it, so that
    all requests of one user are chosen alike; ``control_percent`` of the mirrored ones also get a second call to the
    baseline. ``both_ways`` mirrors a request that the candidate served to the baseline, ``back_percent`` of them where
    it is given. ``forward_headers`` (lower case) names credentials that the shadow may see although they are stripped
    by default; ``secret_names`` (lower case) are secret here beside those that ``is_secret`` knows.
    """

    percent: float = 0.0
    rate_per_s: float | None = None
    sample_by: str = ""
    control_percent: float = 0.0
    methods: frozenset[str] = frozenset({"GET", "HEAD"})
    both_ways: bool = False
    back_percent: float | None = None
    max_body_bytes: int = 64 * 1024 * 1024
    preserve_host: bool = False
    forward_headers: frozenset[str] = field(default_factory=frozenset)
    secret_names: frozenset[str] = field(default_factory=frozenset)

    def hides(self, name: str) -> bool:
        """Say whether the copy goes without this header field."""
        return name.lower() not in self.forward_headers and carries_secret(name, self.secret_names)


@dataclass(frozen=True, slots=True)
class MirrorLimits:
    """Bounds on all that the mirror may hold or do at once, for the whole process.

    ``byte_budget_bytes`` are of memory; once half of it is taken a body over ``spool_above_bytes`` goes to a nameless
    file in ``spool_dir`` (the system's place for temporary files when ``None``), where all together may take
    ``spool_budget_bytes``. The counts that outlive the process are in ``slate_dir``; without one they do not.
    """

    byte_budget_bytes: int = 256 * 1024 * 1024
    spool_above_bytes: int = 1024 * 1024
    spool_budget_bytes: int = 1024 * 1024 * 1024
    spool_dir: str | None = None
    slate_dir: str | None = None
    max_queued: int = 1000
    max_concurrent: int = 16
    breaker_failures: int = 20
    breaker_reset_s: float = 5.0


@dataclass(frozen=True, slots=True)
class StreamRule:
    """Where exchanges wait for workers: the URL of a Redis, and bounds on what waits there, bodies included."""

    url: str = field(repr=False)
    max_length: int = 10_000
    max_bytes: int = 4 * 1024 * 1024 * 1024
