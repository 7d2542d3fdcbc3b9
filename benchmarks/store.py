"""What the store takes and how fast it finds: ``python -m benchmarks.store`` (SQLite; ``--postgres`` as well).

* write: exchanges a second that one process stores whole (request and two answers of 1 KB each, redacted, encrypted,
  committed, with the account of the run), 64 under way at a time; CPU per exchange; growth of the database.
* query: the same with ``--rows`` rows (10 million, without bodies), made in bulk by SQL: the next page of a route from
  a random moment on, as ``replay`` and the dashboard ask for it; p50, p99 and slowest of 200, each at another place.
* upgrade: how long a store of a version that kept no counts takes to open, once; then what a count takes.
* export: the rate at which a day of all routes is read back, by the index of time.

All end by themselves; the rows need about 0.9 KB of disk each in ``--folder`` (for PostgreSQL in the folder for
temporary files) and half a minute per million.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.progress import track
from sqlalchemy import Connection, text

from shadow.account import Stamp
from shadow.exchange import Exchange
from shadow.store.database import writing
from shadow.store.reader import Reader
from shadow.store.rows import microseconds
from shadow.store.store import Store
from tests.shadow.bench import body_of, exchange_of
from tests.shadow.store.postgres_server import postgres_server

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
ROUTES = 20
AT_ONCE = 100_000
CONCURRENT = 64
SPAN = timedelta(days=30)
DAY = timedelta(days=1)
EXPORTED = 50_000


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=10_000, help="how many are written")
    parser.add_argument("--rows", type=int, default=10_000_000, help="how many are there to query; 0 leaves it out")
    parser.add_argument("--postgres", action="store_true", help="in a PostgreSQL as well")
    parser.add_argument("--folder", type=Path, default=None, help="where the database goes, a temporary one by default")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        run("SQLite", f"sqlite:///{folder}/store.db", Path(folder), chosen.exchanges, chosen.rows)
    if chosen.postgres:
        with postgres_server() as server, tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            run("PostgreSQL", server.new_database(), Path(folder), chosen.exchanges, chosen.rows)


def run(name: str, url: str, folder: Path, exchanges: int, rows: int) -> None:
    """Measure one database."""
    key = f"file:{folder}/store.key"
    print(f"{name}: {asyncio.run(measure_writing(url, folder, key, exchanges))}", flush=True)
    reader = Reader.open(url, folder / "bodies", key=key)
    try:
        print(f"{name}: {size_bytes(reader, folder) / exchanges:,.0f} bytes an exchange", flush=True)
        if rows:
            fill(reader, rows)
            for measured in (
                measure_queries(reader, rows),
                measure_export(reader),
                measure_upgrade(reader, url, folder),
            ):
                print(f"{name}: {measured}", flush=True)
    finally:
        reader.close()


async def measure_writing(url: str, folder: Path, key: str, count: int) -> str:
    """Save ``count`` exchanges from one event loop; return the figures in words."""
    store = Store.open(url, folder / "bodies", key=key)
    made = iter([_exchange(number) for number in range(count)])

    async def save_some() -> None:
        for number, exchange in enumerate(made):
            await store.save(exchange, stamp=Stamp("run", number + 1))

    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT):
            group.create_task(save_some())
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    await store.aclose()
    return f"{count / took_s:,.0f} exchanges a second written, {1e3 * cpu_s / count:.2f} ms of CPU each"


def _exchange(number: int) -> Exchange:
    exchange = exchange_of(f"{number:032x}", route=f"route-{number % ROUTES}", body=body_of(os.urandom(1024)))
    answer = replace(exchange.primary, body=body_of(os.urandom(1024), media_type="application/json"))
    return replace(exchange, received_at=BEGIN, primary=answer, shadow=replace(answer, backend="onprem"))


def size_bytes(reader: Reader, folder: Path) -> int:
    """Return what the database takes, its log and its folder of bodies included."""
    if reader.engine.dialect.name == "sqlite":
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    with reader.engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def fill(reader: Reader, rows: int) -> None:
    """Add rows in bulk, spread evenly over ``SPAN`` and the routes, two answers each, without bodies."""
    with reader.engine.connect() as connection:
        first = int(connection.execute(text("SELECT max(sequence) FROM exchanges")).scalar_one())
    for start in track(range(0, rows, AT_ONCE), description="making rows"):
        with writing(reader.engine).begin() as connection:
            values = {"start": start, "end": min(rows, start + AT_ONCE), "first": first + 1, "routes": ROUTES}
            values |= {"begin": microseconds(BEGIN), "step": SPAN // timedelta(microseconds=1) // rows}
            _fill_some(connection, values)
    with writing(reader.engine).begin() as connection:
        connection.execute(text("ANALYZE"))


def _fill_some(connection: Connection, values: dict[str, int]) -> None:
    sqlite = connection.dialect.name == "sqlite"
    numbers = (
        "n(i) AS (SELECT :start UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :end)"
        if sqlite
        else "n(i) AS (SELECT generate_series(CAST(:start AS bigint), :end - 1))"
    )
    empty = "x''" if sqlite else "''::bytea"
    made = f"WITH {'RECURSIVE ' if sqlite else ''}{numbers}"
    connection.execute(
        text(
            "INSERT INTO exchanges (sequence, id, route, received_at_us, client_request_id, method, target, headers, "
            "body_digest, body_size_bytes, body_media_type, body_content_encoding) "
            f"{made} SELECT :first + i, 'bulk-' || (1000000000 + i), 'route-' || (i % :routes), :begin + i * :step, "
            f"'', 'POST', {empty}, '[[\"Host\", \"api.example\"]]', 'none', 1024, 'image/png', '' FROM n"
        ),
        values,
    )
    for role in ("primary", "shadow"):
        connection.execute(
            text(
                "INSERT INTO observations (sequence, role, backend, server, status, headers, first_byte_s, total_s, "
                "arrivals_s, body_digest, body_size_bytes, body_media_type, body_content_encoding) "
                f"{made} SELECT :first + i, '{role}', 'onprem', 'http://onprem', 200, "
                "'[[\"Content-Type\", \"image/png\"]]', 0.1, 0.2, '[]', 'none', 1024, 'image/png', '' FROM n"
            ),
            values,
        )


def measure_queries(reader: Reader, rows: int) -> str:
    """Ask for pages of 100 at random places; return the figures in words."""
    rng, times = random.Random(7), []
    for _ in track(range(200), description="asking"):
        route, since = f"route-{rng.randrange(ROUTES)}", BEGIN + SPAN * rng.random() * 0.99
        began = time.perf_counter()
        page = reader.received(route, since, since + timedelta(hours=1), limit=100)
        times.append(time.perf_counter() - began)
        assert all(exchange.route == route and exchange.received_at >= since for exchange in page)
        assert abs(len(page) - min(100, rows / ROUTES * (timedelta(hours=1) / SPAN))) <= 1 or rows < 1_000_000
    p50, p99 = 1e3 * statistics.median(times), 1e3 * statistics.quantiles(times, n=100)[98]
    slowest = 1e3 * max(times)
    return f"100 of a route and an hour out of {rows:,} rows in {p50:.1f} ms (p99 {p99:.1f}, slowest {slowest:.1f})"


def measure_export(reader: Reader) -> str:
    """Read some pages of a day of all routes, as an export does; return the figures in words."""
    since, seen, after = BEGIN + SPAN / 2, 0, None
    began = time.perf_counter()
    while seen < EXPORTED and (page := reader.received(None, since, since + DAY, after=after, limit=1000)):
        seen += len(page)
        after = page[-1].received_at, page[-1].sequence
    took_s = time.perf_counter() - began
    return f"{seen / took_s:,.0f} exchanges a second read of a day of all routes"


def measure_upgrade(reader: Reader, url: str, folder: Path) -> str:
    """Take the counts away, as in a store of version 3, and open it again; return the figures in words."""
    with writing(reader.engine).begin() as connection:
        connection.execute(text("DELETE FROM exchange_hours"))
        connection.execute(text("DELETE FROM counted_to"))
    began = time.perf_counter()
    upgraded = Reader.open(url, folder / "bodies", key=f"file:{folder}/store.key")
    opened = time.perf_counter()
    total = upgraded.count("route-1")
    counted = time.perf_counter()
    upgraded.close()
    words = f"an older store opens in {opened - began:.1f} s; then it takes"
    return f"{words} {1e3 * (counted - opened):.1f} ms to count the {total:,} exchanges of a route"


if __name__ == "__main__":
    main()
