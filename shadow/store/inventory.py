"""What a store holds, in numbers. Needs no key: no body is opened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine, func, select, text

from shadow.keeping import Kept
from shadow.store.objects import is_day
from shadow.store.rows import moment
from shadow.store.schema import body_keys, exchanges


@dataclass(frozen=True, slots=True)
class RouteHoldings:
    """What is stored of one route; ``bodies`` counts exchanges by what became of their bodies."""

    exchanges: int
    first_at: datetime
    last_at: datetime
    bodies: Mapping[Kept, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a store holds. ``key_days`` are the UTC days whose bodies can still be read, in order."""

    routes: Mapping[str, RouteHoldings]
    database_bytes: int
    key_days: tuple[str, ...]


def take_inventory(engine: Engine) -> Inventory:
    """Count everything. Blocks; reads every exchange, as what became of its bodies is in no index."""
    kept: defaultdict[str, Counter[Kept]] = defaultdict(Counter)
    spans: dict[str, tuple[int, int, int]] = {}
    with engine.connect() as connection:
        arrival = exchanges.c.received_at_us
        columns = exchanges.c.route, exchanges.c.bodies, func.count(), func.min(arrival), func.max(arrival)
        for route, bodies, count, first, last in connection.execute(select(*columns).group_by(*columns[:2])):
            kept[route][Kept(bodies)] += count  # two names may be one here, where another version wrote them
            n, since, until = spans.get(route, (0, first, last))
            spans[route] = n + count, min(since, first), max(until, last)
        names = connection.execute(select(body_keys.c.name)).scalars().all()
    routes = {
        route: RouteHoldings(n, moment(first), moment(last), dict(kept[route]))
        for route, (n, first, last) in sorted(spans.items())
    }
    return Inventory(routes, _database_bytes(engine), tuple(sorted(filter(is_day, names))))


def _database_bytes(engine: Engine) -> int:
    if engine.dialect.name == "sqlite":
        path = engine.url.database or ""
        files = [Path(f"{path}{suffix}") for suffix in ("", "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
