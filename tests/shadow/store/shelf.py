"""A store on a temporary shelf, opened for writing or reading, and a look at what lies on the disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import create_engine, text

from shadow.store.reader import Reader, utc_now
from shadow.store.schema import INLINE_LIMIT_BYTES, metadata
from shadow.store.store import Store

LARGE = b"x" * (INLINE_LIMIT_BYTES + 1)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a store is, and the folder that has everything of it but a PostgreSQL database."""

    folder: Path
    url: str
    bodies: str
    key: str

    @classmethod
    def in_folder(cls, folder: Path, *, url: str | None = None, bodies: str | None = None) -> Shelf:
        """Return a shelf in the folder; by default with SQLite."""
        return cls(folder, url or url_in(folder), bodies or str(folder / "bodies"), f"file:{folder}/store.key")

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    def open(
        self, *, now: Callable[[], datetime] = utc_now, max_queued: int = 1000, lock_timeout_s: float = 10.0
    ) -> Store:
        return Store.open(
            self.url, self.bodies, key=self.key, now=now, max_queued=max_queued, lock_timeout_s=lock_timeout_s
        )

    @asynccontextmanager
    async def stored(
        self, *, now: Callable[[], datetime] = utc_now, max_queued: int = 1000, lock_timeout_s: float = 10.0
    ) -> AsyncIterator[Store]:
        """Open the store for writing."""
        store = self.open(now=now, max_queued=max_queued, lock_timeout_s=lock_timeout_s)
        try:
            yield store
        finally:
            await store.aclose()

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Open the store for reading."""
        reader = Reader.open(self.url, self.bodies, key=self.key)
        try:
            yield reader
        finally:
            reader.close()

    def folders(self) -> list[Path]:
        """Return the folders of the bodies."""
        return [path for path in Path(self.bodies).rglob("*") if path.is_dir()]

    def files(self) -> list[Path]:
        """Return the files of the bodies."""
        return [path for path in Path(self.bodies).rglob("*") if path.is_file()]

    def everything(self) -> bytes:
        """Return all that lies on the disk; of a PostgreSQL database all values of all its tables."""
        return everything_in(self.folder) + (b"" if self.is_sqlite else self._values())

    def _values(self) -> bytes:
        engine = create_engine(self.url)
        with engine.connect() as connection:
            tables = [table.name for table in metadata.tables.values()]
            rows = [row for table in tables for row in connection.execute(text(f"SELECT * FROM {table}"))]
        engine.dispose()
        values = [value for row in rows for value in row]
        return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder}/var/crossfade.db"


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
