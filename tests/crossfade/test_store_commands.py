"""`crossfade store`: what it shows, deletes and exports, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crossfade.cli import app
from crossfade.moments import parse_moment
from shadow.keeping import Bodies, KeepRule
from shadow.store.store import Store
from tests.shadow.bench import body_of, exchange_of
from tests.shadow.store.shelf import LARGE

NOW = datetime.now(UTC)
CONFIG = """\
backends: {cloud: {servers: ["http://127.0.0.1:1"]}, onprem: {servers: ["http://127.0.0.1:2"]}}
routes:
  - {name: classify, match: {path: /v1/classify}, baseline: cloud, candidate: onprem, active: cloud}
store: {url: "sqlite:///crossfade.db", bodies: bodies, keep_bodies_days: 2}
audit: audit.jsonl
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config whose store has exchanges of today and of ten days ago."""
    (tmp_path / "crossfade.yaml").write_text(CONFIG, encoding="utf-8")

    async def fill() -> None:
        store = Store.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
        store.configure({"secret": KeepRule(Bodies.HASHES)})
        for number in range(6):
            at = NOW - timedelta(days=10 if number < 2 else 0, minutes=number)
            exchange = exchange_of(f"id-{number}", body=body_of(LARGE + bytes([number]), media_type="image/png"))
            leg = replace(exchange.primary, backend="onprem", status=500, total_s=0.4)
            await store.save(replace(exchange, received_at=at, shadow=leg))
        await store.save(replace(exchange_of("hashed", route="secret"), received_at=NOW))
        await store.aclose()

    asyncio.run(fill())
    return tmp_path / "crossfade.yaml"


def run(*arguments: str, config: Path | None = None, answer: str | None = None) -> tuple[int, str]:
    options = ["--config", str(config)] if config else []
    result = CliRunner().invoke(app, [*arguments, *options], input=answer, env={"COLUMNS": "140"})
    return result.exit_code, result.output


def audit(config: Path) -> list[dict[str, object]]:
    path = config.with_name("audit.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_stats_tell_what_became_of_the_bodies(config: Path) -> None:
    config.with_name("crossfade.db.key").unlink()  # not needed to count
    code, output = run("store", "stats", config=config)
    assert code == 0
    classify, secret = (line.split() for line in output.splitlines() if line.startswith(("classify", "secret")))
    assert (classify[1], classify[-4:]) == ("6", ["6", "0", "0", "0"])
    assert (secret[1], secret[-4:]) == ("1", ["0", "0", "0", "1"])
    code, output = run("store", "stats", "--json", config=config)
    found = json.loads(output)
    assert found["routes"]["classify"]["bodies"] == {"shared": 6}
    assert len(found["key_days"]) in (2, 3)  # three when the test began within six minutes of midnight


def test_purge_deletes_what_is_due_and_stats_and_audit_know(config: Path) -> None:
    code, output = run("store", "purge", config=config)
    assert (code, "(2 objects" in output) == (0, True)
    _, output = run("store", "stats", config=config)
    assert next(line for line in output.splitlines() if line.startswith("classify")).split()[-4:] == [
        "4",
        "0",
        "2",
        "0",
    ]
    (line,) = audit(config)
    assert (line["event"], line["objects"]) == ("bodies_deleted", 2)
    code, output = run("store", "purge", "--before", "0h", config=config)  # today is not over
    assert "(0 objects" in output


def test_purge_of_everything_asks_first_and_works_without_the_key(config: Path) -> None:
    key = config.with_name("crossfade.db.key")
    key.unlink()
    code, _ = run("store", "purge", "--bodies", "all", config=config, answer="n\n")
    assert code == 1
    assert any(config.with_name("bodies").rglob("*/??/*"))
    code, output = run("store", "purge", "--bodies", "all", "--yes", config=config)
    assert (code, "every body and every key" in output) == (0, True)
    assert not any(config.with_name("bodies").rglob("*/??/*"))
    code, output = run("store", "export", "--parquet", str(config.with_name("all.parquet")), config=config)
    assert code == 0
    assert key.exists()


def test_an_export_holds_every_number_and_no_body(config: Path) -> None:
    file = config.with_name("out[bold].parquet")
    code, output = run("store", "export", "--parquet", str(file), config=config)
    assert (code, f"{file}: 7 rows" in output) == (0, True), output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    rows = {row["id"]: row for row in pq.read_table(file).to_pylist()}
    row = rows["id-3"]
    assert (row["route"], row["primary_total_s"], row["shadow_status"], row["shadow_total_s"]) == (
        "classify", 0.2, 500, 0.4,
    )  # fmt: skip
    assert (row["request_size_bytes"], row["request_media_type"]) == (len(LARGE) + 1, "image/png")
    assert row["received_at"] == NOW - timedelta(minutes=3)
    assert row["control_backend"] is None
    assert not [name for name in row if name.endswith("_body")]
    assert audit(config) == []


def test_an_export_of_a_time_and_with_bodies_is_audited(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossfade.export._MOST_BYTES", len(LARGE))  # a body is a group of rows of its own
    file = config.with_name("out.parquet")
    arguments = ["--route", "classify", "--since", "3d", "--until", (NOW - timedelta(minutes=3)).isoformat()]
    code, _ = run("store", "export", "--parquet", str(file), *arguments, "--with-bodies", config=config)
    assert code == 0
    rows = {row["id"]: row for row in pq.read_table(file).to_pylist()}
    assert sorted(rows) == ["id-4", "id-5"]
    assert pq.ParquetFile(file).num_row_groups == 2
    assert rows["id-4"]["request_body"] == LARGE + bytes([4])
    assert rows["id-4"]["primary_body"] == b"yes"
    (line,) = audit(config)
    assert (line["event"], line["file"], line["route"]) == ("bodies_exported", str(file), "classify")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "--parquet", "x", "--since", "yesterday"], "write 2h or 7d (ago)"),
        (["export", "--parquet", "x", "--route", "nowhere"], "nothing is stored of a route nowhere; there is classify"),
        (["purge", "--bodies", "some"], "--bodies is expired or all"),
        (["purge", "--bodies", "all", "--before", "2d"], "all goes without --before"),
    ],
)
def test_a_wrong_use_is_told(arguments: list[str], message: str, config: Path) -> None:
    code, output = run("store", *arguments, config=config)
    assert code == 2
    assert message in " ".join(output.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats"],
        ["purge"],
        ["purge", "--bodies", "all", "--yes"],
        ["export"],
        ["export", "--route", "classify"],
        ["compare"],
    ],
)  # fmt: skip
def test_a_database_that_is_damaged_is_told_in_one_line(arguments: list[str], config: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "crossfade.db") as database:
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        roots = {name: page for name, page in database.execute("SELECT name, rootpage FROM sqlite_schema") if page}
    database.close()
    page_bytes = (tmp_path / "crossfade.db").stat().st_size // pages
    with (tmp_path / "crossfade.db").open("r+b") as file:
        for name in ("exchanges", "exchanges_by_time", "exchanges_by_route"):
            file.seek((roots[name] - 1) * page_bytes)
            file.write(b"\xff" * page_bytes)
    place = ["--parquet", str(tmp_path / "x.parquet")] if arguments[0] == "export" else []
    code, output = run(*(() if arguments == ["compare"] else ("store",)), *arguments, *place, config=config)
    assert code == 2
    assert "the store" in output
    assert "malformed" in output
    assert "SELECT" not in output
    assert not (tmp_path / "x.parquet").exists()


def test_a_store_with_another_key_is_told_with_what_to_do(config: Path) -> None:
    config.with_name("crossfade.db.key").write_text("0" * 64)
    code, output = run("store", "export", "--parquet", str(config.with_name("x")), config=config)
    assert code == 2
    assert "written with another master key" in output
    code, output = run("compare", config=config)
    assert code == 2
    assert "written with another master key" in output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", datetime(2026, 5, 4, 10, 30, tzinfo=UTC)),
        ("1.5 d", datetime(2026, 5, 3, 0, 0, tzinfo=UTC)),
        ("2026-05-04", datetime(2026, 5, 4, tzinfo=UTC)),
        ("2026-05-04T12:30+02:00", datetime(2026, 5, 4, 10, 30, tzinfo=UTC)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, expected: datetime) -> None:
    assert parse_moment(text, datetime(2026, 5, 4, 12, tzinfo=UTC)) == expected
    for never in ("9" * 400 + "d", "0001-01-01T00:00+14:00"):
        with pytest.raises(ValueError, match="no time"):
            parse_moment(never, NOW)
