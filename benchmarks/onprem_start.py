"""Cold start of the model server: from the process's start to its first answers.

    python -m benchmarks.onprem_start            about a minute: three starts for each set of functions
    python -m benchmarks.onprem_start --quick    one start each

For each function alone, and for all at once: seconds until the port answers (live), until every model is loaded and
warmed up (ready), and until the first picture is answered. Medians over the starts, which alternate between the sets.
Files are in the page cache after the first start, as on a machine whose server is restarted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from crossfade.demo.pictures import uploads
from crossfade.demo.processes import Processes, Spec, child_environment, free_port
from crossfade.sweep.bench import SWITCHES, server_variables

POLL_S = 0.02
LIMIT_S = 120.0


@dataclass(frozen=True)
class Start:
    """Seconds from the start of the process."""

    live_s: float
    ready_s: float
    answer_s: float


def start(functions: Sequence[str], models: Path, logs: Path) -> Start:
    """Start a server, send one picture to each function, stop it."""
    pictures = {name: next(iter(uploads(name, 1))) for name in functions}
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["onprem", "--port", str(port), "--models", str(models)]
    with Processes(logs, child_environment(server_variables(functions, 2))) as processes:
        began = time.perf_counter()
        processes.start(Spec("onprem", "crossfade.cli", arguments, f"{url}/v2/health/ready"))
        with httpx.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client:
            live_s = _until(client, "/v2/health/live", began)
            ready_s = _until(client, "/v2/health/ready", began)
            for name, picture in pictures.items():
                headers = {"content-type": picture.content_type}
                client.post(f"/v1/{name}", content=picture.body, headers=headers).raise_for_status()
        return Start(live_s, ready_s, time.perf_counter() - began)


def _until(client: httpx.Client, path: str, began: float) -> float:
    """Poll until ``path`` answers 200 and return the seconds since ``began``."""
    while (waited := time.perf_counter() - began) < LIMIT_S:
        try:
            if client.get(path).status_code == 200:
                return time.perf_counter() - began
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
    raise SystemExit(f"{path} did not answer 200 within {waited:.0f} s")


def main() -> None:
    """Measure and print a row for each set of functions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one start each")
    parser.add_argument("--models", type=Path, default=Path("models"), help="the folder of model files")
    chosen = parser.parse_args()
    sets: dict[str, tuple[str, ...]] = {name: (name,) for name in SWITCHES} | {"all functions": tuple(SWITCHES)}
    starts: dict[str, list[Start]] = {name: [] for name in sets}
    with tempfile.TemporaryDirectory(prefix="onprem-start-") as logs:
        for _ in range(1 if chosen.quick else 3):
            for name, functions in sets.items():
                starts[name].append(start(functions, chosen.models.resolve(), Path(logs)))
    print(f"{'served':18} {'live':>8} {'ready':>8} {'answered':>9}   seconds, median of {len(starts['classify'])}")
    for name, runs in starts.items():
        figures = [
            statistics.median(times) for times in zip(*((r.live_s, r.ready_s, r.answer_s) for r in runs), strict=True)
        ]
        print(f"{name:18} {figures[0]:8.2f} {figures[1]:8.2f} {figures[2]:9.2f}")


if __name__ == "__main__":
    main()
