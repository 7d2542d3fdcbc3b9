"""Write the toggle in Kubernetes: patch the ConfigMap that holds the config file, through the API server.

The pod's service account does it (its token is read anew for each call, as the kubelet renews it). The patch carries
the ``resourceVersion`` that was read, so that the API server refuses it with 409 when somebody else was faster; then it
is made anew from what they wrote. Needs ``get`` and ``patch`` on this one ConfigMap. The kubelet brings the new file
into the pods within about a minute.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from crossfade.audit import write_line
from crossfade.config.loading import ConfigError, parse_config
from crossfade.config.toggle import audit_line, candidate_percent, edit_toggle, open_toggle_audit

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 10.0
_ATTEMPTS = 5
_MERGE = {"content-type": "application/merge-patch+json"}


class ConfigMapToggle:
    """The toggle in the key ``key`` of the ConfigMap ``name`` (``compare.ramps.ToggleWriter``)."""

    def __init__(self, client: httpx.Client, token: Path, namespace: str, name: str, key: str, audit: Path) -> None:
        self._client, self._token, self._key, self._audit = client, token, key, audit
        self._name = f"ConfigMap {namespace}/{name}"
        self._url = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"

    @classmethod
    def in_cluster(cls, name: str, key: str, audit: Path) -> ConfigMapToggle:
        """Return the toggle of a ConfigMap in this pod's own namespace. Raises ``ConfigError`` outside of a cluster."""
        try:
            host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
            namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
            trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        except (KeyError, OSError) as error:
            raise ConfigError(f"--configmap works in a pod with a service account only: {error} is missing") from error
        address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        client = httpx.Client(base_url=address, verify=trusted, timeout=TIMEOUT_S, trust_env=False)
        return cls(client, ACCOUNT / "token", namespace, name, key, audit)

    def percent(self, route: str) -> int:
        """Return what the candidate serves by the ConfigMap. Raises ``ConfigError``."""
        text, _ = self._read()
        return candidate_percent(parse_config(text, name=self._name, secrets=False), route)

    def move(self, route: str, percent: int, *, who: str, now: datetime) -> None:
        """Give the candidate so much. Raises ``ConfigError``, having changed nothing."""
        for _ in range(_ATTEMPTS):
            text, version = self._read()
            config = parse_config(text, name=self._name, secrets=False)
            candidate = next((r.candidate for r in config.routes if r.name == route), "")
            edited, change = edit_toggle(text, route, [f"{candidate}={percent}"], name=self._name)
            with open_toggle_audit(self._audit) as audit:
                written = change.before == change.after or self._patch(edited, version)
                if written:
                    write_line(audit, audit_line(change, who, now))
                    return
        raise ConfigError(f"{self._name} was changed by others {_ATTEMPTS} times while it was being written; try again")

    def _read(self) -> tuple[str, str]:
        """Return the config file's text and the version of the ConfigMap."""
        found = self._call("GET")
        if found.status_code != 200:
            raise ConfigError(f"{self._name} cannot be read: {_said(found)}")
        document = _document(found)
        text = (document.get("data") or {}).get(self._key)
        if not isinstance(text, str):
            raise ConfigError(f"{self._name} has no key {self._key}")
        return text, str(document["metadata"]["resourceVersion"])

    def _patch(self, text: str, version: str) -> bool:
        """Return false where somebody else was faster."""
        patch = {"metadata": {"resourceVersion": version}, "data": {self._key: text}}
        answer = self._call("PATCH", patch)
        if answer.status_code not in (200, 409):
            raise ConfigError(f"{self._name} cannot be changed: {_said(answer)}")
        return answer.status_code == 200

    def _call(self, method: str, patch: Mapping[str, object] | None = None) -> httpx.Response:
        try:
            fields = {"authorization": f"Bearer {self._token.read_text(encoding='utf-8').strip()}"}
            if patch is None:
                return self._client.request(method, self._url, headers=fields)
            return self._client.request(method, self._url, headers={**fields, **_MERGE}, json=patch)
        except (OSError, httpx.HTTPError) as error:
            raise ConfigError(f"the API server cannot be asked for {self._name}: {type(error).__name__}") from error


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _said(answer: httpx.Response) -> str:
    """Return what the API server says in its Status object."""
    return f"{answer.status_code} {str(_document(answer).get('message', ''))[:300]}".strip()
