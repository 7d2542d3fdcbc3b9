"""Downloads that break off and go on, over genuine TLS on loopback and with a scripted opener."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from onprem_backend.downloads import Answer
from onprem_backend.fetch import FetchResult, fetch
from onprem_backend.manifest import ModelFile
from tests.onprem_backend.pictures import noise

CONTENT = noise(300, 200).tobytes()
URL = "https://weights.example/big.bin"
# A certificate of nobody, made for these tests: it names 127.0.0.1 and is trusted where a test says so.
CERTIFICATE = Path(__file__).with_name("loopback_only.pem")


def pinned(content: bytes = CONTENT, source: str = URL, **changes: Any) -> dict[str, ModelFile]:
    values = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": None, **changes}
    return {"big": ModelFile("big", "big.bin", source, licence="-", by_default=False, **values)}


@dataclass
class Origin:
    """A server of one file. Each request takes the next of ``cuts``: after so many bytes its connection breaks."""

    content: bytes = CONTENT
    etag: str = '"one"'
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    seen: list[Mapping[str, str]] = field(default_factory=list)

    def __call__(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[Answer]:
        return self._open(headers)

    @contextmanager
    def _open(self, headers: Mapping[str, str]) -> Iterator[Answer]:
        self.seen.append(headers)
        start = int(headers.get("Range", "bytes=0-")[6:-1])
        fresh = headers.get("If-Range") == self.etag and self.ranges
        if start and fresh:
            last = len(self.content) - 1
            answered = {"content-range": f"bytes {start}-{last}/{last + 1}", "content-length": str(last + 1 - start)}
            yield Answer(206, answered, self._chunks(start))
        else:
            yield Answer(200, {"etag": self.etag, "content-length": str(len(self.content))}, self._chunks(0))

    def _chunks(self, start: int) -> Iterator[bytes]:
        end = self.cuts.pop(0) if self.cuts else len(self.content)
        for position in range(start, end, 10_000):
            yield self.content[position : min(position + 10_000, end)]
        if end < len(self.content):
            raise ConnectionError("broke off")


Steps = list[tuple[str, int, int]]


def run(folder: Path, origin: Any, manifest: dict[str, ModelFile] | None = None) -> tuple[FetchResult, Steps]:
    steps: Steps = []
    entries = pinned() if manifest is None else manifest
    (result,) = fetch(folder, ["big"], lambda *step: steps.append(step), open_url=origin, manifest=entries)
    return result, steps


def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    origin = Origin(cuts=[50_000, 120_000])
    result, steps = run(tmp_path, origin)
    assert (result.state, result.path.read_bytes()) == ("fetched", CONTENT)
    assert [headers.get("Range") for headers in origin.seen] == [None, "bytes=50000-", "bytes=120000-"]
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert steps[-1] == ("big", len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["big.bin"]


def test_a_later_fetch_goes_on_and_progress_starts_where_it_was(tmp_path: Path) -> None:
    first, _ = run(tmp_path, Origin(cuts=[50_000, 50_000]))
    assert first.state == "failed"
    origin = Origin()
    again, steps = run(tmp_path, origin)
    assert (again.state, again.path.read_bytes()) == ("fetched", CONTENT)
    assert steps[0] == ("big", 50_000, len(CONTENT))
    assert origin.seen[0]["If-Range"] == '"one"'


def test_a_complete_download_that_was_not_yet_checked_is_not_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / ".big.bin.part").write_bytes(CONTENT)
    notes = {"url": URL, "validator": '"one"', "total": len(CONTENT)}
    (tmp_path / ".big.bin.part.json").write_text(json.dumps(notes))
    origin = Origin()
    result, _ = run(tmp_path, origin)
    assert (result.state, origin.seen) == ("fetched", [])


@pytest.mark.parametrize("changes", [{"etag": '"two"'}, {"ranges": False}])
def test_other_content_or_no_ranges_begins_again(tmp_path: Path, changes: dict[str, Any]) -> None:
    run(tmp_path, Origin(content=bytes(len(CONTENT)), cuts=[50_000, 50_000]))
    result, steps = run(tmp_path, Origin(**changes))
    assert (result.state, result.path.read_bytes()) == ("fetched", CONTENT)
    assert steps[0][1] == 0


def test_a_weak_etag_is_no_ground_to_go_on(tmp_path: Path) -> None:
    run(tmp_path, Origin(etag='W/"one"', cuts=[50_000, 50_000]))
    origin = Origin()
    assert run(tmp_path, origin)[0].state == "fetched"
    assert "Range" not in origin.seen[0]


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (pinned(b"another"), "pinned is"),
        (pinned(sha256=""), "no pinned sha256"),
        (pinned(size_bytes=7), "pinned are 7"),
        (pinned(source="http://weights.example/big.bin"), "unknown source"),
    ],
)
def test_what_is_not_pinned_or_not_the_pinned_file_is_refused_and_removed(
    tmp_path: Path, manifest: dict[str, ModelFile], reason: str
) -> None:
    result, _ = run(tmp_path, Origin(), manifest)
    assert result.state == "failed"
    assert reason in str(result.error)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_server_is_a_result_and_keeps_what_is_there(tmp_path: Path) -> None:
    run(tmp_path, Origin(cuts=[50_000, 50_000]))

    @contextmanager
    def gone(url: str, headers: Mapping[str, str]) -> Iterator[Answer]:
        yield Answer(503, {}, [])

    result, _ = run(tmp_path, gone)
    assert "answers 503" in str(result.error)
    assert (tmp_path / ".big.bin.part").stat().st_size == 50_000


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT with ranges; cuts the first answer short; redirects from /moved to where its query says."""

    cut = True

    def do_GET(self) -> None:
        path, _, target = self.path.partition("?")
        if path == "/moved":
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()
            return
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(CONTENT) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        broken, type(self).cut = self.cut, False
        self.wfile.write(CONTENT[start : len(CONTENT) // 2 if broken else None])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def origin_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A genuine https server on loopback that the environment trusts."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Handler.cut = True
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="test-origin")
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_over_genuine_tls_a_broken_connection_is_gone_on_with(tmp_path: Path, origin_address: str) -> None:
    steps: Steps = []
    manifest = pinned(source=f"{origin_address}/moved?{origin_address}/big.bin")
    (result,) = fetch(tmp_path, ["big"], lambda *step: steps.append(step), manifest=manifest)
    assert (result.state, result.error) == ("fetched", None)
    assert result.path.read_bytes() == CONTENT


def test_a_redirect_that_leaves_https_is_refused(tmp_path: Path, origin_address: str) -> None:
    manifest = pinned(source=f"{origin_address}/moved?http://127.0.0.1:9/big.bin")
    (result,) = fetch(tmp_path, ["big"], lambda *step: None, manifest=manifest)
    assert result.state == "failed"
    assert "http://127.0.0.1:9" in str(result.error)


def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path, origin_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    (result,) = fetch(tmp_path, ["big"], lambda *step: None, manifest=pinned(source=f"{origin_address}/big.bin"))
    assert result.state == "failed"
    assert "proxy" in str(result.error).lower()
