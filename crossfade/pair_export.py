"""Write a pair as a case that stands on its own: a folder or a zip with the request, the answers and what was measured.

What is in it came from traffic: names of files are ours, and nothing in it is run. It holds bodies in plain, so it is
its owner's alone (0700, 0600), and the audit says who took it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import typer

from compare.curl import curl_command
from compare.policy import measurement_key
from compare.results import Results
from crossfade.audit import append_line
from crossfade.comparison import policy_of
from crossfade.composition import policies
from crossfade.config.loading import ConfigError, load_config
from crossfade.config.model import Config
from crossfade.store_faults import store_faults
from shadow.exchange import Body, Exchange, Headers
from shadow.store.reader import Reader

_MAGIC = (
    (b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF8", "gif"), (b"RIFF", "webp"), (b"{", "json"), (b"[", "json"),
)  # fmt: skip
README = """\
# Pair {id} of route {route}

Received {received_at}. {request}

| file | what it is |
|---|---|
| `request.json`, `request.*` | what the client sent; credentials are redacted |
{legs}
| `measurement.json` | what the comparison found; empty when it has not come to this pair |
| `curl.sh` | sends the request again, to {server} |

A file without a body beside it: that body was not kept. Bodies are people's data: delete this when you are done.
"""


def export_pair(config: Path, exchange_id: str, out: Path | None, *, curl: bool, who: str, now: datetime) -> None:
    """Write the case and say where it is. Raises ``ValueError`` for an unknown id or a place that is taken."""
    loaded = load_config(config, secrets=False)
    place = out or Path(f"pair-{exchange_id}")
    if place.exists():
        raise ConfigError(f"{place} is there already; name another place with --out")
    store = loaded.store
    with store_faults():
        reader = Reader.open(store.url, store.bodies, store.keep_bodies_days, key=store.key)
        try:
            files, command = pair_case(reader, loaded, exchange_id)
        finally:
            reader.close()
    line = {"at": now.isoformat(), "event": "pair_exported", "who": who, "exchange": exchange_id, "file": str(place)}
    append_line(Path(loaded.audit), line)
    _write(place, files)
    typer.echo(f"{place}: {len(files)} files, bodies in plain; keep it private", err=True)
    if curl:
        typer.echo(command.encode(errors="surrogateescape"))


def pair_case(reader: Reader, config: Config, exchange_id: str) -> tuple[dict[str, bytes], str]:
    """Return the files of a case by name, and the curl command. Raises ``ConfigError`` for an unknown id."""
    exchange = reader.exchange(exchange_id)
    if exchange is None:
        raise ConfigError(f"there is no pair {exchange_id}: copy the id from the dashboard or the report")
    files: dict[str, bytes] = {}
    request = exchange.request
    asked = {"method": request.method, "target": request.target.decode("latin-1"), **_headers(request.headers)}
    body = _add(files, "request", asked, request.body, reader)
    rows = []
    for role, leg in exchange.observations():
        seen = {
            "backend": leg.backend, "server": leg.server, "status": leg.status, "first_byte_s": leg.first_byte_s,
            "total_s": leg.total_s, "arrivals_s": leg.arrivals_s, **_headers(leg.headers),
            "failure": leg.failure and {"kind": leg.failure.kind.value, "detail": leg.failure.detail},
        }  # fmt: skip
        _add(files, role.value, seen, leg.body, reader)
        rows.append(f"| `{role.value}.json`, `{role.value}.*` | what {leg.backend} answered, and how fast |")
    files["measurement.json"] = _measurement(reader, config, exchange).encode()
    server = _server(config, exchange)
    command = curl_command(request, server, body)
    if body is None and request.body.size_bytes:
        command = f"# The body of the request is not kept: this sends none.\n{command}"
    script = f"#!/bin/sh\n# Credentials are redacted: add your own.\n{command}\n"
    files["curl.sh"] = script.encode(errors="surrogateescape")
    words = f"{request.method} with {request.body.size_bytes:,} bytes."
    files["README.md"] = README.format(
        id=exchange.id, route=exchange.route, received_at=exchange.received_at, request=words,
        legs="\n".join(rows), server=server,
    ).encode()  # fmt: skip
    return files, command


def _add(
    files: dict[str, bytes], name: str, facts: Mapping[str, object], body: Body | None, reader: Reader
) -> str | None:
    """Add the facts and, where it is kept, the body; return the name of its file."""
    content = None if body is None else reader.load(body)
    file = f"{name}.{_suffix(content)}" if content else None
    if file is not None and content is not None:
        files[file] = content
    about = body and {"size_bytes": body.size_bytes, "media_type": body.media_type, "encoding": body.content_encoding}
    files[f"{name}.json"] = json.dumps({**facts, "body": about, "file": file}, indent=2).encode()
    return file


def _suffix(content: bytes | None) -> str:
    found = next((suffix for magic, suffix in _MAGIC if (content or b"").startswith(magic)), "bin")
    return f"body.{found}"


def _headers(headers: Headers) -> dict[str, object]:
    return {"headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]}


def _measurement(reader: Reader, config: Config, exchange: Exchange) -> str:
    policy = policy_of(policies(config), exchange)
    found = policy and Results(reader.engine).measurement(exchange.id, measurement_key(policy))
    return json.dumps(json.loads(found.to_json()), indent=2) if found else "{}"


def _server(config: Config, exchange: Exchange) -> str:
    backend = exchange.shadow.backend if exchange.shadow is not None else exchange.primary.backend
    return config.backends[backend].servers[0] if backend in config.backends else "http://127.0.0.1:8080"


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return the files as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix == ".zip":
        place.touch(mode=0o600)
        place.write_bytes(zipped(files))
        return
    place.mkdir(mode=0o700)
    for name, content in files.items():
        file = place / name
        file.touch(mode=0o600)
        file.write_bytes(content)
