"""Face restoration with the real gfpgan and facexlib code, small networks and random weights."""

from __future__ import annotations

import asyncio
import copy
import importlib
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from onprem_backend.face_restore import FaceSession, face_sessions
from onprem_backend.images import Picture
from onprem_backend.pool import SessionPool
from onprem_backend.problems import Problem
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import Job
from tests.onprem_backend.pictures import noise

CPU = torch.device("cpu")
SIZES = ((64, 64), (96, 64))


@pytest.fixture(scope="module")
def package(make_runtime: Callable[[str], Runtime]) -> Any:
    """The gfpgan package; its old code warns while it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("gfpgan.utils")
        return importlib.import_module("facexlib.utils.face_restoration_helper")


@pytest.fixture(scope="module")
def detector(package: Any) -> Any:
    """A RetinaFace with random weights that answers with boxes nevertheless."""
    torch.manual_seed(1)
    return importlib.import_module("facexlib.detection.retinaface").RetinaFace("mobile0.25", device=CPU)


def detect_at_once(detectors: list[Any], pictures: list[NDArray[np.uint8]]) -> list[NDArray[np.float32] | None]:
    """Let one thread per picture detect, all of them between setting their state and using it; ``None``: it raised."""
    together = threading.Barrier(len(pictures))

    def wait(*_: object) -> None:
        together.wait(20)

    hook = detectors[0].body.register_forward_hook(wait)

    def detect(one: Any, picture: NDArray[np.uint8]) -> NDArray[np.float32] | None:
        try:
            with torch.no_grad():
                return np.asarray(one.detect_faces(picture, conf_threshold=0.3))
        except (RuntimeError, ValueError):
            return None

    try:
        with ThreadPoolExecutor(len(pictures)) as threads:
            return list(threads.map(detect, detectors, pictures))
    finally:
        hook.remove()


def test_one_shared_detector_mixes_up_its_callers_and_copies_do_not(detector: Any) -> None:
    pictures = [noise(width, height, seed=width) for width, height in SIZES]
    alone = [detect_at_once([detector], [picture])[0] for picture in pictures]
    assert all(boxes is not None and len(boxes) for boxes in alone)

    def right(found: list[NDArray[np.float32] | None]) -> list[bool]:
        return [a is not None and b is not None and np.array_equal(a, b) for a, b in zip(found, alone, strict=True)]

    assert not all(right(detect_at_once([detector, detector], pictures)))
    assert all(right(detect_at_once([copy.copy(detector), copy.copy(detector)], pictures)))


@pytest.mark.anyio
async def test_four_hundred_calls_at_once_through_a_pool_are_all_right(detector: Any) -> None:
    pictures = [noise(64 + 32 * (number % 2), 64, seed=number) for number in range(40)]

    def detect(session: Any, stop: threading.Event, *, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(session.detect_faces(picture, conf_threshold=0.3))

    alone = [detect(detector, threading.Event(), picture=picture) for picture in pictures]
    assert len({boxes.tobytes() for boxes in alone}) == len(pictures)
    pool = SessionPool("p", lambda: copy.copy(detector), size=4, max_waiting=400, wait_s=300, timeout_s=300)
    calls = [partial(detect, picture=pictures[number % 40]) for number in range(400)]
    answers = await asyncio.gather(*(pool.run(call) for call in calls))
    pool.close()
    wrong = [n for n, timed in enumerate(answers) if not np.array_equal(timed.value, alone[n % 40])]
    assert wrong == []
    assert (pool.idle, pool.waiting) == (4, 0)


class ScriptedDetector:
    """Finds one face whose landmarks scale with the picture, or none in a black one; keeps its picture, as RetinaFace
    does."""

    def detect_faces(self, image: NDArray[np.uint8], conf_threshold: float) -> NDArray[np.float32]:
        self.image = image
        if not image.any():
            return np.empty((0, 15), dtype=np.float32)
        height, width = image.shape[:2]
        landmarks = np.array([0.38, 0.45, 0.62, 0.45, 0.5, 0.6, 0.4, 0.72, 0.6, 0.72], dtype=np.float32)
        landmarks[0::2] *= width
        landmarks[1::2] *= height
        box = np.array([0.2 * width, 0.2 * height, 0.8 * width, 0.8 * height, 0.99], dtype=np.float32)
        return np.concatenate([box, landmarks])[None]


class Network(torch.nn.Module):
    """Answers like GFPGANv1Clean; fails on demand; waits at a barrier where there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: RuntimeError | None = None
        self.together: threading.Barrier | None = None

    def forward(self, x: torch.Tensor, *, return_rgb: bool, weight: float, randomize_noise: bool) -> Any:
        assert not randomize_noise
        if self.failure is not None:
            raise self.failure
        if self.together is not None:
            self.together.wait(20)
        return -x, []


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def make_session(package: Any, network: Network) -> Callable[[], FaceSession]:
    """Sessions over a genuine FaceRestoreHelper that has been given small parts instead of its downloads."""
    helper = object.__new__(package.FaceRestoreHelper)
    helper.upscale_factor = 2
    helper.template_3points = helper.pad_blur = False
    helper.crop_ratio, helper.face_size = (1, 1), (512, 512)
    template = [(192.98138, 239.94708), (318.90277, 240.1936), (256.63416, 314.01935), (201.26117, 371.41043)]
    helper.face_template = np.array([*template, (313.08905, 371.15118)])
    helper.use_parse, helper.device = True, CPU
    helper.face_det = ScriptedDetector()
    helper.face_parse = lambda face: [
        torch.nn.functional.one_hot(torch.ones(1, 512, 512).long(), 19).permute(0, 3, 1, 2)
    ]
    return face_sessions(network, helper, CPU)  # type: ignore[return-value]


