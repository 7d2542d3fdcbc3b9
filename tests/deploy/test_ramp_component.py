"""The component that adds the driver of ramps: what it may do, where its token is, and that its command exists."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from crossfade.cli import app
from crossfade.config.configmap import ACCOUNT
from tests.deploy.description import DEPLOY, read_yaml

FOLDER = DEPLOY / "kubernetes" / "ramp"
OLDEST_SUPPORTED = "1.31"


def account() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "account.yaml").read_text()))


def driver() -> dict[str, Any]:
    spec: dict[str, Any] = read_yaml(FOLDER / "driver.yaml")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("manifest", account(), ids=lambda manifest: manifest["kind"])
def test_every_resource_is_valid(manifest: dict[str, Any]) -> None:
    assert kubernetes_validate.validate(manifest, OLDEST_SUPPORTED, strict=True).startswith(OLDEST_SUPPORTED)


def test_the_account_may_touch_one_config_map_only() -> None:
    (rule,) = next(each for each in account() if each["kind"] == "Role")["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["crossfade-config"],
        "verbs": ["get", "patch"],
    }
    (generated,) = read_yaml(DEPLOY / "config" / "kustomization.yaml")["configMapGenerator"]
    assert (generated["name"], generated["files"]) == ("crossfade-config", ["crossfade.yaml"])


def test_the_token_is_where_the_writer_looks_and_not_in_the_gateway() -> None:
    mounted = {c["name"]: {m["name"]: m["mountPath"] for m in c["volumeMounts"]} for c in driver()["containers"]}
    assert set(mounted) == {"ramp", "dashboard"}
    assert {mounts["account"] for mounts in mounted.values()} == {str(ACCOUNT)}
    (volume,) = driver()["volumes"]
    files = [item["path"] for source in volume["projected"]["sources"] for item in _items(source)]
    assert sorted(files) == ["ca.crt", "namespace", "token"]


def _items(source: dict[str, Any]) -> list[dict[str, Any]]:
    if "serviceAccountToken" in source:
        return [source["serviceAccountToken"]]
    found: list[dict[str, Any]] = next(iter(source.values()))["items"]
    return found


def test_the_drivers_command_is_one_of_ours() -> None:
    arguments = next(c for c in driver()["containers"] if c["name"] == "ramp")["args"]
    assert arguments[:2] == ["ramp", "run"]
    told = CliRunner().invoke(app, [*arguments[:2], "--help"])
    assert told.exit_code == 0
    assert all(word in told.output for word in arguments if word.startswith("--"))
