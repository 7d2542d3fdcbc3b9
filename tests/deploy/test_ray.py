"""The Ray overlay: Ray understands its config, the app takes its arguments, and it fits the base around it.

Its fields were held against the operator's own CRD by hand; it was never applied to a cluster.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from tests.deploy.description import KUBERNETES, environment_example, read_manifests, read_yaml

FOLDER = KUBERNETES / "ray"
SPEC = read_yaml(FOLDER / "rayservice.yaml")["spec"]
CLUSTER = SPEC["rayClusterConfig"]
HEAD, [WORKER] = CLUSTER["headGroupSpec"], CLUSTER["workerGroupSpecs"]
PODS: dict[str, dict[str, Any]] = {"head": HEAD["template"], "worker": WORKER["template"]}
CONFIG = yaml.safe_load(SPEC["serveConfigV2"])
[APPLICATION] = CONFIG["applications"]
[DEPLOYMENT] = APPLICATION["deployments"]


def test_ray_understands_the_serve_config_and_no_key_is_lost() -> None:
    understood = ServeDeploySchema.model_validate(CONFIG).model_dump(exclude_unset=True, mode="json")
    assert understood == CONFIG


def test_the_app_builds_with_the_manifests_arguments_and_their_deployment() -> None:
    module, _, function = APPLICATION["import_path"].partition(":")
    application = getattr(importlib.import_module(module), function)(APPLICATION["args"])
    assert application._bound_deployment.name == DEPLOYMENT["name"]
    assert (
        application._bound_deployment.max_ongoing_requests > DEPLOYMENT["autoscaling_config"]["target_ongoing_requests"]
    )
    switches = {name: value for name, value in APPLICATION["args"].items() if name.startswith("ENABLE_")}
    assert switches.keys() == {name for name in environment_example() if name.startswith("ENABLE_")}


def test_all_replicas_fit_on_the_workers() -> None:
    [worker] = PODS["worker"]["spec"]["containers"]
    wanted, has = DEPLOYMENT["ray_actor_options"], worker["resources"]["requests"]
    most = DEPLOYMENT["autoscaling_config"]["max_replicas"]
    assert most * wanted["num_gpus"] <= WORKER["maxReplicas"] * has["nvidia.com/gpu"]
    assert most * wanted["num_cpus"] <= WORKER["maxReplicas"] * int(has["cpu"])
    assert HEAD["rayStartParams"]["num-cpus"] == "0"


def test_the_gateway_finds_it_where_the_base_has_its_own() -> None:
    port = CONFIG["http_options"]["port"]
    [base] = [
        item
        for item in read_manifests(KUBERNETES / "base")
        if (item["kind"], item["metadata"]["name"]) == ("Service", "onprem")
    ]
    service = SPEC["serveService"]
    assert service["metadata"]["name"] == base["metadata"]["name"]
    assert [item["port"] for item in service["spec"]["ports"]] == [item["port"] for item in base["spec"]["ports"]]
    assert [item["targetPort"] for item in service["spec"]["ports"]] == [port]
    for pod in PODS.values():
        named = {item["name"]: item["containerPort"] for item in pod["spec"]["containers"][0]["ports"]}
        assert named["serve"] == port


def test_the_overlay_takes_away_what_the_base_serves_with() -> None:
    overlay = read_yaml(FOLDER / "kustomization.yaml")
    removed = [read_yaml(FOLDER / item["path"]) for item in overlay["patches"]]
    assert {item.pop("$patch") for item in removed} == {"delete"}
    assert {item["kind"] for item in removed} == {"Deployment", "Service", "PersistentVolumeClaim"}
    in_base = {(item["kind"], item["metadata"]["name"]) for item in read_manifests(KUBERNETES / "base")}
    assert {(item["kind"], item["metadata"]["name"]) for item in removed} <= in_base
    assert overlay["images"] == [{"name": "crossfade-onprem", "newTag": f"{version('crossfade')}-ray"}]


@pytest.mark.parametrize("name", PODS)
def test_its_pods_are_valid_hardened_and_send_nothing_home(name: str) -> None:
    template = PODS[name]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": name},
        "spec": template["spec"],
    }
    assert kubernetes_validate.validate(pod, "1.31", strict=True).startswith("1.31")
    security = template["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {item["name"] for item in template["spec"]["volumes"]}
    for body in [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]:
        assert body["securityContext"]["readOnlyRootFilesystem"] is True
        assert body["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in body["resources"]["limits"]
        assert {item["name"] for item in body["volumeMounts"]} <= volumes
    [server] = template["spec"]["containers"]
    assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in server["env"]


def test_the_cluster_is_of_the_pinned_ray_asks_for_a_token_and_hears_only_its_own() -> None:
    assert CLUSTER["rayVersion"] == version("ray")
    assert CLUSTER["authOptions"] == {"mode": "token"}
    policy = read_yaml(FOLDER / "network.yaml")["spec"]
    label = policy["podSelector"]["matchLabels"]
    assert all(pod["metadata"]["labels"] == label for pod in PODS.values())
    from_gateway, from_cluster = policy["ingress"]
    assert from_gateway["ports"] == [{"port": "serve"}]
    assert from_cluster["from"][0] == {"podSelector": {"matchLabels": label}}
