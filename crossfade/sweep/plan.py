"""What a sweep does, and when each request of it is due: values and pure functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

MAX_IN_FLIGHT = 4000
"""No rate may keep more requests waiting than this: rate x timeout is bounded by it."""
MAX_REQUESTS = 200_000
MAX_POOL = 256


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """One function at every pool size and every rate.

    ``rates`` are requests per second, ``duration_s`` is how long each rate is sent, ``capacity_s`` how long each pool
    is kept full to find what it can do at most. ``query`` goes to the server as it is (``model=x4plus``). Before
    each load it waits up to ``patience_s`` for strangers to leave the machine alone.
    Raises ``ValueError`` for a plan that is empty or not bounded.
    """

    function: str
    pools: tuple[int, ...]
    rates: tuple[float, ...]
    timeout_s: float = 30.0
    duration_s: float = 20.0
    capacity_s: float = 10.0
    seed: int = 1
    query: str = ""
    patience_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.pools or not self.rates:
            raise ValueError("a sweep needs at least one pool size and one rate")
        check_load(self.rates, self.timeout_s, self.duration_s)

    @property
    def seconds(self) -> float:
        """The time that the load alone takes; late answers and server starts come on top."""
        return len(self.pools) * (self.capacity_s + len(self.rates) * self.duration_s)


def check_load(rates: Sequence[float], timeout_s: float, duration_s: float) -> None:
    """Raise ``ValueError`` when the load is not positive or not bounded."""
    if timeout_s <= 0 or duration_s <= 0:
        raise ValueError("timeout and duration must be above 0")
    highest = max(rates)
    if highest * min(timeout_s, duration_s) > MAX_IN_FLIGHT:
        raise ValueError(
            f"rate {highest:g}/s with a timeout of {timeout_s:g} s may keep more than {MAX_IN_FLIGHT} requests waiting"
        )
    if highest * duration_s > MAX_REQUESTS:
        raise ValueError(f"rate {highest:g}/s for {duration_s:g} s is more than {MAX_REQUESTS} requests")


def parse_pools(text: str) -> tuple[int, ...]:
    """Parse ``1..6`` or ``1,2,4`` (or both, ``1..3,6``) into ascending pool sizes. Raises ``ValueError``."""
    sizes: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            low, high = int(first), int(last) if dots else int(first)
        except ValueError:
            raise ValueError(f"pool {text!r}: write sizes like 1..6 or 1,2,4") from None
        if not 1 <= low <= high <= MAX_POOL:
            raise ValueError(f"pool {text!r}: sizes go upwards from 1 to {MAX_POOL}")
        sizes.update(range(low, high + 1))
    return tuple(sorted(sizes))


def parse_rates(text: str) -> tuple[float, ...]:
    """Parse ``1,2,5,10`` (requests per second) into ascending rates. Raises ``ValueError``."""
    try:
        rates = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ValueError(f"rate {text!r}: write requests per second like 1,2,5,10") from None
    if not 0 < rates[0] <= rates[-1] < float("inf"):
        raise ValueError(f"rate {text!r}: every rate must be above 0")
    return tuple(rates)


def poisson_arrivals(rate: float, duration_s: float, seed: str) -> tuple[float, ...]:
    """Return when requests of a Poisson process are due, in seconds from its start, below ``duration_s``.

    The same seed gives the same times. At least one request is due, so that no rate goes unmeasured.
    """
    draw = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    gaps = (draw.expovariate(rate) for _ in itertools.count())
    due = tuple(itertools.takewhile(lambda at: at < duration_s, itertools.accumulate(gaps)))
    return due or (0.0,)


def steady_arrivals(rate: float, count: int) -> tuple[float, ...]:
    """Return ``count`` times at even distances, ``rate`` per second."""
    return tuple(index / rate for index in range(count))
