"""How fast the kernels are, on one core. Half a minute; with --json-pairs 1000000 some minutes.

    python -m benchmarks.compare_speed [--json-pairs 100000]

Pictures of 512 x 512, each pair decoded anew: equal pixels in different bytes of PNG; equivalent ones, as PNG that
differ in one strip, as JPEG beside PNG and as two JPEG that differ everywhere; and different ones. Beside it the plain
way: decode both and run scikit-image's SSIM on the full frames. Alternating runs, the median of each. JSON documents of
2 KB come as a stream; memory is what the process grew.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image
from skimage import data as pictures
from skimage.metrics import structural_similarity

from benchmarks.broken_pictures import Pixels, break_picture, encode
from compare.kernels.image import judge_image
from compare.kernels.json_kernel import judge_json
from compare.measurement import OutputClass
from compare.policy import ImageBands, Kind, Policy

ROUNDS = 7


def picture_pairs() -> list[tuple[str, OutputClass, bytes, bytes]]:
    """Return pairs by name, with the class that the kernel must find."""
    base: Pixels = pictures.astronaut()  # type: ignore[no-untyped-call]
    steps = np.random.default_rng(1).integers(-1, 2, (64, 512, 3))
    near = base.copy()
    near[100:164] = np.clip(near[100:164].astype(np.int16) + steps, 0, 255).astype(np.uint8)
    plain = encode(base, compress_level=1)
    damaged = encode(break_picture("tile damage", base), compress_level=1)
    return [
        ("identical", OutputClass.IDENTICAL, plain, encode(base, compress_level=9)),
        ("equivalent, one strip differs", OutputClass.EQUIVALENT, plain, encode(near, compress_level=1)),
        ("equivalent, PNG and JPEG", OutputClass.EQUIVALENT, plain, jpeg(base, 95)),
        ("equivalent, two JPEG", OutputClass.EQUIVALENT, jpeg(base, 95), jpeg(base, 92)),
        ("different", OutputClass.DIFFERENT, plain, damaged),
    ]


def jpeg(pixels: Pixels, quality: int) -> bytes:
    """Return the picture as JPEG with 4:4:4 colour."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=0)
    return buffer.getvalue()


def plain_way(a: bytes, b: bytes) -> float:
    """Return the SSIM of two encoded pictures over their full frames."""
    one, other = (np.asarray(Image.open(io.BytesIO(side)).convert("RGB")).astype(np.float32) for side in (a, b))
    return float(
        structural_similarity(
            one, other, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255, channel_axis=-1
        )  # type: ignore[no-untyped-call]
    )


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of one run on this process's own clock of CPU time, so that neighbours do not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


def compare_pictures() -> None:
    """Print the table of pictures."""
    print("| 512 x 512 pair | pairs/s and core | scikit-image SSIM, full frames | times faster |")
    print("|---|---|---|---|")
    bands = ImageBands()
    for name, expected, a, b in picture_pairs():
        found = judge_image(a, b, bands)
        if found.output_class is not expected:
            raise SystemExit(f"{name}: expected {expected}, the kernel says {found.output_class}")
        runs = [(timed(lambda: judge_image(a, b, bands)), timed(lambda: plain_way(a, b))) for _ in range(ROUNDS)]  # noqa: B023
        ours, plain = (statistics.median(run[at] for run in runs) for at in (0, 1))
        print(f"| {name} | {1 / ours:.0f} | {1 / plain:.0f} | {plain / ours:.1f} |")


def documents(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield pairs of documents of about 2 KB; one in ten differs in one value."""
    for n in range(count):
        items = [{"id": n * 100 + i, "label": f"class {i}", "score": round(0.5 + i / 100, 4)} for i in range(38)]
        a = json.dumps({"model": "net-1", "items": items}).encode()
        if n % 10 == 0:
            items[5]["score"] = 0.9
        yield a, json.dumps({"items": items, "model": "net-1"}).encode()


def compare_documents(count: int) -> None:
    """Print the rate and how far the peak of memory grew after the first thousand pairs."""
    policy = Policy("route", "cloud", "onprem", kind=Kind.JSON)
    sizes, wrong, spent = 0, 0, 0.0
    before = 0
    for number, (a, b) in enumerate(documents(count)):
        if number == min(1000, count - 1):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        found = judge_json(a, b, policy)
        spent += time.process_time() - began
        sizes += len(a)
        wrong += found.output_class is OutputClass.DIFFERENT
    if wrong != (count + 9) // 10:
        raise SystemExit(f"{wrong} pairs differ, {(count + 9) // 10} should")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{count:,} JSON pairs of {sizes / count / 1000:.1f} KB: {count / spent:,.0f} pairs/s and core, "
          f"memory grew by {grown:.0f} MiB\n")  # fmt: skip


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json-pairs", type=int, default=100_000)
    options = parser.parse_args()
    compare_documents(options.json_pairs)  # first, while nothing else has made the process grow
    compare_pictures()


if __name__ == "__main__":
    main()
