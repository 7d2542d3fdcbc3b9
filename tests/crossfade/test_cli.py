"""The command line: help that comes at once, errors that say what to do, exit codes that mean something."""

from __future__ import annotations

import hashlib
import json
import re
import resource
import socket
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from crossfade.cli import app
from crossfade.config.loading import parse_config
from crossfade.config.model import Config
from tests.crossfade.test_config import GOOD

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "PIL", "scipy", "skimage", "httpx", "starlette", "sqlalchemy", "pydantic")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "crossfade.yaml"
    path.write_text(GOOD)
    return path


def run(*words: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words), env={"CLOUD_KEY": "k3y", "COLUMNS": "200", **(environ or {})})
    return result.exit_code, result.output


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys, crossfade.cli; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(code).strip() == "[]"


def test_help_takes_about_as_long_as_typer_alone() -> None:
    """The stated bound is half a second on an idle machine; on a shared one only a ratio of work can be asserted."""

    def seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = "import typer, rich.console, typer.rich_utils"
    rounds = [(seconds("-m", "crossfade.cli", "--help"), seconds("-c", bare)) for _ in range(5)]
    ours, floor = (statistics.median(side) for side in zip(*rounds, strict=True))
    assert ours < 3 * floor


def test_gateway_shadow_and_compare_run_without_torch() -> None:
    code = """
import sys
for name in ("torch", "torchvision", "onnxruntime", "gfpgan"):
    sys.modules[name] = None
import gateway.server, shadow.store.store, compare.job, compare.report, compare.dashboard.app, crossfade.comparison
print("fine")
"""
    assert python(code).strip() == "fine"


def test_the_gateway_runs_without_the_compare_extra() -> None:
    code = """
import sys
for name in ("torch", "numpy", "PIL", "scipy", "cv2", "skimage", "jinja2"):
    sys.modules[name] = None
import gateway.server, crossfade.composition, crossfade.config.toggle
print("fine")
"""
    assert python(code).strip() == "fine"


def test_every_command_explains_itself() -> None:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for sub in getattr(command, "commands", {"": command}).values():
            assert sub.help, f"crossfade {name} has no help"
            assert all(getattr(p, "help", None) for p in sub.params if p.name != "help"), f"crossfade {name}"


def test_the_readme_names_every_command_and_no_other() -> None:
    group = typer.main.get_command(app)
    known = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        known |= {f"{name} {sub}" for sub in getattr(command, "commands", {})} or {name}
    readme = (ROOT / "README.md").read_text()
    table = readme[readme.index("| command |") : readme.index("A running gateway takes up")]
    named = set()
    for words in re.findall(r"`crossfade ([a-z -]+?)(?: [A-Z-].*?)?`", table):
        named.add(" ".join(words.split()))
    assert named == known


def test_the_readmes_config_is_valid_and_is_the_documented_one() -> None:
    readme = (ROOT / "README.md").read_text()
    (text,) = re.findall(r"```yaml\n(gateway:.*?)```", readme, re.DOTALL)
    assert parse_config(text, environ={"CLOUD_KEY": "x"}).routes[0].name == "remove-background"


def test_the_schema_describes_every_key_that_is_accepted() -> None:
    code, output = run("config", "schema")
    assert code == 0
    schema = json.loads(output)
    assert set(schema["properties"]) == set(Config.model_fields)
    assert schema["additionalProperties"] is False


def test_check_says_valid_or_what_is_wrong(config: Path) -> None:
    assert run("config", "check", "--config", str(config)) == (0, f"{config}: valid; 2 backends, 1 route\n")
    config.write_text(GOOD.replace("latency_slo_s", "latency_slo"))
    code, output = run("config", "check", "--config", str(config))
    assert code == 2
    assert f"{config}:13: routes[0].compare.latency_slo: unknown key; did you mean latency_slo_s?" in output


def test_show_fills_in_defaults_and_hides_secrets(config: Path) -> None:
    code, output = run("config", "show", "--config", str(config))
    assert code == 0
    assert "byte_budget_bytes: 268435456" in output
    assert "k3y" not in output


def test_a_missing_config_says_so(tmp_path: Path) -> None:
    for command in (["gateway"], ["compare"], ["dashboard"], ["toggle", "x", "y"], ["config", "check"]):
        code, output = run(*command, "--config", str(tmp_path / "none.yaml"))
        assert code == 2
        assert "there is no such file" in output


def test_toggle_says_what_it_did(config: Path) -> None:
    words = ["toggle", "remove-background", "onprem=5", "--config", str(config)]
    assert run(*words) == (0, "remove-background: cloud 100 % -> cloud 95 %, onprem 5 %\n")
    assert run(*words) == (0, "remove-background: already cloud 95 %, onprem 5 %\n")
    code, output = run("toggle", "remove-backgrund", "onprem=5", "--config", str(config))
    assert code == 2
    assert "there is no route remove-backgrund; the config has remove-background" in output


