"""How long the dashboard's pages take with a million stored requests, and that none takes over 200 ms.

    python -m benchmarks.dashboard_pages --rows 1000000 --postgres

Fills a store in a folder that is deleted afterwards (rows are copied inside of the database: no kernel runs, no body is
written), serves it with uvicorn on loopback and asks for each page several times over HTTP. Prints the first answer,
the median and the slowest; exit code 1 when a first answer or a median is over the aim. At last it takes away all that
is counted and prepared beside the rows, as an old version left a store, and says how long the next opening takes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import uvicorn
from sqlalchemy import Connection, inspect, text
from starlette.applications import Starlette

from compare.dashboard.app import create_app
from compare.job import run
from compare.policy import Kind, Policy, measurement_key
from compare.results import Results
from shadow.account import RouteAccount
from shadow.exchange import Body, Exchange, Observation, Request
from shadow.store.counting import count_old
from shadow.store.database import writing
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.shadow.store.postgres_server import postgres_server

AIM_S = 0.2
ROUTES = 5
SEEDS = 100
EACH = 7
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def main() -> int:
    """Fill, render, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000, help="stored requests over all routes")
    arguments.add_argument("--postgres", action="store_true", help="in a PostgreSQL instead of SQLite")
    chosen = arguments.parse_args()
    logging.basicConfig(format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="crossfade-bench-") as folder, ExitStack() as stack:
        url = stack.enter_context(postgres_server()).new_database() if chosen.postgres else ""
        return 1 if try_pages(Path(folder), chosen.rows, url) else 0


