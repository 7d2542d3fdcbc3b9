"""One worker's place among the workers of a gateway, and its share of what is configured for the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Place:
    """Worker ``number`` of ``count``. ``folder`` is private to the gateway and holds the sockets by which its workers
    ask each other; a gateway of one has none."""

    number: int = 0
    count: int = 1
    folder: str | None = None


def share(settings: Settings, count: int) -> Settings:
    """Return the settings with the bounds of the whole gateway divided among ``count`` workers."""
    mirror = settings.mirror
    return replace(
        settings,
        mirror=replace(
            mirror,
            byte_budget_bytes=mirror.byte_budget_bytes // count,
            spool_budget_bytes=mirror.spool_budget_bytes // count,
            max_queued=_up(mirror.max_queued, count),
            max_concurrent=_up(mirror.max_concurrent, count),
        ),
        replay_budget_bytes=settings.replay_budget_bytes // count,
    )


def check_limits(settings: Settings, count: int) -> None:
    """Refuse limits that each worker would count alone. Raises ``ValueError`` that says what to configure."""
    if count > 1 and settings.limits.storage == "memory://" and _has_limits(settings):
        raise ValueError(
            f"limits.storage is memory://, which counts in one process only, but there are {count} workers: "
            "set limits.storage to a Redis server, for example async+redis://127.0.0.1:6379/0, or use one worker"
        )


def _has_limits(settings: Settings) -> bool:
    on_routes = any(route.limits or route.concurrency is not None for route in settings.routes)
    return on_routes or bool(settings.gateway_limits) or any(caller.limits for caller in settings.callers)


def _up(amount: int, count: int) -> int:
    return -(-amount // count)
