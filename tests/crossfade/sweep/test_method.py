"""The method against a server whose truth is known: a scripted device of 4 cores, in virtual time."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from crossfade.sweep.bench import Site, http_sender
from crossfade.sweep.measuring import measure_capacity, wait_quiet
from crossfade.sweep.output import Files
from crossfade.sweep.run import INTERRUPTED, Options, run
from tests.crossfade.sweep.scripted import PICTURE, Device, ScriptedBench, ScriptedMeter, ScriptedServer
from tests.crossfade.sweep.virtual_time import VirtualLoop

RATES = (15.0, 17.5, 20.0, 22.5)
STEP = 2.5


def run_scripted(folder: Path, options: Options, bench: ScriptedBench) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the JSON document and what was printed; no server is left open."""
    files = Files(folder / "sweep.json", folder / "sweep.html", folder / "sweep.png")
    printed = io.StringIO()
    console = Console(file=printed, width=200)
    code = run(options, files, bench, console, VirtualLoop)
    assert bench.open_servers == []
    return code, json.loads((folder / "sweep.json").read_text()), printed.getvalue()


def plan(**changes: Any) -> Options:
    values: dict[str, Any] = {"pools": (1, 2, 3, 4, 5, 6), "rates": RATES, "timeout_s": 3.0, "duration_s": 20.0}
    return Options(("restore",), **{**values, **changes})


@pytest.mark.parametrize("thrash", [0.0, 0.4], ids=["flat beyond the cores", "slower beyond the cores"])
def test_the_knee_and_the_rate_of_a_4_core_device_are_found(tmp_path: Path, thrash: float) -> None:
    truth = 4 / 0.2
    code, document, printed = run_scripted(tmp_path, plan(), ScriptedBench(Device(4, 0.2, thrash)))
    advice = document["sweeps"][0]["advice"]
    assert code == 0
    assert advice["pool"] == advice["knee"]["pool"] == 4
    assert advice["knee"]["past"] == [5, 6]
    assert advice["knee"]["reached"]
    assert advice["knee"]["confidence"] > 0.95
    assert truth - STEP <= advice["rate"]["rate"] <= truth
    assert advice["binding"] == "cpu cores"
    assert advice["memory_slope"]["value"] == pytest.approx(1e6)
    assert "The knee is pool 4" in printed
    assert "past it: pool 5, 6" in printed


def test_capacities_are_those_of_the_device_within_five_percent(tmp_path: Path) -> None:
    _, document, _ = run_scripted(tmp_path, plan(rates=(5.0,)), ScriptedBench(Device(4, 0.2)))
    measured = [row["per_second"] for row in document["sweeps"][0]["capacities"]]
    assert measured == pytest.approx([min(pool, 4) / 0.2 for pool in range(1, 7)], rel=0.05)


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(tmp_path: Path) -> None:
    small = {"pools": (1, 2), "rates": (4.0,), "duration_s": 5.0}
    documents = []
    for seed in (1, 1, 2):
        _, document, _ = run_scripted(tmp_path, plan(**small, seed=seed), ScriptedBench(Device()))
        documents.append(document["sweeps"])
    assert documents[0] == documents[1] != documents[2]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_what_was_measured_so_far(tmp_path: Path, kind: signal.Signals) -> None:
    def stop_at_third(pool: int) -> None:
        if pool == 3:
            signal.raise_signal(kind)

    bench = ScriptedBench(Device(), stop_at_third)
    code, document, printed = run_scripted(tmp_path, plan(rates=(5.0,), duration_s=5.0), bench)
    sweep = document["sweeps"][0]
    assert code == INTERRUPTED
    assert not document["complete"]
    assert [row["pool"] for row in sweep["capacities"]] == [row["pool"] for row in sweep["cells"]] == [1, 2]
    assert sweep["advice"]["pool"] == 2
    assert "Stopped early" in printed
    assert "Stopped early" in (tmp_path / "sweep.html").read_text()


def test_a_server_that_answers_nothing_well_is_named_and_not_measured(tmp_path: Path) -> None:
    code, document, printed = run_scripted(tmp_path, plan(), ScriptedBench(Device(status=503)))
    assert code == 1
    assert "the server answered 503 to a single request" in printed
    assert document["sweeps"][0]["advice"] is None


def test_a_function_that_cannot_be_measured_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    options = Options(("classify", "restore"), (1,), (2.0,), timeout_s=5, duration_s=5)
    bench = ScriptedBench(Device(broken=frozenset({"classify"})))
    code, document, printed = run_scripted(tmp_path, options, bench)
    assert code == 1
    assert "did not work: classify: the server answered 503" in printed
    assert [len(sweep["cells"]) for sweep in document["sweeps"]] == [0, 1]


