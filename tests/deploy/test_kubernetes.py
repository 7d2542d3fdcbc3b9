"""The Kubernetes base: valid, wired together, hardened, and able to take the toggle without a restart."""

from __future__ import annotations

import copy
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.description import (
    CONFIG,
    DEPLOY,
    KUBERNETES,
    compose_containers,
    kubernetes_containers,
    pod_containers,
    pod_specs,
    read_manifests,
    read_yaml,
)

MANIFESTS = read_manifests(KUBERNETES / "base")
KUSTOMIZATIONS = sorted(DEPLOY.rglob("kustomization.yaml"))
OLDEST_SUPPORTED = "1.31"
KNOWN_FIELDS = {
    *("apiVersion", "kind", "namespace", "labels", "resources", "images", "patches"),
    *("configMapGenerator", "generatorOptions"),
}

KINDS = {
    ("Kustomization", "kustomize.config.k8s.io/v1beta1"),
    ("Component", "kustomize.config.k8s.io/v1alpha1"),  # kustomize has no later version of it
}

each_pod = pytest.mark.parametrize(
    ("place", "spec"), list(pod_specs()), ids=lambda value: value if isinstance(value, str) else ""
)


def _one(kind: str, name: str) -> dict[str, Any]:
    [found] = [item for item in MANIFESTS if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def _names(kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in MANIFESTS if item["kind"] == kind}


@pytest.mark.parametrize("release", [OLDEST_SUPPORTED, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_manifest_is_valid(manifest: dict[str, Any], release: str) -> None:
    assert release.startswith(kubernetes_validate.validate(manifest, release, strict=True))


def test_validation_refuses_a_key_that_does_not_exist() -> None:
    faulty = copy.deepcopy(_one("Deployment", "gateway"))
    faulty["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}

    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(faulty, OLDEST_SUPPORTED, strict=True)


def test_the_base_has_all_parts() -> None:
    assert _names("Deployment") == {"gateway", "onprem", "redis"}
    assert _names("Service") == {"gateway", "dashboard", "onprem", "redis"}
    assert _names("CronJob") == {"compare"}


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_kustomization_names_only_what_exists(path: Path) -> None:
    body = read_yaml(path)
    patches = [item["path"] for item in body.get("patches", ())]
    generated = [name for item in body.get("configMapGenerator", ()) for name in item["files"]]

    assert set(body) <= KNOWN_FIELDS
    assert (body["kind"], body["apiVersion"]) in KINDS
    for name in [*body.get("resources", ()), *patches, *generated]:
        target = path.parent / name
        assert target.is_file() or (target / "kustomization.yaml").is_file(), name
    for name in [*patches, *generated]:
        assert (path.parent / name).resolve().is_relative_to(path.parent), "kustomize reads no file outside its folder"


def test_every_manifest_is_listed() -> None:
    for path in KUSTOMIZATIONS:
        if path.is_relative_to(KUBERNETES):
            body = read_yaml(path)
            listed = {*body["resources"], *(item["path"] for item in body.get("patches", ()))}
            assert {item.name for item in path.parent.glob("*.yaml")} - listed == {"kustomization.yaml"}, path


def test_the_config_map_is_the_one_config_and_keeps_its_name_when_the_toggle_turns() -> None:
    body = read_yaml(CONFIG.with_name("kustomization.yaml"))

    assert body["configMapGenerator"] == [{"name": "crossfade-config", "files": [CONFIG.name]}]
    assert body["generatorOptions"] == {"disableNameSuffixHash": True}
    assert "../../config" in read_yaml(KUBERNETES / "base" / "kustomization.yaml")["resources"]


def test_no_mount_uses_a_sub_path_because_the_toggle_would_never_arrive() -> None:
    mounts = [mount for _, spec in pod_specs() for body in pod_containers(spec) for mount in body["volumeMounts"]]

    assert "/etc/crossfade" in {mount["mountPath"] for mount in mounts}
    assert [mount for mount in mounts if "subPath" in mount or "subPathExpr" in mount] == []


def test_selectors_find_their_pods_and_services_their_ports() -> None:
    labels = {}
    for kind in ("Deployment", "CronJob"):
        for name in _names(kind):
            spec = _one(kind, name)["spec"]
            template = spec.get("jobTemplate", {}).get("spec", spec)["template"]
            labels[name] = template["metadata"]["labels"]
            if kind == "Deployment":
                assert spec["selector"]["matchLabels"] == labels[name]
    for name in _names("Service"):
        service = _one("Service", name)["spec"]
        [owner] = [pod for pod, has in labels.items() if has == service["selector"]]
        containers = _one("Deployment", owner)["spec"]["template"]["spec"]["containers"]
        named = {port["name"] for body in containers for port in body["ports"]}
        assert {port["targetPort"] for port in service["ports"]} <= named, name


def test_policies_admit_the_gateway_alone_to_what_asks_nobody_who_they_are() -> None:
    gateway = {"matchLabels": {"app.kubernetes.io/name": "gateway"}}
    guarded = {}
    for name in _names("NetworkPolicy"):
        spec = _one("NetworkPolicy", name)["spec"]
        assert [rule["from"] for rule in spec["ingress"]] == [[{"podSelector": gateway}]]
        pod = spec["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        guarded[pod] = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
        [service] = _one("Service", pod)["spec"]["ports"]
        assert guarded[pod] == [service["targetPort"]]
    assert set(guarded) == {"onprem", "redis"}


@each_pod
def test_volumes_are_there_and_what_is_mounted_is_declared(place: str, spec: dict[str, Any]) -> None:
    declared = {volume["name"] for volume in spec["volumes"]}
    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume
    }
    config_maps = {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    mounted = {mount["name"] for body in pod_containers(spec) for mount in body["volumeMounts"]}

    assert mounted == declared, place
    assert claims <= _names("PersistentVolumeClaim")
    assert config_maps <= {"crossfade-config"}


@each_pod
def test_pod_meets_the_restricted_standard(place: str, spec: dict[str, Any]) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for body in pod_containers(spec):
        assert body["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, body["name"]
        assert any(mount["mountPath"] == "/tmp" for mount in body["volumeMounts"]), body["name"]
    labels = _one("Namespace", "crossfade")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@each_pod
def test_memory_is_bounded_and_temporary_files_too(place: str, spec: dict[str, Any]) -> None:
    for body in pod_containers(spec):
        assert {"cpu", "memory"} <= body["resources"]["requests"].keys(), body["name"]
        assert "memory" in body["resources"]["limits"], body["name"]
    assert [volume for volume in spec["volumes"] if volume.get("emptyDir") == {}] == []


@pytest.mark.parametrize("name", ["gateway", "onprem", "redis"])
def test_a_server_has_probes(name: str) -> None:
    for body in _one("Deployment", name)["spec"]["template"]["spec"]["containers"]:
        assert {"startupProbe", "livenessProbe"} <= body.keys(), body["name"]
    first = _one("Deployment", name)["spec"]["template"]["spec"]["containers"][0]
    assert "readinessProbe" in first


def test_a_dashboard_that_is_busy_does_not_take_the_gateway_out_of_service() -> None:
    containers = _one("Deployment", "gateway")["spec"]["template"]["spec"]["containers"]

    assert [body["name"] for body in containers if "readinessProbe" in body] == ["gateway"]


def test_sqlite_has_one_writer_pod_and_all_its_readers_on_the_same_host() -> None:
    gateway = _one("Deployment", "gateway")["spec"]
    users = {place for place, spec in pod_specs() if "gateway-state" in str(spec["volumes"])}
    compare = dict(pod_specs())["CronJob compare"]
    [term] = compare["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    assert (gateway["replicas"], gateway["strategy"]) == (1, {"type": "Recreate"})
    assert users == {"Deployment gateway", "CronJob compare"}
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"] == gateway["selector"]


def test_the_model_server_gets_one_gpu_and_its_models_first() -> None:
    spec = _one("Deployment", "onprem")["spec"]["template"]["spec"]
    [server] = spec["containers"]
    [models] = spec["initContainers"]

    assert server["resources"]["limits"]["nvidia.com/gpu"] == server["resources"]["requests"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in str(models["resources"])
    assert models["args"][:2] == ["models", "fetch"]


def test_the_cpu_overlay_takes_the_gpu_away_and_changes_nothing_else() -> None:
    overlay = read_yaml(KUBERNETES / "cpu" / "kustomization.yaml")
    patch = read_yaml(KUBERNETES / "cpu" / "onprem.yaml")
    [server] = _one("Deployment", "onprem")["spec"]["template"]["spec"]["containers"]
    on_cpu = ["cpu" if word == "cuda:0" else word for word in server["args"]]

    assert overlay["images"] == [{"name": "crossfade-onprem", "newTag": f"{version('crossfade')}-cpu"}]
    assert patch == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "onprem", "namespace": "crossfade"},
        "spec": {
            "template": {
                "spec": {
                    "tolerations": None,
                    "containers": [
                        {
                            "name": server["name"],
                            "args": on_cpu,
                            "resources": {"requests": {"nvidia.com/gpu": None}, "limits": {"nvidia.com/gpu": None}},
                        }
                    ],
                }
            }
        },
    }


def test_secrets_come_from_the_one_secret_that_the_readme_tells_to_create() -> None:
    references = [
        item["valueFrom"]["secretKeyRef"]
        for _, spec in pod_specs()
        for body in pod_containers(spec)
        for item in body.get("env", ())
        if "valueFrom" in item
    ]
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")

    assert {item["name"] for item in references} == {"crossfade-secrets"}
    assert "create secret generic crossfade-secrets" in readme
    assert {item["key"] for item in references} == set(re.findall(r"--from-literal=(\w+)=", readme))


def test_the_overlay_in_the_readme_fits_the_base() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    overlay = yaml.safe_load(block)
    ours = {item.image.partition(":")[0] for item in kubernetes_containers() if item.is_ours}
    [generator] = overlay["configMapGenerator"]

    assert set(overlay) <= KNOWN_FIELDS
    assert {image["name"] for image in overlay["images"]} == ours
    assert (generator["name"], generator["behavior"]) == ("crossfade-config", "replace")
    assert generator["options"] == {"disableNameSuffixHash": True}


def test_both_ways_of_running_use_the_same_images() -> None:
    def images(containers: Any) -> set[str]:
        return {container.image for container in containers}

    assert images(kubernetes_containers()) == images(compose_containers())


def test_every_file_that_the_readme_names_exists() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:deploy|config|requirements)/[\w./-]*\w", readme))

    assert {name for name in named if not any((base / name).exists() for base in (DEPLOY, DEPLOY.parent))} == set()