def test_compare_on_an_empty_store_is_a_hold(config: Path) -> None:
    code, output = run("compare", "--config", str(config))
    assert code == 10
    assert "hold" in output
    files = {flag: config.with_name(f"out{flag}") for flag in ("--html", "--json", "--md", "--junit")}
    code, output = run("compare", "--config", str(config), *(str(w) for pair in files.items() for w in pair))
    assert code == 10
    for flag, path in files.items():
        assert "remove-background" in path.read_text(), flag
        assert path.stat().st_mode & 0o077 == 0, "reports are for their owner alone"
        assert f"wrote {path}" in output
    code, output = run("compare", "--config", str(config), "--route", "nope")
    assert code == 2
    assert "there is no route nope" in output


@pytest.mark.parametrize("flag", ["--html", "--json", "--md", "--junit"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(config: Path, flag: str) -> None:
    code, output = run("compare", "--config", str(config), flag, str(config.parent))
    assert code == 2
    assert f"{config.parent} is a folder: name a file in it" in output
    code, output = run("compare", "--config", str(config), flag, str(config / "report.html"))
    assert code == 2
    assert f"{config / 'report.html'} cannot be written: " in output
    assert "hold" not in output


def test_a_port_that_is_taken_is_told(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, output = run("dashboard", "--config", str(config), "--port", port)
    assert code == 2
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use. Name another place with --port" in output


def test_a_worker_without_the_stores_key_says_what_to_do(config: Path) -> None:
    assert run("compare", "--config", str(config))[0] == 10
    (key,) = config.parent.rglob("*.key")
    key.unlink()
    config.write_text(config.read_text() + 'mirror: {transport: "redis://127.0.0.1:1/0"}\n')
    code, output = run("shadow", "work", "--config", str(config))
    assert code == 2
    assert "crossfade: the store cannot be opened: the master key" in output


@pytest.mark.parametrize("seconds", ["-5", "0", "0.01", "nan", "inf"])
def test_a_worker_takes_over_nothing_that_another_was_just_given(config: Path, seconds: str) -> None:
    config.write_text(config.read_text() + 'mirror: {transport: "redis://127.0.0.1:1/0"}\n')
    code, output = run("shadow", "work", "--config", str(config), "--claim-after", seconds)
    assert code == 2
    assert "--claim-after is" in output


def test_the_status_of_ramps_is_that_of_every_route_unless_one_is_named(config: Path) -> None:
    code, output = run("ramp", "status", "--config", str(config))
    assert code == 0
    assert "remove-background: no ramp yet" in output
    assert run("ramp", "status", "remove-background", "--config", str(config)) == (0, output)


def test_a_dashboard_beyond_loopback_demands_a_token(config: Path) -> None:
    environ = {"CROSSFADE_DASHBOARD_TOKEN": ""}
    code, output = run("dashboard", "--config", str(config), "--host", "0.0.0.0", environ=environ)
    assert code == 2
    assert "CROSSFADE_DASHBOARD_TOKEN" in output


def test_an_unknown_fault_or_model_is_a_usage_error(tmp_path: Path) -> None:
    code, output = run("demo", "--fault", "classify:nonsense", "--folder", str(tmp_path))
    assert code == 2
    assert "face-blur:misses-faces" in output
    code, output = run("models", "fetch", "centreface", "--models", str(tmp_path))
    assert code == 2
    assert "centerface" in output


def test_the_demo_names_missing_models(tmp_path: Path) -> None:
    code, output = run("demo", "--once", "--models", str(tmp_path / "empty"), "--folder", str(tmp_path / "demo"))
    assert code == 1
    assert "u2netp" in output
    assert "crossfade models fetch" in " ".join(output.split())


def test_the_demo_deletes_nothing_of_others(tmp_path: Path, models_dir: Path) -> None:
    (tmp_path / "crossfade.db").write_text("mine")
    code, output = run("demo", "--once", "--models", str(models_dir), "--folder", str(tmp_path))
    assert code == 2
    assert "files of someone else" in output
    assert [path.name for path in tmp_path.iterdir()] == ["crossfade.db"]


def test_a_missing_extra_is_named() -> None:
    code = """
import sys
sys.modules["numpy"] = None
from crossfade.cli import main
sys.argv = ["crossfade", "compare"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "crossfade[compare]" in done.stderr
    assert "Traceback" not in done.stderr


def test_models_list_tells_what_is_there(models_dir: Path) -> None:
    code, output = run("models", "list", "--models", str(models_dir))
    assert code == 0
    assert re.search(r"u2netp.*genuine", output)
    assert re.search(r"gfpgan.*missing", output)


def test_limits_that_contradict_each_other_are_told_before_the_gateway_starts(config: Path) -> None:
    config.write_text(GOOD.replace('"1000/hour"', '"5/second"'))
    for words in (("config", "check"), ("gateway",)):
        code, output = run(*words, "-c", str(config))
        assert code == 2
        assert "another limit here has the same window" in output


def test_a_new_key_is_let_in_by_the_hash_that_is_printed_with_it() -> None:
    code, output = run("key", "new")
    assert code == 0
    key, digest = re.findall(r"^(?:key|hash): +(\S+)", output, re.MULTILINE)
    assert digest == "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    assert run("key", "new")[1] != output
