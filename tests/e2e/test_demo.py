"""The main job with real processes and real pictures: a healthy run works, and each fault is rejected by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crossfade.demo.faults import parse_fault
from crossfade.demo.run import Plan, run_demo

ROUTES = ("classify", "remove-background", "face-blur", "restore", "erase")
FAULTS = {
    "restore:ignores-exif": (60, "orientation"),
    "erase:swaps-red-blue": (60, "red and blue"),
    "face-blur:misses-faces": (60, "leaves faces visible"),
    "classify:slow": (300, "slower"),
    "erase:errors": (60, "500"),
}
"""For each fault how many pairs its route gets, and the words that must name it."""


SWITCHES = {
    "restore": "ENABLE_RESTORE",
    "remove-background": "ENABLE_REMOVER",
    "face-blur": "ENABLE_FACEBLUR",
    "classify": "ENABLE_CLASSIFY",
}
"""What keeps a model from being loaded where a test needs its route not; erase needs no model file."""


def run(folder: Path, models: Path, counts: dict[str, int], fault: str | None = None) -> tuple[int, dict[str, Any]]:
    chosen = parse_fault(fault) if fault else None
    code = run_demo(Plan(folder, models, counts, once=True, fault=chosen, dashboard_port=0))
    report = json.loads((folder / "report.json").read_text())
    return code, {row["route"]: row for row in report["table"]}


def test_a_small_run_works_and_holds_every_route(tmp_path: Path, models_dir: Path) -> None:
    code, table = run(tmp_path, models_dir, dict.fromkeys(ROUTES, 6))
    assert code == 0
    assert {route: row["decision"] for route, row in table.items()} == dict.fromkeys(ROUTES, "hold")
    assert all(row["pairs"] == 6 and row["coverage"] == 1 for row in table.values())
    assert all(row["different"] == row["broken"] == row["failed"] == 0 for row in table.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_all_its_processes(number: signal.Signals, tmp_path: Path, models_dir: Path) -> None:
    command = ["-m", "crossfade.cli", "demo", "--quick", "--folder", str(tmp_path), "--models", str(models_dir)]
    environ = os.environ | dict.fromkeys(SWITCHES.values(), "0")
    demo = subprocess.Popen([sys.executable, *command, "--port", "0"], env=environ, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("dashboard"):
            break
    children = [int(pid) for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()]
    assert len(children) == 4
    demo.send_signal(number)
    demo.communicate(timeout=60)
    assert demo.returncode != 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_rejects_its_route_by_name_and_no_other(
    fault: str, tmp_path: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, words = FAULTS[fault]
    route = fault.partition(":")[0]
    counts = {**dict.fromkeys(ROUTES, 0), "classify": 4, "erase": 4, route: pairs}
    for name, switch in SWITCHES.items():
        monkeypatch.setenv(switch, "1" if counts[name] else "0")
    code, table = run(tmp_path, models_dir, counts, fault)
    assert code == 0
    rejected = {name for name, row in table.items() if row["decision"] == "reject"}
    assert rejected == {route}
    assert words in table[route]["reason"]