def test_an_overloaded_pool_fails_its_rate_and_says_so(tmp_path: Path) -> None:
    small = {"pools": (1,), "rates": (4.0, 10.0), "timeout_s": 1.5}
    _, document, printed = run_scripted(tmp_path, plan(**small), ScriptedBench(Device()))
    low, high = document["sweeps"][0]["cells"]
    assert low["success"] == 1
    assert high["success"] < 0.6
    assert high["ok"] + high["timeouts"] == high["sent"]
    assert high["p95_s"] == pytest.approx(1.5)
    assert high["throughput"] < 5.5
    assert document["sweeps"][0]["advice"]["rate"]["rate"] == 4
    assert "≥1.5 s" in printed


def test_the_mixed_load_shows_what_functions_cost_each_other(tmp_path: Path) -> None:
    functions = ("classify", "restore", "erase")
    options = Options(functions, (4,), (1.6,), timeout_s=5, duration_s=60, mixed=True)
    code, document, printed = run_scripted(tmp_path, options, ScriptedBench(Device(cores=1)))
    rows = {row["alone"]["function"]: row for row in document["mixed"]}
    assert code == 0
    assert set(rows) == set(functions)
    assert all(row["alone"]["sent"] == row["together"]["sent"] for row in rows.values())
    assert all(row["slowdown"] > 2 for row in rows.values())  # 32 % busy alone, 96 % busy at once
    assert "beside the others" in printed


def test_without_rates_the_mixed_load_shares_what_the_machine_can_do(tmp_path: Path) -> None:
    options = Options(("classify", "restore"), (2,), timeout_s=5, duration_s=20, mixed=True)
    _, document, _ = run_scripted(tmp_path, options, ScriptedBench(Device(cores=2)))
    assert [row["alone"]["rate"] for row in document["mixed"]] == pytest.approx([3, 3], rel=0.05)


def test_a_soak_of_a_steady_server_is_drift_free(tmp_path: Path) -> None:
    options = Options(("restore",), (4,), (10.0,), timeout_s=5, soak=5000)
    code, document, printed = run_scripted(tmp_path, options, ScriptedBench(Device()))
    soak = document["soak"]
    assert code == 0
    assert (soak["sent"], soak["ok"]) == (5000, 5000)
    assert soak["mean"]["drift"] == soak["p95"]["drift"] == "drift-free"
    assert soak["memory_slope"]["value"] == pytest.approx(0, abs=1)
    assert "drift-free" in printed


def test_a_soak_of_an_ageing_and_leaking_server_drifts(tmp_path: Path) -> None:
    options = Options(("restore",), (4,), (10.0,), timeout_s=5, soak=2000)
    device = Device(ageing=0.0002, leak_bytes=1000)
    _, document, _ = run_scripted(tmp_path, options, ScriptedBench(device))
    soak = document["soak"]
    assert soak["mean"]["drift"] == soak["p95"]["drift"] == "drifts"
    assert soak["memory_slope"]["value"] == pytest.approx(1e6, rel=0.02)  # 1000 bytes for each of 1000 requests


def test_a_soak_without_a_rate_takes_sixty_percent_of_what_the_pool_can_do(tmp_path: Path) -> None:
    options = Options(("restore",), (2,), timeout_s=5, soak=20)
    _, document, printed = run_scripted(tmp_path, options, ScriptedBench(Device()))
    assert document["soak"]["rate"] == pytest.approx(6, rel=0.05)
    assert "too few requests" in printed


def capacity_among(strangers: list[float]) -> tuple[float, list[float]]:
    """Measure a pool's capacity while strangers come and go; return what they used in it, and what is left to come."""
    server = ScriptedServer(Device(), 4, ["restore"])
    meter = ScriptedMeter(server, 4, strangers)

    async def measure() -> float:
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://scripted", timeout=None) as client:
            site = Site(lambda name: http_sender(client, name, [PICTURE]), meter)
            return (await measure_capacity(site, "restore", 4, 2, 5)).usage.strangers_cpu

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(measure()), meter.strangers


def test_a_disturbed_capacity_is_measured_again_and_the_quietest_counts() -> None:
    assert capacity_among([3.0, 0.0, 2.0]) == (0.0, [2.0])
    assert capacity_among([3.0, 1.0, 2.0, 0.0]) == (1.0, [0.0])
    assert capacity_among([0.0, 3.0]) == (0.0, [3.0])


@pytest.mark.parametrize(("patience_s", "waited_s"), [(0, 0), (10, 3), (2, 2)])
def test_a_load_waits_for_quiet_but_not_for_ever(patience_s: float, waited_s: float) -> None:
    meter = ScriptedMeter(ScriptedServer(Device(), 1, ["restore"]), 1, [1.0, 1.0])
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(wait_quiet(meter, patience_s))
        assert runner.get_loop().time() == waited_s
