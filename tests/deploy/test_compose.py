"""The compose file: everything it needs is there, and nothing is open that need not be."""

from __future__ import annotations

import re
from importlib.metadata import version
from urllib.parse import urlsplit

from crossfade.config.loading import load_config
from tests.deploy.description import (
    CONFIG,
    DEPLOY,
    compose_containers,
    environment_example,
    read_compose,
)

BASE = read_compose(DEPLOY / "compose.yaml")
CPU = read_compose(DEPLOY / "compose.cpu.yaml")
SERVICES = BASE["services"]


def test_it_runs_the_whole() -> None:
    assert set(SERVICES) == {"gateway", "onprem", "models", "redis", "dashboard", "compare", "ramp"}


def test_images_carry_the_version_of_the_project() -> None:
    ours = [container.image for container in compose_containers() if container.is_ours]

    assert {image.partition(":")[2] for image in ours} == {version("crossfade")}


def test_images_are_built_from_files_that_exist() -> None:
    builds = {name: body["build"] for name, body in SERVICES.items() if "build" in body}

    assert set(builds) == {"gateway", "onprem"}
    for name, build in builds.items():
        context = (DEPLOY / build["context"]).resolve()
        assert (context / build["dockerfile"]).is_file(), name
        assert (context / ".dockerignore").is_file(), name


def test_each_image_is_built_once_and_never_looked_for_elsewhere() -> None:
    ours = {name: body for name, body in SERVICES.items() if body["image"].startswith("crossfade-")}
    built = [body["image"] for body in ours.values() if "build" in body]

    assert sorted(built) == sorted({body["image"] for body in ours.values()})
    assert {body.get("pull_policy") for body in ours.values() if "build" not in body} == {"never"}


def test_only_redis_comes_from_elsewhere_and_is_pinned() -> None:
    foreign = {name: body["image"] for name, body in SERVICES.items() if not body["image"].startswith("crossfade-")}

    assert list(foreign) == ["redis"]
    assert re.fullmatch(r"redis:\d+\.\d+\.\d+-alpine", foreign["redis"])


def test_every_service_is_hardened() -> None:
    for name, body in SERVICES.items():
        assert body["read_only"] is True, name
        assert body["tmpfs"] == ["/tmp"], name
        assert body["cap_drop"] == ["ALL"], name
        assert body["security_opt"] == ["no-new-privileges:true"], name


def test_every_mounted_volume_is_declared_and_the_config_is_a_read_only_folder() -> None:
    for container in compose_containers():
        for target, source in container.mounts.items():
            if target == "/etc/crossfade":
                assert (DEPLOY / source).resolve() == CONFIG.parent
            else:
                assert source in BASE["volumes"], container.place
    writable = {
        name
        for name, body in SERVICES.items()
        for volume in body.get("volumes", ())
        if isinstance(volume, dict) and volume["type"] == "bind" and not volume.get("read_only", False)
    }
    assert writable == {"ramp"}, "it moves the toggle; nobody else may"


def test_the_driver_of_ramps_runs_when_asked_beside_the_gateway_that_it_watches() -> None:
    ramp, gateway = SERVICES["ramp"], SERVICES["gateway"]
    assert ramp["profiles"] == ["ramp"]
    assert ramp["restart"] == gateway["restart"]
    address = urlsplit(ramp["command"][ramp["command"].index("--gateway") + 1])
    assert address.hostname == "gateway"
    assert str(address.port) == load_config(CONFIG, {"CLOUD_KEY": "x"}).gateway.listen.rpartition(":")[2]
    state = {volume["target"] for volume in gateway["volumes"]} - {"/etc/crossfade"}
    assert state <= {volume["target"] for volume in ramp["volumes"]}, "the same record, audit and journal"


def test_every_variable_is_in_the_example_with_the_same_default() -> None:
    text = "".join((DEPLOY / name).read_text(encoding="utf-8") for name in ("compose.yaml", "compose.cpu.yaml"))
    optional = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", text))
    required = set(re.findall(r"\$\{([A-Z_]+):\?", text))
    example = environment_example()

    assert set(re.findall(r"\$\{?([A-Z_]+)", text)) == optional.keys() | required, "say what is used when it is not set"
    assert example == optional | dict.fromkeys(required, "")


def test_the_example_holds_no_secret_and_the_real_one_is_ignored() -> None:
    assert ".env" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {environment_example()[name] for name in ("CLOUD_KEY", "CROSSFADE_DASHBOARD_TOKEN")} == {""}


def test_only_the_gateway_is_published_beyond_this_machine() -> None:
    published = {name: body["ports"] for name, body in SERVICES.items() if "ports" in body}

    assert set(published) == {"gateway", "dashboard"}
    assert all(port.startswith("127.0.0.1:") for port in published["dashboard"])


def test_production_never_waits_for_the_model_server() -> None:
    waits = {"gateway"}
    while more := {name for waiting in waits for name in SERVICES[waiting].get("depends_on", {})} - waits:
        waits |= more

    assert waits == {"gateway", "redis"}


def test_jobs_run_only_when_asked_and_are_not_restarted() -> None:
    assert SERVICES["compare"]["profiles"] == ["jobs"]
    assert {SERVICES[name]["restart"] for name in ("compare", "models")} == {"no"}
    assert {SERVICES[name]["restart"] for name in ("gateway", "onprem", "redis", "dashboard")} == {"unless-stopped"}


def test_a_service_that_is_not_the_images_own_command_does_not_inherit_its_health_check() -> None:
    for name in ("models", "compare", "ramp"):
        assert SERVICES[name]["healthcheck"] == {"disable": True}, name
    assert "8088/" in " ".join(SERVICES["dashboard"]["healthcheck"]["test"])


def test_one_gpu_is_reserved_and_the_cpu_file_takes_it_back() -> None:
    reserved = SERVICES["onprem"]["deploy"]["resources"]["reservations"]["devices"]

    assert reserved == [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]
    assert re.search(
        r"^    deploy: !reset null$", (DEPLOY / "compose.cpu.yaml").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_cpu_file_changes_every_service_of_the_image_and_nothing_else() -> None:
    onprem = {name for name, body in SERVICES.items() if body["image"].startswith("crossfade-onprem:")}

    assert set(CPU["services"]) == onprem
    for name, body in CPU["services"].items():
        assert body["image"] == f"{SERVICES[name]['image']}-cpu"
    assert CPU["services"]["onprem"]["build"] == {"args": {"DEVICE": "cpu", "TORCH_INDEX_URL": "${TORCH_INDEX_URL:-}"}}
    on_cpu = ["cpu" if word == "cuda:0" else word for word in SERVICES["onprem"]["command"]]
    assert CPU["services"]["onprem"]["command"] == on_cpu != SERVICES["onprem"]["command"]
