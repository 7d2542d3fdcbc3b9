"""Background removal beside rembg's own server, with the same u2netp weights, in alternating rounds.

    python -m benchmarks.onprem_rembg            about three minutes, and the time to install rembg (once, in a
    python -m benchmarks.onprem_rembg --quick    temporary folder, in a virtual environment of its own)

    --environment FOLDER   keep rembg's virtual environment there, or use the one that is there

Both servers run at once and are loaded one at a time: a closed loop of ``CALLERS`` callers that send the same pictures.
A round loads each server once, the order alternates, and the ratio is the median over rounds: on a shared machine only
ratios of neighbouring runs mean something. CPU is user and system time of the server's processes for each picture.
First every picture goes to both, and the alpha channels are compared: figures at unequal output would mean nothing.
rembg runs one onnxruntime session with a thread per core; ours two sessions of one thread, on onnxruntime and on torch.
Both answer PNG.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from crossfade.demo.pictures import Upload, uploads
from crossfade.demo.processes import child_environment, free_port
from crossfade.sweep.bench import server_variables
from crossfade.sweep.proc import ProcessTree

REMBG = "rembg[cpu,cli]==2.0.86"
CALLERS = 4
LIMIT_S = 240.0
"""No further round begins after this, beyond the first two."""
READY_S = 600.0
"""rembg compiles parts of itself at its first start, which takes minutes on a busy machine."""
MOST_DIFFERENT = 2.0
"""Mean distance of two alpha channels (of 255) up to which outputs count as equal."""


@dataclass(frozen=True)
class Peer:
    """A running server; ``ask`` sends a picture and returns the cut-out."""

    name: str
    tree: ProcessTree
    ask: Callable[[httpx.Client, Upload], bytes]


@dataclass(frozen=True)
class Load:
    """What a peer did in one round."""

    per_second: float
    cpu_s: float


@contextmanager
def rembg_server(python: Path, models: Path) -> Iterator[Peer]:
    """Run rembg's HTTP server with our weights; nothing is downloaded."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environ = child_environment({"U2NET_HOME": str(models), "BROWSER": "true"})

    def ask(client: httpx.Client, picture: Upload) -> bytes:
        file = ("picture", picture.body, picture.content_type)
        answer = client.post(f"{url}/api/remove", files={"file": file}, data={"model": "u2netp"})
        return answer.raise_for_status().content

    command = [str(python.with_name("rembg")), "s", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    with _process(command, environ, f"{url}/api") as pid:
        yield Peer("rembg", ProcessTree(pid), ask)


@contextmanager
def own_server(models: Path, engine: str) -> Iterator[Peer]:
    """Run our model server with background removal alone."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def ask(client: httpx.Client, picture: Upload) -> bytes:
        headers = {"content-type": picture.content_type, "accept": "image/png"}
        answer = client.post(f"{url}/v1/remove-background", content=picture.body, headers=headers)
        return answer.raise_for_status().content

    command = [sys.executable, "-m", "crossfade.cli", "onprem", "--port", str(port)]
    command += ["--models", str(models), "--engine", engine]
    environ = child_environment(server_variables(["remove-background"], 2))
    with _process(command, environ, f"{url}/v2/health/ready") as pid:
        yield Peer(f"crossfade, {engine}", ProcessTree(pid), ask)


@contextmanager
def _process(command: Sequence[str], environ: dict[str, str], health: str) -> Iterator[int]:
    """Run a server until the block ends; it is ready when ``health`` answers 200."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        try:
            deadline = time.monotonic() + READY_S
            while not _answers(health):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} is not ready:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def alpha(png: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
    """Return a cut-out's alpha channel, ``(H, W) int16``."""
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGBA").getchannel("A"), dtype=np.int16)


def compare(peers: Sequence[Peer], pictures: Sequence[Upload]) -> None:
    """Send every picture to all peers (this warms them up, too) and demand equal alpha channels."""
    distances: dict[str, list[float]] = {peer.name: [] for peer in peers[1:]}
    with httpx.Client(timeout=60, trust_env=False) as client:
        for picture in pictures:
            first = alpha(peers[0].ask(client, picture))
            for peer in peers[1:]:
                other = alpha(peer.ask(client, picture))
                if other.shape != first.shape:
                    raise SystemExit(f"{picture.name}: {peer.name} answers {other.shape}, not {first.shape}")
                distances[peer.name].append(float(np.abs(other - first).mean()))
    for name, values in distances.items():
        worst = max(values)
        mean = statistics.mean(values)
        print(f"alpha of {name} against {peers[0].name}: mean distance {mean:.3f}, worst {worst:.3f} of 255")
        if worst > MOST_DIFFERENT:
            raise SystemExit("outputs are not equal: no figure is given")


def load(peer: Peer, pictures: Sequence[Upload]) -> Load:
    """Send every picture once, ``CALLERS`` at a time."""
    waiting = iter(pictures)
    lock = threading.Lock()
    failures: list[Exception] = []

    def call() -> None:
        with httpx.Client(timeout=60, trust_env=False) as client:
            while not failures:
                with lock:
                    picture = next(waiting, None)
                if picture is None:
                    return
                try:
                    peer.ask(client, picture)
                except httpx.HTTPError as error:
                    failures.append(error)

    threads = [threading.Thread(target=call, name=f"caller-{number}") for number in range(CALLERS)]
    spent, began = peer.tree.spent().tree_s, time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - began
    if failures:
        raise SystemExit(f"{peer.name}: {failures[0]!r}")
    return Load(len(pictures) / elapsed_s, (peer.tree.spent().tree_s - spent) / len(pictures))


def install(folder: Path) -> Path:
    """Make rembg's virtual environment, unless it is there; return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {REMBG} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", REMBG], check=True, env=environ)
    return python


def report(peers: Sequence[Peer], rounds: Sequence[dict[str, Load]]) -> None:
    """Print medians, and ratios of neighbouring runs."""
    base = peers[0].name
    print(f"\nagainst {base}, medians of {len(rounds)} alternating rounds")
    print(f"{'server':24} {'pictures/s':>10} {'CPU ms':>8}")
    for peer in peers:
        rate = statistics.median(r[peer.name].per_second for r in rounds)
        cpu = statistics.median(r[peer.name].cpu_s for r in rounds)
        faster = statistics.median(r[peer.name].per_second / r[base].per_second for r in rounds)
        cost = statistics.median(r[peer.name].cpu_s / r[base].cpu_s for r in rounds)
        print(f"{peer.name:24} {rate:10.2f} {1000 * cpu:8.0f}   {faster:.2f} x the pictures/s, {cost:.2f} x the CPU")


def main() -> None:
    """Install, compare, measure, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--models", type=Path, default=Path("models"), help="the folder with u2netp.onnx")
    parser.add_argument("--environment", type=Path, help="where rembg's virtual environment is, or is to be made")
    chosen = parser.parse_args()
    count, repeats = (8, 2) if chosen.quick else (12, 6)
    models = chosen.models.resolve()
    pictures = [p for p in uploads("remove-background", 2 * count) if p.name.count(",") == 0][:count]
    with ExitStack() as stack:
        folder = chosen.environment or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rembg-")))
        peers = [stack.enter_context(rembg_server(install(folder.resolve()), models))]
        peers += [stack.enter_context(own_server(models, engine)) for engine in ("onnxruntime", "torch")]
        compare(peers, pictures)
        rounds = []
        give_up_at = time.monotonic() + LIMIT_S
        for number in range(repeats):
            if number >= 2 and time.monotonic() > give_up_at:
                break
            order = peers if number % 2 == 0 else peers[::-1]
            rounds.append({peer.name: load(peer, pictures) for peer in order})
        report(peers, rounds)


if __name__ == "__main__":
    main()
