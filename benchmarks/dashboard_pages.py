"""How long the dashboard's pages take with a million stored requests, and that none takes over 200 ms.

    python -m benchmarks.dashboard_pages --rows 1000000

Fills a store in a folder that is deleted afterwards (rows are copied inside of the database: no kernel runs, no body is
written), serves it with uvicorn on loopback and asks for each page several times over HTTP. Prints the median and the
slowest; exit code 1 when a median is over the aim.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import uvicorn
from sqlalchemy import Connection, text
from starlette.applications import Starlette

from compare.dashboard.app import create_app
from compare.job import run
from compare.policy import Kind, Policy, measurement_key
from compare.results import Results
from shadow.account import RouteAccount
from shadow.exchange import Body, Exchange, Observation, Request
from shadow.store.database import writing
from shadow.store.reader import Reader
from shadow.store.store import Store

AIM_S = 0.2
ROUTES = 5
SEEDS = 100
EACH = 7
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def main() -> int:
    """Fill, render, print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000, help="stored requests over all routes")
    rows = arguments.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="crossfade-bench-") as folder:
        return 1 if try_pages(Path(folder), rows) else 0


def try_pages(folder: Path, rows: int) -> list[str]:
    """Return the pages that take too long with so many rows."""
    reader, last_at = fill(folder, policies(), rows)
    try:
        app = create_app(reader, Results(reader.engine), policies(), now=lambda: last_at)
        with serving(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
            return measure(client)
    finally:
        reader.close()


def policies() -> list[Policy]:
    """Return the policies of the routes."""
    return [Policy(f"route-{n}", "cloud", "onprem", Kind.JSON, min_span_s=10.0, routes=ROUTES) for n in range(ROUTES)]


def fill(folder: Path, rules: list[Policy], rows: int) -> tuple[Reader, datetime]:
    """Return a store with so many requests over the routes, measured and judged, and when the last one came."""
    url, bodies = f"sqlite:///{folder / 'store.db'}", folder / "bodies"
    asyncio.run(_save_seeds(url, bodies, rules, rows))
    reader = Reader.open(url, bodies)
    run(reader, rules, workers=0)
    with writing(reader.engine).begin() as connection:
        multiply(connection, rows, rules)
    with writing(reader.engine).begin() as connection:
        connection.execute(text("ANALYZE"))
    return reader, BEGAN + timedelta(seconds=rows * 0.1)


async def _save_seeds(url: str, bodies: Path, rules: list[Policy], rows: int) -> None:
    store = Store.open(url, bodies)
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
        columns = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")]
        new = {
            "sequence": "sequence + :shift",
            "id": "id || '-' || :shift",
            "exchange_id": "exchange_id || '-' || :shift",
            "received_at_us": "received_at_us + :shift * 100000",
        }
        picked = ", ".join(new.get(name, f'"{name}"') for name in columns)
        names = ", ".join(f'"{name}"' for name in columns)
        base = SEEDS * len(rules)
        connection.execute(text(f"CREATE TEMP TABLE seeds AS SELECT * FROM {table} WHERE sequence <= {base}"))
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
    "/routes/route-1?diagnosis=top_label",
    "/routes/route-1?diagnosis=nobody_has_it",
    "/routes/route-1?since=2026-03-01T12:00",
    "/routes/route-1?slower=0.2",
    "/routes/route-1?model=no-such-model",
    "/pairs/route-1-7",
    "/pairs/route-1-7?show=mismatch&at=3000",
)


def measure(client: httpx.Client) -> list[str]:
    """Print median and maximum of each page; return those whose median is over the aim."""
    slow = []
    print("  median     max  page")
    for path in PAGES:
        took = []
        for _ in range(EACH):
            began = time.perf_counter()
            answer = client.get(path, headers={"accept": "text/html"})
            took.append(time.perf_counter() - began)
            answer.raise_for_status()
        median = statistics.median(took)
        print(f"{1000 * median:5.0f} ms {1000 * max(took):4.0f} ms  {path}", flush=True)
        slow += [path] if median > AIM_S else []
    return slow


if __name__ == "__main__":
    raise SystemExit(main())
