"""The images: small, pinned, not root, and built only from what they name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.description import DOCKERFILES, ROOT, Instruction, read_dockerfile, read_stages

each_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)


def _hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("hadolint")
    return subprocess.run([tool, "--no-color", "--failure-threshold", "style", path], capture_output=True, text=True)


def _values(instructions: list[Instruction], name: str) -> list[str]:
    return [item.value for item in instructions if item.name == name]


def test_there_is_one_image_with_torch_and_one_without() -> None:
    assert [path.stem for path in DOCKERFILES] == ["gateway", "onprem"]


@each_dockerfile
def test_hadolint_finds_nothing(path: Path) -> None:
    result = _hadolint(path)

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    faulty = tmp_path / "Dockerfile"
    faulty.write_text("FROM python:latest\nRUN pip install torch\n", encoding="utf-8")

    assert _hadolint(faulty).returncode == 1


@each_dockerfile
def test_base_images_are_pinned_to_a_patch_release(path: Path) -> None:
    instructions = read_dockerfile(path)
    arguments = dict(value.split("=", 1) for value in _values(instructions, "ARG") if "=" in value)
    bases = {value.split()[0] for value in _values(instructions, "FROM")} - set(read_stages(path))

    assert "python:${PYTHON_TAG}" in bases
    assert {base for base in bases if "${DEVICE}" not in base} == {"python:${PYTHON_TAG}"}
    assert re.fullmatch(r"3\.11\.\d+-slim-bookworm", arguments["PYTHON_TAG"])


@each_dockerfile
def test_what_is_copied_exists_and_nothing_else_reaches_the_build(path: Path) -> None:
    own = [value for value in _values(read_dockerfile(path), "COPY") if not value.startswith("--from")]
    copied = {word.rstrip("/") for value in own for word in value.split()[:-1]}
    admitted = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]

    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert admitted[0] == "*", "the list of what is admitted must begin with refusing everything"
    assert {line[1:] for line in admitted if line.startswith("!")} == copied


@each_dockerfile
def test_every_package_of_the_project_is_in_the_image(path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"packages\.find\]\ninclude = (\[.*\])", project)
    assert found is not None
    packages = {name.rstrip("*") for name in yaml.safe_load(found[1])}
    copied = " ".join(_values(read_dockerfile(path), "COPY"))

    assert {name for name in packages if f"{name}/ {name}/" not in copied} == set()


@each_dockerfile
def test_python_packages_are_installed_under_the_pins_and_from_no_named_host(path: Path) -> None:
    instructions = read_dockerfile(path)
    installs = [part for value in _values(instructions, "RUN") for part in value.split("&&") if " install " in part]
    pips = [part for part in installs if re.search(r"\bpip\b", part)]

    assert pips
    assert [part for part in pips if "requirements/constraints.txt" not in part and "second-step" not in part] == []
    assert re.findall(r"https?://(?!127\.0\.0\.1)[^\s'\"]+", path.read_text(encoding="utf-8")) == []
    assert dict(value.split("=", 1) for value in _values(instructions, "ARG") if "INDEX" in value) in (
        {},
        {"TORCH_INDEX_URL": '""'},
    )


@each_dockerfile
def test_it_runs_as_a_numbered_user_that_is_not_root(path: Path) -> None:
    stages = read_stages(path)
    users = [value for stage in stages.values() for value in _values(stage, "USER")]

    assert users == ["10001:10001"]
    assert "--uid 10001" in " ".join(_values(read_dockerfile(path), "RUN"))


@each_dockerfile
def test_a_folder_that_is_written_belongs_to_the_user_and_is_a_volume(path: Path) -> None:
    instructions = read_dockerfile(path)
    owned = re.findall(
        r"install --directory --owner=10001 --group=10001 \S+ (\S+)", " ".join(_values(instructions, "RUN"))
    )
    volumes = [folder for value in _values(instructions, "VOLUME") for folder in yaml.safe_load(value)]

    assert owned == volumes
    assert len(volumes) == 1


@each_dockerfile
def test_it_has_a_health_check_and_both_commands_in_exec_form(path: Path) -> None:
    instructions = read_dockerfile(path)

    assert len(_values(instructions, "HEALTHCHECK")) == 1
    assert _values(instructions, "ENTRYPOINT") == ['["crossfade"]']
    assert [value for value in _values(instructions, "CMD") if not isinstance(yaml.safe_load(value), list)] == []


def test_the_gateway_image_has_no_torch() -> None:
    runs = " ".join(_values(read_dockerfile(ROOT / "deploy" / "gateway.Dockerfile"), "RUN"))

    assert re.findall(r"torch|onprem|second-step", runs) == []
    assert '".[compare]"' in runs


def test_the_model_server_is_installed_in_two_steps_for_either_device() -> None:
    stages = read_stages(ROOT / "deploy" / "onprem.Dockerfile")
    build = " ".join(_values(stages["build"], "RUN"))

    assert {"torch-cuda", "torch-cpu", "onprem-cuda", "onprem-cpu"} <= set(stages)
    assert Instruction("ARG", "EXTRAS=onprem") in stages["build"]
    assert build.index('".[${EXTRAS}]"') < build.index(
        "--no-deps --no-build-isolation --requirement requirements/second-step.txt"
    )
    assert stages["final"] == [Instruction("FROM", "onprem-${DEVICE}")]


@pytest.mark.parametrize(("device", "flag"), [("cuda", "cuda:0"), ("cpu", "cpu")])
def test_each_variant_asks_for_its_own_device_and_never_for_whichever_is_there(device: str, flag: str) -> None:
    stage = read_stages(ROOT / "deploy" / "onprem.Dockerfile")[f"onprem-{device}"]
    command = yaml.safe_load(_values(stage, "CMD")[0])

    assert command[command.index("--device") + 1] == flag
