"""Requests per second and CPU per picture of the model server beside the plain way: one model behind one lock.

``python -m benchmarks.onprem_speed [--quick]``. Both servers run all the time; in each round each function is asked
``REQUESTS`` times by four clients at once, first of the one, then of the other, and the next round the other way round,
so that whatever else the machine does meets both alike. Ratios are per round, their median is what counts. The answers
of both have to be equal, up to the rounding of sums that another number of threads takes in another order: one step of
8 bits, 1e-5 of a probability. ``--batches`` measures what sharing a run saves each network, in this process.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from benchmarks.onprem_servers import FUNCTIONS, Server, requests_for, running

Answers = set[tuple[int, bytes]]
"""Kind of request and content of the answer."""

CLIENTS = 4
REQUESTS = {"classify": 24, "remove-background": 6, "face-blur": 16, "restore": 12, "erase": 24}


def ask(server: Server, function: str, count: int) -> tuple[float, float, Answers]:
    """Send ``count`` requests; return seconds, CPU seconds of the server, and the answers by kind of request."""
    kinds = requests_for(function)
    with httpx.Client(base_url=server.address, timeout=300) as http, ThreadPoolExecutor(CLIENTS) as clients:

        def one(number: int) -> tuple[int, bytes]:
            kind = number % len(kinds)
            response = http.post(**kinds[kind])
            response.raise_for_status()
            return kind, response.content

        began, cpu = time.perf_counter(), server.cpu_s()
        answers = set(clients.map(one, range(count)))
        return time.perf_counter() - began, server.cpu_s() - cpu, answers


def compare(models: Path, rounds: int, share: float) -> None:
    """Print one line per function."""
    with running("ours", models) as ours, running("plain", models) as plain:
        for server, function in itertools.product((ours, plain), FUNCTIONS):
            ask(server, function, 4)
        print("function              ours 1/s plain 1/s  ratio   ours CPU s  plain  ratio")
        for function in FUNCTIONS:
            count = max(4, round(REQUESTS[function] * share))
            rates: dict[str, list[float]] = {"ours": [], "plain": []}
            costs: dict[str, list[float]] = {"ours": [], "plain": []}
            for number in range(rounds):
                answers = []
                for server in (ours, plain) if number % 2 == 0 else (plain, ours):
                    seconds, cpu_s, got = ask(server, function, count)
                    rates[server.name].append(count / seconds)
                    costs[server.name].append(cpu_s / count)
                    answers.append(got)
                check_equal(function, *answers)
            print(f"{function:20} {_line(rates, 9)}   {_line(costs, 8)}", flush=True)


def check_equal(function: str, ours: Answers, plain: Answers) -> None:
    """Raise ``SystemExit`` when the two servers, or one server's answers to the same request, differ."""
    for kind, content in ours | plain:
        expected = next(other for number, other in sorted(plain) if number == kind)
        if not _equal(content, expected):
            raise SystemExit(f"{function}: the answers differ")


def _equal(one: bytes, other: bytes) -> bool:
    if one == other:
        return True
    if one[:1] == b"{":
        pairs = zip(*(json.loads(content)["predictions"] for content in (one, other)), strict=True)
        return all(a["label"] == b["label"] and abs(a["prob"] - b["prob"]) < 1e-5 for a, b in pairs)
    first, second = (np.asarray(Image.open(io.BytesIO(content)), dtype=int) for content in (one, other))
    return first.shape == second.shape and int(np.abs(first - second).max()) <= 1


def _line(values: dict[str, list[float]], width: int) -> str:
    pairs = zip(values["ours"], values["plain"], strict=True)
    ratio = statistics.median(ours / plain for ours, plain in pairs)
    ours, plain = (statistics.median(values[name]) for name in ("ours", "plain"))
    return f"{ours:{width}.3f} {plain:{width}.3f} {ratio:6.2f}"


def batches(models: Path, rounds: int) -> None:
    """Print, per network, the CPU time of a batch over that of as many single runs."""
    import torch

    from onprem_backend.cutout import load_u2netp
    from onprem_backend.faces import load_centerface
    from onprem_backend.images import Picture
    from onprem_backend.labels import load_efficientnet
    from onprem_backend.runtime import Network, Runtime
    from onprem_backend.sessions import Job
    from onprem_backend.torchvision_mend import mend

    mend()
    torch.set_num_threads(1)
    runtime = Runtime(models, torch.device("cpu"), "torch", 1, 960)
    import torchvision

    resnet18 = runtime.network(runtime.place(torchvision.models.resnet18(weights=None)))
    networks: dict[str, tuple[Network, tuple[int, ...]]] = {"resnet18": (resnet18, (3, 224, 224))}
    picture = Job(Picture(np.zeros((384, 512, 3), dtype=np.uint8)))
    for name, load in {
        "efficientnet-lite0": load_efficientnet,
        "u2netp": load_u2netp,
        "centerface": load_centerface,
    }.items():
        model = load(runtime)
        networks[name] = (model.network, model.prepare(picture).tensor.shape)
    for name, (network, shape) in networks.items():
        size = 8 if shape[1] == 224 else 4
        tensors = np.random.default_rng(1).random((size, *shape), dtype=np.float32)
        ratios = [_batch_ratio(network, tensors) for _ in range(rounds + 1)][1:]
        print(
            f"{name:20} batch of {size}: {statistics.median(ratios):.2f} of the CPU time of {size} single runs",
            flush=True,
        )


def _batch_ratio(network: object, tensors: object) -> float:
    began = time.process_time()
    network(tensors)  # type: ignore[operator]
    middle = time.process_time()
    for one in tensors:  # type: ignore[attr-defined]
        network(one[None])  # type: ignore[operator]
    return (middle - began) / (time.process_time() - middle)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--batches", action="store_true", help="what sharing a run saves each network")
    arguments = parser.parse_args()
    if arguments.batches:
        batches(arguments.models, 2 if arguments.quick else 6)
    else:
        compare(arguments.models, 2 if arguments.quick else 5, 0.4 if arguments.quick else 1.0)


if __name__ == "__main__":
    main()
