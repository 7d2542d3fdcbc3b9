"""Tiling and the ncnn reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onprem_backend.images import Picture
from onprem_backend.ncnn import load_ncnn_weights
from onprem_backend.problems import Stopped
from onprem_backend.runtime import Interruptible, Runtime
from onprem_backend.sessions import Job
from onprem_backend.upscale import SMALL_TILING, Tiling, load_x4plus, small_network, upscale
from tests.onprem_backend.pictures import noise

RUNTIME = Runtime(Path(), torch.device("cpu"), "torch", threads=1, detect_side_px=960)


def test_tiles_come_out_as_the_whole_picture_does(make_runtime: Callable[[str], Runtime]) -> None:
    network = small_network(make_runtime("torch"))
    job = Job(Picture(noise(70, 50)))
    whole, tiled = (
        upscale(job, network, tiling, RUNTIME).picture for tiling in (SMALL_TILING, Tiling(side_px=24, overlap_px=18))
    )
    assert whole is not None
    assert tiled is not None
    assert tiled.rgb.shape == (200, 280, 3)
    assert np.abs(whole.rgb.astype(int) - tiled.rgb).max() <= 1


def test_alpha_grows_with_the_picture_and_hidden_colours_do_not_spread() -> None:
    alpha = np.zeros((6, 8), dtype=np.uint8)
    red = np.zeros((6, 8, 3), dtype=np.uint8) + np.array([255, 0, 0], dtype=np.uint8)
    network = torch.nn.Upsample(scale_factor=4)
    result = upscale(Job(Picture(red, alpha)), network, SMALL_TILING, RUNTIME).picture
    assert result is not None
    assert result.alpha is not None
    assert result.alpha.shape == (24, 32)
    assert np.all(result.rgb == 255)


def test_an_edge_grows_in_its_own_colours(make_runtime: Callable[[str], Runtime]) -> None:
    rows, columns = np.mgrid[:40, :40]
    alpha = ((20 - np.hypot(rows - 19.5, columns - 19.5)) * 128).clip(0, 255).astype(np.uint8)
    dark = np.full((40, 40, 3), (20, 20, 30), dtype=np.uint8)
    dark[alpha == 0] = (255, 0, 0)  # hidden
    grown = upscale(Job(Picture(dark, alpha)), small_network(make_runtime("torch")), SMALL_TILING, RUNTIME).picture
    assert grown is not None
    assert grown.alpha is not None
    assert grown.rgb[grown.alpha > 0].max() < 60


def test_a_tile_that_overflows_is_an_error_and_not_a_black_tile() -> None:
    def network(batch: torch.Tensor) -> torch.Tensor:
        grown = torch.nn.functional.interpolate(batch, scale_factor=4)
        grown[0, 0, 0, 0] = torch.inf if batch.shape[-1] < 40 else 1
        return grown

    with pytest.raises(FloatingPointError):
        upscale(Job(Picture(noise(70, 20))), network, Tiling(side_px=30, overlap_px=10), RUNTIME)


def test_work_that_nobody_waits_for_stops_between_tiles() -> None:
    stop = threading.Event()
    seen = []

    def network(batch: torch.Tensor) -> torch.Tensor:
        seen.append(batch.shape)
        stop.set()
        return torch.nn.functional.interpolate(batch, scale_factor=4)

    job = replace(Job(Picture(noise(40, 40))), stop=stop)
    with pytest.raises(Stopped):
        upscale(job, network, Tiling(20, 2), RUNTIME)
    assert len(seen) == 1


def test_a_network_gives_up_between_two_layers_and_only_in_the_thread_that_was_stopped() -> None:
    stop, together = threading.Event(), threading.Barrier(2)

    class Meet(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            together.wait(20)
            stop.set()
            return x

    network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), Meet(), torch.nn.Conv2d(1, 1, 1))
    interruptible = Interruptible(network)

    def run(event: threading.Event) -> torch.Size:
        with interruptible.until(event):
            shape: torch.Size = network(torch.zeros(1, 1, 4, 4)).shape
            return shape

    with ThreadPoolExecutor(2) as threads:
        stopped, other = threads.submit(run, stop), threads.submit(run, threading.Event())
        with pytest.raises(Stopped):
            stopped.result()
        assert other.result() == (1, 1, 4, 4)
    with pytest.raises(Stopped):
        run(stop)


def test_a_large_network_stops_within_a_tile(make_runtime: Callable[[str], Runtime]) -> None:
    session = load_x4plus(make_runtime("torch"))()
    took_s = []
    for _ in range(3):  # one of them may fall together with something else on this machine
        stop = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(session, Job(Picture(noise(120, 120)), stop=stop))
            assert not wait([running], timeout=0.3).done
            stop.set()
            began = time.monotonic()
            with pytest.raises(Stopped):
                running.result()
            took_s.append(time.monotonic() - began)
    assert min(took_s) < 2.0, "the whole tile takes several seconds"


def tiny() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.PReLU(1))


def ncnn_file(path: Path, flag: bytes, weights: bytes) -> Path:
    path.write_bytes(flag + weights + np.array([0.5, 0.25], dtype="<f4").tobytes())
    return path


def test_ncnn_weights_are_read_in_both_precisions(tmp_path: Path) -> None:
    values = np.arange(9) / 8
    half = ncnn_file(tmp_path / "half", b"\x47\x6b\x30\x01", values.astype("<f2").tobytes() + b"\0\0")
    single = ncnn_file(tmp_path / "single", bytes(4), values.astype("<f4").tobytes())
    for path in (half, single):
        network = tiny()
        load_ncnn_weights(path, network)
        state = network.state_dict()
        assert state["0.weight"].flatten().tolist() == values.tolist()
        assert (state["0.bias"].item(), state["1.weight"].item()) == (0.5, 0.25)


def test_an_ncnn_file_has_to_fit_exactly(tmp_path: Path) -> None:
    good = ncnn_file(tmp_path / "good", bytes(4), np.zeros(9, dtype="<f4").tobytes()).read_bytes()
    bad = {"shorter": good[:-1], "longer": good + b"\0", "unknown weight flag": b"\1\2\3\4" + good[4:]}
    for reason, content in bad.items():
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            load_ncnn_weights(tmp_path / "bad", tiny())
