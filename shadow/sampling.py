"""Choose which requests are mirrored: a percent of them, or at most so many a second, so that the same key is always
chosen alike.

To take them as they come until the second is full would mirror other users each second. Instead the rate becomes a
share of the hash space: the rate over the traffic of the last window, or of this one where that is more by now. The
share only moves when the traffic does, so a user's requests stay together. It follows the traffic with a delay, so a
bucket of tokens stands behind it: whatever comes, no more than ``rate_per_s`` a second, and at once no more than one
second allows or ``BURST``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shadow.rule import ShadowRule
from shadow.selection import is_sampled

MIN_WINDOW_S = 1.0
MAX_WINDOW_S = 60.0
EXPECTED_IN_WINDOW = 10.0
"""A window is as long as it takes to choose about so many, within the bounds: a low rate needs a long look."""

BURST = 10.0


@dataclass(slots=True)
class _Window:
    began_s: float
    tokens: float
    refilled_s: float
    count: int = 0
    last_count: int = 0


class Sampler:
    """Knows the traffic of every route that has a rate. ``clock`` is monotonic seconds; of ``workers`` processes that
    serve together each takes its part of a rate."""

    def __init__(self, clock: Callable[[], float], workers: int = 1) -> None:
        self._clock = clock
        self._workers = workers
        self._windows: dict[str, _Window] = {}

    def chooses(self, route: str, rule: ShadowRule, key: str, *, served_by_candidate: bool = False) -> bool:
        """Count one request in, and say whether it is to be mirrored. ``key`` is what the choice hangs on."""
        if rule.rate_per_s is None:
            return is_sampled(rule, key, served_by_candidate=served_by_candidate)
        rate_per_s = rule.rate_per_s / self._workers
        now_s, full = self._clock(), max(BURST, rate_per_s)
        window = self._windows.get(route)
        if window is None:
            window = self._windows[route] = _Window(now_s, full, now_s)
        share = _share(window, rate_per_s, now_s)
        chosen = is_sampled(rule, key, share, served_by_candidate=served_by_candidate)
        return chosen and _take(window, rate_per_s, full, now_s)


def _share(window: _Window, rate_per_s: float, now_s: float) -> float:
    """Count one request in and return the share (0 to 1) of the traffic that may be chosen now."""
    length_s = min(MAX_WINDOW_S, max(MIN_WINDOW_S, EXPECTED_IN_WINDOW / rate_per_s))
    passed = int((now_s - window.began_s) / length_s)
    if passed:
        window.last_count = window.count if passed == 1 else 0
        window.count = 0
        window.began_s += passed * length_s
    window.count += 1
    return min(1.0, rate_per_s * length_s / max(window.count, window.last_count))


def _take(window: _Window, rate_per_s: float, full: float, now_s: float) -> bool:
    """Take one token; ``False`` when there is none."""
    window.tokens = min(full, window.tokens + (now_s - window.refilled_s) * rate_per_s)
    window.refilled_s = now_s
    if window.tokens < 1:
        return False
    window.tokens -= 1
    return True
