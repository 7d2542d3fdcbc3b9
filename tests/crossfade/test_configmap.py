"""The toggle in Kubernetes, against a server that speaks the API of one ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from crossfade.config.configmap import ConfigMapToggle
from crossfade.config.loading import ConfigError
from tests.crossfade.test_config import GOOD
from tests.fakes.kubernetes_api import KubernetesApi

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY, ROUTE = "crossfade.yaml", "remove-background"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with KubernetesApi("shop", "crossfade-config", {KEY: "# ours\n" + GOOD, "other": "kept"}, "t0ken") as server:
        yield server


@pytest.fixture
def toggle(api: KubernetesApi, tmp_path: Path) -> Iterator[ConfigMapToggle]:
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    with httpx.Client(base_url=api.url, trust_env=False) as client:
        yield ConfigMapToggle(client, token, "shop", "crossfade-config", KEY, tmp_path / "audit.jsonl")


def test_a_move_patches_one_value_and_leaves_an_audit_line(
    api: KubernetesApi, toggle: ConfigMapToggle, tmp_path: Path
) -> None:
    before = api.data[KEY]
    assert toggle.percent(ROUTE) == 0
    toggle.move(ROUTE, 5, who="ramp, by verdict", now=NOW)
    assert api.data == {KEY: before.replace("active: cloud", "active: {cloud: 95, onprem: 5}"), "other": "kept"}
    assert toggle.percent(ROUTE) == 5
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert (line["who"], line["before"], line["after"]) == (
        "ramp, by verdict",
        {"cloud": 100},
        {"cloud": 95, "onprem": 5},
    )


def test_a_change_that_is_one_already_patches_nothing(api: KubernetesApi, toggle: ConfigMapToggle) -> None:
    toggle.move(ROUTE, 0, who="ada", now=NOW)
    assert api.patches == []


def test_who_was_faster_is_not_overwritten(api: KubernetesApi, toggle: ConfigMapToggle) -> None:
    theirs = [api.data[KEY].replace("# ours", "# theirs")]
    api.before_patch = lambda: api.edit(KEY, theirs.pop()) if theirs else None
    toggle.move(ROUTE, 25, who="ada", now=NOW)
    assert api.data[KEY].startswith("# theirs")
    assert toggle.percent(ROUTE) == 25
    assert len(api.patches) == 1


def test_somebody_who_is_always_faster_is_told(api: KubernetesApi, toggle: ConfigMapToggle) -> None:
    api.before_patch = lambda: api.edit("other", "changed again")
    with pytest.raises(ConfigError, match="changed by others 5 times"):
        toggle.move(ROUTE, 25, who="ada", now=NOW)
    assert toggle.percent(ROUTE) == 0


def test_a_right_that_is_missing_is_named(api: KubernetesApi, toggle: ConfigMapToggle, tmp_path: Path) -> None:
    api.allowed = {"get"}
    with pytest.raises(ConfigError, match=r"cannot be changed: 403 .*cannot patch"):
        toggle.move(ROUTE, 5, who="ada", now=NOW)
    assert (tmp_path / "audit.jsonl").read_text() == ""
    api.token = "another"
    with pytest.raises(ConfigError, match="cannot be read: 401"):
        toggle.percent(ROUTE)


def test_a_token_that_was_renewed_is_used(api: KubernetesApi, toggle: ConfigMapToggle, tmp_path: Path) -> None:
    api.token = "renewed"
    (tmp_path / "token").write_text("renewed")
    assert toggle.percent(ROUTE) == 0


def test_a_key_that_is_not_there_is_named(api: KubernetesApi, toggle: ConfigMapToggle) -> None:
    del api.data[KEY]
    with pytest.raises(ConfigError, match=r"has no key crossfade\.yaml"):
        toggle.percent(ROUTE)


def test_a_server_that_is_gone_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with httpx.Client(base_url="http://127.0.0.1:1", trust_env=False) as client:
        toggle = ConfigMapToggle(client, tmp_path / "token", "n", "c", KEY, tmp_path / "audit.jsonl")
        with pytest.raises(ConfigError, match="cannot be asked for ConfigMap n/c: ConnectError"):
            toggle.percent(ROUTE)


def test_outside_of_a_cluster_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="in a pod with a service account only"):
        ConfigMapToggle.in_cluster("c", KEY, tmp_path / "audit.jsonl")
