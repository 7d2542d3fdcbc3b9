"""What ``deploy/`` says and what the code does: commands, flags, ports, paths and environment names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main

from compare.verdict import Decision
from crossfade.cli import app
from crossfade.config.loading import ConfigError, load_config
from crossfade.config.model import Config
from gateway.mirroring import MIRROR_DRAIN_S
from gateway.server import DRAIN_S
from onprem_backend.settings import Settings, settings_from_environment
from shadow.mirror import SAVE_GRACE_S
from tests.deploy.description import (
    CONFIG,
    DEPLOY,
    Container,
    all_containers,
    compose_containers,
    environment_example,
    image_containers,
    kubernetes_containers,
    pod_specs,
    read_compose,
    read_manifests,
)

SECRETS = {"CLOUD_KEY": "of-a-test"}
IMAGES = list(image_containers())
DEPLOYED = [item for item in [*compose_containers(), *kubernetes_containers()] if item.is_ours]
CONTAINERS = [*IMAGES, *DEPLOYED]
SERVERS = [item for item in CONTAINERS if item.args[0] in {"gateway", "onprem", "dashboard"}]


def _each(containers: list[Container]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("container", containers, ids=lambda item: item.place)


def _parse(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the command and its parameters as the command line itself reads ``words``; runs nothing."""
    node: Any = typer.main.get_command(app)
    path: tuple[str, ...] = ()
    rest = list(words)
    while hasattr(node, "commands"):
        path += (rest.pop(0),)
        node = node.commands[path[-1]]
    return path, dict(node.make_context(path[-1], rest).params)


def _running(*command: str) -> list[Container]:
    return [item for item in CONTAINERS if item.args[: len(command)] == command]


def _config() -> Config:
    return load_config(CONFIG, SECRETS)


@_each(CONTAINERS)
def test_the_command_line_knows_every_command_and_flag(container: Container) -> None:
    path, _ = _parse(container.args)

    assert path in {("gateway",), ("onprem",), ("dashboard",), ("compare",), ("models", "fetch"), ("ramp", "run")}


