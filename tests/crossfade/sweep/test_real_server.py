"""The command against the real model server, in its own process: OpenCV's eraser, which needs no model file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "crossfade.cli", "sweep"]


def test_the_command_sweeps_a_real_server_and_leaves_none_behind(tmp_path: Path) -> None:
    arguments = ["--function", "erase", "--pool", "1..2", "--rate", "3", "--timeout", "10", "--duration", "2"]
    arguments += ["--capacity", "2", "--models", str(tmp_path), "--logs", str(tmp_path / "logs")]
    files = {kind: tmp_path / f"sweep.{kind}" for kind in ("json", "html", "png")}
    for kind, path in files.items():
        arguments += [f"--{kind}", str(path)]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [sweep] = json.loads(files["json"].read_text())["sweeps"]
    assert [row["pool"] for row in sweep["capacities"]] == [1, 2]
    assert all(row["per_second"] > 0 for row in sweep["capacities"])
    assert all(row["usage"]["cpu"] > 0.05 and row["usage"]["memory_bytes"] > 30_000_000 for row in sweep["capacities"])
    assert all(row["ok"] == row["sent"] for row in sweep["cells"])
    assert sweep["advice"]["pool"] in {1, 2}
    assert "Run pool" in done.stdout
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert files["html"].read_text().startswith("<!doctype html>")
    for log in sorted((tmp_path / "logs").iterdir()):
        assert "Finished server process" in log.read_text()


def test_a_wrong_word_on_the_command_line_is_usage_and_starts_nothing(tmp_path: Path) -> None:
    wrong = [*COMMAND, "--pool", "6..1", "--logs", str(tmp_path / "logs")]
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pool '6..1'" in done.stderr
    assert not (tmp_path / "logs").exists()


def test_a_function_whose_model_is_missing_is_named_at_once(tmp_path: Path) -> None:
    arguments = ["--function", "classify", "--pool", "1", "--models", str(tmp_path), "--logs", str(tmp_path / "logs")]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "efficientnet-lite0 is missing" in done.stdout


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_its_server_with_what_was_measured(tmp_path: Path, kind: signal.Signals) -> None:
    logs, document = tmp_path / "logs", tmp_path / "sweep.json"
    arguments = ["--function", "erase", "--pool", "1..2", "--rate", "3", "--duration", "1", "--capacity", "1"]
    arguments += ["--models", str(tmp_path), "--logs", str(logs), "--json", str(document)]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(1200):
            second = logs / "onprem-2.log"
            if second.exists() and "Uvicorn running" in second.read_text():
                break
            time.sleep(0.05)  # another process's state: there is no event to wait for
        process.send_signal(kind)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped early" in printed
    [sweep] = json.loads(document.read_text())["sweeps"]
    assert [row["pool"] for row in sweep["cells"]] == [1]
    assert "Finished server process" in (logs / "onprem-2.log").read_text()
