"""Images per second on one core: ours against the released pipeline in OpenCV, and against decoding alone.

    python benchmarks/prepare.py IMAGE… [--size 512] [--rounds 15] [--side 256]

Without images it draws one of 4288 x 2848 pixels, which compresses worse than a real one. Every round times all contestants one after the other on the
same images, in processor time; printed are medians over the rounds. The opponent is the Retina Benchmark's pipeline: OpenCV decodes all pixels, scales
to a radius of 300, subtracts the Gaussian, masks, crops and encodes a JPEG, on one thread; the second one decodes at the smallest scale that keeps that
radius. The limit is Pillow decoding at the reduced scale that ours asks for, and nothing else. `--side` first cuts out the fields of view, at this side.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import io
import statistics
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from toolkit import parse, seconds

from retinabench.data.preprocessing.graham import square_box, working_side
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes
from retinabench.data.synthetic.fundus import draw

EYEPACS = 88_702  # images


def opencv(data, size, flags=cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH):
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    row = image[image.shape[0] // 2].sum(axis=1)
    scale = 300 / ((row > row.mean() / 10).sum() / 2)
    image = cv2.resize(image, (0, 0), fx=scale, fy=scale)
    image = cv2.addWeighted(image, 4, cv2.GaussianBlur(image, (0, 0), 10), -4, 128)
    mask = np.zeros(image.shape)
    x, y = image.shape[1] // 2, image.shape[0] // 2
    cv2.circle(mask, (x, y), 270, (1, 1, 1), -1, 8, 0)
    image = (image * mask + (1 - mask) * 128)[max(y - 270, 0) : y + 270, max(x - 270, 0) : x + 270]
    return cv2.imencode(".jpg", image.astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 72])[1]


def opencv_reduced(data, size):
    with Image.open(io.BytesIO(data)) as opened:
        least = min(opened.size)
    reduced = [name for name in (8, 4, 2) if least / name >= 600]
    return opencv(data, size, getattr(cv2, f"IMREAD_REDUCED_COLOR_{reduced[0]}") if reduced else cv2.IMREAD_COLOR)


def small(data, side):
    sink = io.BytesIO()
    with Image.open(io.BytesIO(data)) as opened:
        rgb = opened.convert("RGB")
        rgb.crop(square_box(rgb)).resize((side, side), Image.Resampling.LANCZOS).save(sink, "JPEG", quality=92)
    return sink.getvalue()


def decode_only(data, size):
    with Image.open(io.BytesIO(data)) as opened:
        opened.draft("RGB", (working_side(size),) * 2)
        opened.load()


def ours(*recipe):
    return lambda data, size: preprocess_bytes(data, Recipe(size, *recipe), "")


CONTESTANTS = {
    "OpenCV, as released": opencv, "OpenCV, reduced decoding": opencv_reduced, "decoding alone, reduced": decode_only, "graham, corrected": ours("graham", 30),
    "graham, corrected, blur 5": ours("graham", 5), "graham, published": ours("graham", 30, True),
    "crop": ours("crop"), "none": ours("none"),
}  # fmt: skip


def drawn():
    retina = Image.fromarray(draw(0, size=512, masks=False).image).resize((2848, 2848))
    frame = Image.new("RGB", (4288, 2848))
    frame.paste(retina, (720, 0))
    sink = io.BytesIO()
    frame.save(sink, "JPEG", quality=85)
    return sink.getvalue()


def each(contestant, images, size):
    return seconds(lambda: [contestant(data, size) for data in images], time.process_time) / len(images)


def peak(name, paths, size, side):
    arguments = [sys.executable, __file__, *paths, "--size", str(size), "--peak", name, "--side", str(side)]
    return float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def main():
    chosen = parse(__doc__, images=(), size=512, rounds=15, side=0, peak="")
    cv2.setNumThreads(1)
    images = [Path(path).read_bytes() for path in chosen.images] or [drawn()]
    if chosen.side:
        images = [small(data, chosen.side) for data in images]
    if chosen.peak:
        each(CONTESTANTS[chosen.peak], images, chosen.size)
        # Not `ru_maxrss`, which a process inherits from the one that starts it.
        status = Path("/proc/self/status").read_text()
        print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)
        return
    rounds = []
    for number in range(chosen.rounds + 1):
        took = {name: each(contestant, images, chosen.size) for name, contestant in CONTESTANTS.items()}
        rounds += [took] if number else []  # the first warms the caches up
    print(f"{len(images)} images, to {chosen.size} px, {chosen.rounds} rounds, one core")
    print(f"{'':28s}  images/s  x OpenCV  x reduced  x decoding  peak MB  EyePACS, 1 core")
    for name in CONTESTANTS:
        middle = statistics.median(took[name] for took in rounds)
        faster = statistics.median(took["OpenCV, as released"] / took[name] for took in rounds)
        reduced = statistics.median(took["OpenCV, reduced decoding"] / took[name] for took in rounds)
        slower = statistics.median(took[name] / took["decoding alone, reduced"] for took in rounds)
        memory = peak(name, chosen.images, chosen.size, chosen.side)
        hours = EYEPACS * middle / 3600
        print(f"{name:28s}{1 / middle:10.1f}{faster:10.2f}{reduced:11.2f}{slower:12.2f}{memory:9.0f}{hours:15.2f} h")
    full = "at 512 px of full files 2 x OpenCV, at most 2 x decoding"
    print(f"required of graham, corrected: at least 1 x both of OpenCV; {full}")


if __name__ == "__main__":
    main()