def test_a_picture_comes_back_twice_as_large_and_the_session_forgets_it(
    make_session: Callable[[], FaceSession],
) -> None:
    session = make_session()
    job = Job(Picture(noise(80, 60), noise(80, 60, 1)[:, :, 0]))
    first, second = session(job), session(job)
    assert first.headers == {"X-Faces": "1"}
    assert first.picture is not None
    assert second.picture is not None
    assert first.picture.rgb.shape == (120, 160, 3)
    assert first.picture.alpha is not None
    assert first.picture.alpha.shape == (120, 160)
    assert np.array_equal(first.picture.rgb, second.picture.rgb)
    helper = session.restorer.face_helper
    assert helper.input_img is None
    assert helper.restored_faces == helper.cropped_faces == []


def test_without_a_face_nothing_is_passed_off_as_restored(make_session: Callable[[], FaceSession]) -> None:
    with pytest.raises(Problem) as caught:
        make_session()(Job(Picture(np.zeros((40, 40, 3), dtype=np.uint8))))
    assert caught.value.code == "no_face_found"


@pytest.mark.parametrize("failure", [torch.OutOfMemoryError("out of memory"), RuntimeError("shapes")])
def test_what_enhance_would_swallow_is_raised(
    make_session: Callable[[], FaceSession], network: Network, failure: RuntimeError
) -> None:
    network.failure = failure
    session = make_session()
    with pytest.raises(type(failure)) as caught:
        session(Job(Picture(noise(80, 60))))
    assert caught.value is failure
    assert session.restorer.face_helper.input_img is None


def test_two_sessions_over_shared_weights_never_mix_their_pictures(
    make_session: Callable[[], FaceSession], network: Network
) -> None:
    jobs = [Job(Picture(noise(width, height, seed=width))) for width, height in SIZES]
    alone = [make_session()(job).picture for job in jobs]
    network.together = threading.Barrier(2)
    sessions = [make_session() for _ in jobs]
    with ThreadPoolExecutor(2) as threads:
        together = [result.picture for result in threads.map(lambda session, job: session(job), sessions, jobs)]
    for one, other in zip(alone, together, strict=True):
        assert one is not None
        assert other is not None
        assert np.array_equal(one.rgb, other.rgb)
