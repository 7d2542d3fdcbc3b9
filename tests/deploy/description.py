"""What the files in ``deploy/`` say, read into plain values so that tests can hold it against the code.

Nothing here judges: a container is a container, whether an image, compose or Kubernetes describes it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONFIG = DEPLOY / "config" / "crossfade.yaml"
DOCKERFILES = sorted(DEPLOY.glob("*.Dockerfile"))
KUBERNETES = DEPLOY / "kubernetes"

_PROBE_URL = re.compile(r"http://127\.0\.0\.1:(\d+)(/[^'\"\s]*)")


@dataclass(frozen=True, slots=True)
class Probe:
    """One HTTP question of a health check, as it reaches the process."""

    port: int
    path: str


@dataclass(frozen=True, slots=True)
class Container:
    """One container, wherever it is described. ``args`` follow the image's entry point."""

    place: str
    image: str
    args: tuple[str, ...]
    environ: Mapping[str, str | None] = field(default_factory=dict)
    ports: frozenset[int] = frozenset()
    probes: tuple[Probe, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Tell whether its image is built from this repository."""
        return self.image.startswith("crossfade-")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, its continued lines joined."""

    name: str
    value: str


def read_dockerfile(path: Path) -> list[Instruction]:
    """Return the instructions in their order, without comments."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    words = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), value) for name, value in words]


def read_stages(path: Path) -> dict[str, list[Instruction]]:
    """Return each stage's instructions by its name; the last stage without one is called ``final``."""
    stages: dict[str, list[Instruction]] = {}
    for instruction in read_dockerfile(path):
        if instruction.name == "FROM":
            _, _, alias = instruction.value.partition(" AS ")
            stages[alias or "final"] = []
        if stages:
            stages[next(reversed(stages))].append(instruction)
    return stages


class _ComposeLoader(yaml.SafeLoader):
    """Reads Compose's own tag ``!reset`` as nothing, which is what it does."""


_ComposeLoader.add_constructor("!reset", lambda loader, node: None)


def read_compose(path: Path) -> dict[str, Any]:
    """Return a compose file as plain values, its anchors resolved."""
    document = yaml.load(path.read_text(encoding="utf-8"), _ComposeLoader)
    assert isinstance(document, dict)
    return document


def read_manifests(folder: Path) -> list[dict[str, Any]]:
    """Return every resource that the kustomization in ``folder`` lists as a file of its own."""
    listed = read_yaml(folder / "kustomization.yaml")["resources"]
    files = [folder / name for name in listed if (folder / name).is_file()]
    return [document for file in files for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def read_yaml(path: Path) -> Any:
    """Return the one document of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def image_containers() -> Iterator[Container]:
    """Yield what each image runs when nobody says otherwise, once for each stage that has a command."""
    for path in DOCKERFILES:
        everything = read_dockerfile(path)
        ports = frozenset(int(port) for item in everything if item.name == "EXPOSE" for port in item.value.split())
        health = " ".join(item.value for item in everything if item.name == "HEALTHCHECK")
        for stage, instructions in read_stages(path).items():
            for item in instructions:
                if item.name == "CMD":
                    args = tuple(yaml.safe_load(item.value))
                    image, place = f"crossfade-{path.stem}", f"{path.name}: {stage}"
                    yield Container(place, image, args, ports=ports, probes=_probes_in(health))


def compose_containers(name: str = "compose.yaml") -> Iterator[Container]:
    """Yield the services of a compose file."""
    for service, body in read_compose(DEPLOY / name)["services"].items():
        test = body.get("healthcheck", {}).get("test", [])
        yield Container(
            place=f"{name}: {service}",
            image=body["image"],
            args=tuple(body.get("command", ())),
            environ=body.get("environment", {}),
            ports=frozenset(int(port.rpartition(":")[2]) for port in body.get("ports", ())),
            probes=_probes_in(" ".join(test)),
            mounts=dict(_compose_mount(volume) for volume in body.get("volumes", ())),
        )


def pod_specs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the pod's spec of every workload of the base."""
    for manifest in read_manifests(KUBERNETES / "base"):
        place = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] == "Deployment":
            yield place, manifest["spec"]["template"]["spec"]
        elif manifest["kind"] == "CronJob":
            yield place, manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def pod_containers(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all containers of a pod, those that run first included."""
    return [*spec.get("initContainers", ()), *spec["containers"]]


def kubernetes_containers() -> Iterator[Container]:
    """Yield every container of the base."""
    for place, spec in pod_specs():
        sources = {volume["name"]: volume for volume in spec.get("volumes", ())}
        for body in pod_containers(spec):
            named = {port["name"]: port["containerPort"] for port in body.get("ports", ())}
            yield Container(
                place=f"{place}: {body['name']}",
                image=body["image"],
                args=tuple(body.get("args", ())),
                environ={item["name"]: item.get("value") for item in body.get("env", ())},
                ports=frozenset(named.values()),
                probes=tuple(
                    Probe(named[probe["httpGet"]["port"]], probe["httpGet"]["path"])
                    for key, probe in body.items()
                    if key.endswith("Probe") and "httpGet" in probe
                ),
                mounts={item["mountPath"]: str(sources[item["name"]]) for item in body.get("volumeMounts", ())},
            )


def all_containers() -> list[Container]:
    """Return every container that any file in ``deploy/`` describes, except what only adjusts another file."""
    return [*image_containers(), *compose_containers(), *kubernetes_containers()]


def environment_example() -> dict[str, str]:
    """Return the assignments of ``.env.example``."""
    text = (DEPLOY / ".env.example").read_text(encoding="utf-8")
    pairs = [word.partition("=") for word in shlex.split(text, comments=True)]
    return {name: value for name, _, value in pairs}


def _probes_in(text: str) -> tuple[Probe, ...]:
    return tuple(Probe(int(port), path) for port, path in _PROBE_URL.findall(text))


def _compose_mount(volume: str | Mapping[str, Any]) -> tuple[str, str]:
    if isinstance(volume, str):
        source, target = volume.split(":")[:2]
        return target, source
    return volume["target"], volume["source"]
