"""A Kubernetes API server as far as one ConfigMap goes: bearer token, merge patch, resourceVersion, Status objects."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class KubernetesApi:
    """Serves ``/api/v1/namespaces/NAMESPACE/configmaps/NAME`` on loopback while the block runs.

    ``before_patch`` is called before each patch is applied, so that a test can be faster than it. ``allowed`` are the
    verbs that the account has.
    """

    def __init__(self, namespace: str, name: str, data: dict[str, str], token: str) -> None:
        self.data, self.token = dict(data), token
        self.version = 100
        self.allowed = {"get", "patch"}
        self.before_patch: Callable[[], None] = lambda: None
        self.patches: list[dict[str, Any]] = []
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._name, self._namespace = name, namespace
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="kubernetes api")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def edit(self, key: str, text: str) -> None:
        """Change the ConfigMap as somebody else would."""
        self.data[key] = text
        self.version += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, document = api._answer("get", self, b"")
                self._send(status, document)

            def do_PATCH(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                status, document = api._answer("patch", self, body)
                self._send(status, document)

            def _send(self, status: int, document: dict[str, Any]) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def _answer(self, verb: str, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, Any]]:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if verb not in self.allowed:
            return _status(403, f'configmaps "{self._name}" is forbidden: User cannot {verb} resource')
        if request.path != self._path:
            return _status(404, "not found")
        return self._patch(request, body) if verb == "patch" else (200, self._document())

    def _patch(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, Any]]:
        if request.headers.get("content-type") != "application/merge-patch+json":
            return _status(415, "the body of the request was in an unknown format")
        self.before_patch()
        patch = json.loads(body)
        wanted = patch.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != str(self.version):
            return _status(409, "the object has been modified; please apply your changes to the latest version")
        self.patches.append(patch)
        for key, value in patch.get("data", {}).items():
            self.edit(key, value)
        return 200, self._document()

    def _document(self) -> dict[str, Any]:
        metadata = {"name": self._name, "namespace": self._namespace, "resourceVersion": str(self.version)}
        return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": dict(self.data)}


def _status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