def try_pages(folder: Path, rows: int, url: str = "") -> list[str]:
    """Return the pages that take too long with so many rows."""
    reader, last_at = fill(folder, policies(), rows, url)
    try:
        app = create_app(reader, Results(reader.engine), policies(), now=lambda: last_at)
        with serving(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
            slow = measure(client)
        measure_upgrade(reader)
        return slow
    finally:
        reader.close()


def policies() -> list[Policy]:
    """Return the policies of the routes."""
    return [Policy(f"route-{n}", "cloud", "onprem", Kind.JSON, min_span_s=10.0, routes=ROUTES) for n in range(ROUTES)]


def fill(folder: Path, rules: list[Policy], rows: int, url: str = "") -> tuple[Reader, datetime]:
    """Return a store with so many requests over the routes, measured and judged, and when the last one came."""
    url, key = url or f"sqlite:///{folder / 'store.db'}", f"file:{folder / 'store.key'}"
    asyncio.run(_save_seeds(url, folder / "bodies", key, rules, rows))
    reader = Reader.open(url, folder / "bodies", key=key)
    run(reader, rules, workers=0)
    with writing(reader.engine).begin() as connection:
        multiply(connection, rows, rules)
        for statement in ("DELETE FROM exchange_hours", "DELETE FROM counted_to", "DROP TABLE pair_hours", "ANALYZE"):
            connection.execute(text(statement))
    if reader.engine.dialect.name != "sqlite":  # as PostgreSQL does by itself within a minute of so many rows
        with reader.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as alone:
            alone.execute(text("VACUUM ANALYZE"))
    reader.close()
    reader = Reader.open(url, folder / "bodies", key=key)
    Results(reader.engine)
    return reader, BEGAN + timedelta(seconds=rows * 0.1)


async def _save_seeds(url: str, bodies: Path, key: str, rules: list[Policy], rows: int) -> None:
    store = Store.open(url, bodies, key=key)
    try:
        for n in range(SEEDS):
            await asyncio.gather(*(store.save(_exchange(policy.route, n)) for policy in rules))
        each = rows // len(rules)
        await store.save_accounts("run", {policy.route: RouteAccount(each, each) for policy in rules})
    finally:
        await store.aclose()


def _exchange(route: str, n: int) -> Exchange:
    def answer(backend: str, content: bytes, total_s: float) -> Observation:
        held = Body(f"{n:064x}", len(content), "application/json", "", (content,))
        return Observation(backend, "s", 200, ((b"X-Model", b"m"),), held, total_s / 2, total_s)

    right, wrong = b'{"label": "cat", "score": 0.9}', b'{"label": "dog", "score": 0.9}'
    asked = Request("POST", b"/v1", (), Body("0" * 64, 0))
    at = BEGAN + timedelta(seconds=n * 0.5)
    other = wrong if n % 50 == 0 else right
    return Exchange(f"{route}-{n}", route, at, asked, answer("cloud", right, 0.3), answer("onprem", other, 0.1))


def multiply(connection: Connection, rows: int, rules: list[Policy]) -> None:
    """Copy the seeds, with new ids, places and times, until there are so many rows, measurements and counts."""
    for table in ("exchanges", "observations", "pair_measurements", "pair_facets"):
        columns = [column["name"] for column in inspect(connection).get_columns(table)]
        new = {
            "sequence": "sequence + :shift",
            "id": "id || '-' || CAST(:shift AS text)",
            "exchange_id": "exchange_id || '-' || CAST(:shift AS text)",
            "received_at_us": "received_at_us + CAST(:shift AS bigint) * 100000",
            "body": """replace(body, '"sequence":' || sequence, '"sequence":' || (sequence + :shift))""",
        }
        picked = ", ".join(new.get(name, f'"{name}"') for name in columns)
        names = ", ".join(f'"{name}"' for name in columns)
        base = SEEDS * len(rules)
        connection.execute(text(f"CREATE TEMPORARY TABLE seeds AS SELECT * FROM {table} WHERE sequence <= {base}"))
        copy = text(f"INSERT INTO {table} ({names}) SELECT {picked} FROM seeds")
        for shift in range(base, rows, base):
            connection.execute(copy, {"shift": shift})
        connection.execute(text("DROP TABLE seeds"))
    for policy in rules:
        counted = "UPDATE pair_counts SET pairs = pairs * :times WHERE route = :route AND key = :key"
        times = {"times": rows // (SEEDS * len(rules)), "route": policy.route, "key": measurement_key(policy)}
        connection.execute(text(counted), times)


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Yield the address of the app on a free port of loopback; it has ended on the way out."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listener],), name="dashboard")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


PAGES = (
    "/",
    "/routes/route-1",
    "/routes/route-1?show=mismatch",
    "/routes/route-1?page=4000",
    "/routes/route-1?show=identical&page=3900",
    "/routes/route-1?diagnosis=top_label",
    "/routes/route-1?diagnosis=nobody_has_it",
    "/routes/route-1?since=2026-03-01T12:00",
    "/routes/route-1?slower=0.2",
    "/routes/route-1?model=no-such-model",
    "/pairs/route-1-7",
    "/pairs/route-1-7?show=mismatch&at=3000",
)


def measure(client: httpx.Client) -> list[str]:
    """Print the first answer, median and maximum of each page; return those where one of the first two is over the
    aim."""
    slow = []
    print("  first  median     max  page")
    for path in PAGES:
        took = []
        for _ in range(EACH):
            began = time.perf_counter()
            answer = client.get(path, headers={"accept": "text/html"})
            took.append(time.perf_counter() - began)
            answer.raise_for_status()
        median = statistics.median(took)
        print(f"{1000 * took[0]:4.0f} ms {1000 * median:4.0f} ms {1000 * max(took):4.0f} ms  {path}", flush=True)
        slow += [path] if max(median, took[0]) > AIM_S else []
    return slow


def measure_upgrade(reader: Reader) -> None:
    """Print how long it takes to count and prepare everything once, as the first opening of an old store does."""
    with writing(reader.engine).begin() as connection:
        for statement in ("DELETE FROM exchange_hours", "DELETE FROM counted_to"):
            connection.execute(text(statement))
        for table in ("pair_hours", "pair_counts", "pair_facets"):
            connection.execute(text(f"DROP TABLE {table}"))
    began = time.perf_counter()
    count_old(reader.engine)
    counted = time.perf_counter()
    Results(reader.engine)
    print(f"upgrade: requests counted in {counted - began:.1f} s, pairs in {time.perf_counter() - counted:.1f} s")


if __name__ == "__main__":
    raise SystemExit(main())