@pytest.mark.parametrize("words", [["gateway", "--konfig", "x"], ["compare", "--html"], ["onprem", "--port", "many"]])
def test_a_flag_that_does_not_exist_would_be_seen(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such option|requires an argument|valid integer"):
        _parse(words)


def test_the_example_commands_of_the_readme_are_understood() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    written = re.findall(r"^crossfade (.+)$|`crossfade ([^`]+)`", readme, re.MULTILINE)
    commands = [_parse((block or inline).split())[0] for block, inline in written]

    assert set(commands) == {("models", "fetch"), ("models", "list"), ("ramp", "run")}


def test_the_config_is_valid_and_refused_with_an_unknown_key(tmp_path: Path) -> None:
    assert {route.name for route in _config().routes} == {
        "remove-background",
        "face-blur",
        "classify",
        "restore",
        "erase",
    }

    faulty = tmp_path / "crossfade.yaml"
    faulty.write_text(
        CONFIG.read_text(encoding="utf-8").replace("keep_bodies_days", "keep_body_days"), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="keep_body"):
        load_config(faulty, SECRETS)


def test_every_route_starts_with_the_cloud_and_mirrors_to_the_machines_one_owns() -> None:
    for route in _config().routes:
        assert dict(route.split) == {"cloud": 100}, route.name
        assert (route.baseline, route.candidate) == ("cloud", "onprem")
        assert route.shadow.percent > 0


@_each([item for item in DEPLOYED if "--config" in item.args])
def test_the_config_is_mounted_where_it_is_looked_for(container: Container) -> None:
    path = _parse(container.args)[1]["config"]

    assert str(path.parent) in container.mounts
    assert path.name == CONFIG.name


@_each(DEPLOYED)
def test_what_is_written_lies_in_a_mounted_volume(container: Container) -> None:
    _, parameters = _parse(container.args)
    config = _config()
    of_config = [Path(config.store.url.removeprefix("sqlite:///")), Path(config.store.bodies), Path(config.audit)]
    of_command = [parameters[name] for name in ("html_file", "json_file", "models") if name in parameters]
    written = [*of_command, *(of_config if "config" in parameters else [])]

    assert written
    for path in written:
        assert any(path.is_relative_to(mount) for mount in container.mounts if mount != "/etc/crossfade"), path


@_each(DEPLOYED)
def test_the_cloud_key_is_given_to_the_gateway_and_to_nobody_else(container: Container) -> None:
    named = set(re.findall(r"\$\{(\w+)\}", CONFIG.read_text(encoding="utf-8")))

    assert named == set(SECRETS)
    assert (container.environ.keys() & named) == (named if container.args[0] == "gateway" else set())


@_each(SERVERS)
def test_a_server_listens_beyond_loopback_where_its_ports_and_probes_say(container: Container) -> None:
    path, parameters = _parse(container.args)
    host, port = _config().gateway.address if path == ("gateway",) else (parameters["host"], parameters["port"])

    assert host == "0.0.0.0"
    assert {probe.port for probe in container.probes} <= {port}
    assert port in container.ports or container.image.startswith("crossfade-onprem")
    if container.place.startswith("Deployment"):
        assert container.ports == {port}


@_each([item for item in SERVERS if item not in DEPLOYED or item.place.startswith("Deployment")])
def test_a_server_has_a_health_check(container: Container) -> None:
    assert container.probes


def test_backends_and_redis_have_the_names_and_ports_of_their_services() -> None:
    config = _config()
    services = {
        item["metadata"]["name"]: {port["port"] for port in item["spec"]["ports"]}
        for item in read_manifests(DEPLOY / "kubernetes" / "base")
        if item["kind"] == "Service"
    }
    compose = read_compose(DEPLOY / "compose.yaml")["services"]
    inner = [*config.backends["onprem"].servers, config.limits.storage.get_secret_value()]

    for url in map(urlsplit, inner):
        assert url.hostname in compose
        assert url.hostname is not None
        assert services[url.hostname] == {url.port}
    assert {_parse(item.args)[1]["port"] for item in _running("onprem")} == {urlsplit(inner[0]).port}


def test_the_cloud_is_a_place_that_cannot_exist_until_somebody_fills_it_in() -> None:
    assert [urlsplit(server).hostname for server in _config().backends["cloud"].servers] == ["example-endpoint.invalid"]


def test_the_dashboard_has_a_token_wherever_it_leaves_loopback() -> None:
    assert len(_running("dashboard")) == 2
    for container in _running("dashboard"):
        assert "CROSSFADE_DASHBOARD_TOKEN" in container.environ, container.place


def test_the_gateway_is_given_the_time_that_its_drain_may_take() -> None:
    drain_s = DRAIN_S + MIRROR_DRAIN_S + SAVE_GRACE_S
    compose_s = read_compose(DEPLOY / "compose.yaml")["services"]["gateway"]["stop_grace_period"]
    [pod] = [spec for place, spec in pod_specs() if place == "Deployment gateway"]

    assert pod["terminationGracePeriodSeconds"] > drain_s
    assert int(compose_s.removesuffix("s")) > drain_s


def _settings(environ: dict[str, str], parameters: dict[str, Any]) -> Settings:
    return settings_from_environment(
        environ, models_dir=parameters["models"], device=parameters["device"], engine=parameters["engine"]
    )


@_each(_running("onprem"))
def test_the_model_server_accepts_its_flags(container: Container) -> None:
    _, parameters = _parse(container.args)
    settings = _settings({}, parameters)

    assert settings.device in {"cuda:0", "cpu"}
    assert settings.engine == "torch"
    assert str(settings.models_dir) == "/models"


def test_every_function_switch_is_one_that_the_model_server_reads() -> None:
    switches = {name: value for name, value in environment_example().items() if name.startswith("ENABLE_")}
    _, parameters = _parse(_running("onprem")[0].args)
    all_on = _settings(switches, parameters)

    assert len(switches) == 5
    for name in switches:
        assert _settings(switches | {name: "0"}, parameters) != all_on, name
    for container in [*compose_containers(), *kubernetes_containers()]:
        if container.args[0] == "onprem":
            assert container.environ.keys() == switches.keys(), container.place
    described = [item for item in kubernetes_containers() if item.args[0] == "onprem"]
    assert [dict(item.environ) for item in described] == [switches]


def test_no_container_gets_a_variable_that_nothing_reads() -> None:
    known = set(SECRETS) | {name for name in environment_example() if name.startswith("ENABLE_")}
    given = {name for container in all_containers() for name in container.environ}

    assert given == known | {"CROSSFADE_DASHBOARD_TOKEN"}


def test_a_verdict_is_not_retried_and_a_fault_is() -> None:
    [job] = [item for item in read_manifests(DEPLOY / "kubernetes" / "base") if item["kind"] == "CronJob"]
    spec = job["spec"]["jobTemplate"]["spec"]
    [final] = [rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    verdicts = {decision.exit_code for decision in Decision} - {0}

    assert final["containerName"] in {body["name"] for body in spec["template"]["spec"]["containers"]}
    assert set(final["values"]) == verdicts | {2}, "2 is wrong usage; 1, a fault, is worth another try"
    assert spec["backoffLimit"] > 0
