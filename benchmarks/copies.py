"""Precision and recall of the copies that `inspect` finds, on planted copies and on distinct eyes.

IDRiD's 516 photographs, of which six pairs have equal bytes and two pairs show one eye twice, and copies of some of them,
changed in fifteen ways, in one prepared folder; then the same with every photograph's contrast stretched over a noisy surround,
where the field of view is hardest to find. A found pair is right if both images come from one of the 508 eyes. Beside it,
drawn retinas, both eyes of each patient taken by one camera: every pair is compared mirrored too, as fellow eyes are alike.

    python benchmarks/copies.py --data /path/to/idrid [--part plain] [--size 64] [--copies 40] [--photographs 516]
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from retinabench.data.prepare import prepare
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.inspection.duplicates import duplicate_groups, read_pixels

Change = Callable[[Image.Image, np.random.Generator], Image.Image]
SAME = {
    frozenset(pair)
    for pair in (
        ("IDRiD_064_test", "IDRiD_118_train"), ("IDRiD_021_train", "IDRiD_391_train"),
        ("IDRiD_028_train", "IDRiD_327_train"), ("IDRiD_045_train", "IDRiD_333_train"),
        ("IDRiD_073_train", "IDRiD_375_train"), ("IDRiD_079_train", "IDRiD_279_train"),
        ("IDRiD_013_train", "IDRiD_397_train"), ("IDRiD_043_train", "IDRiD_401_train"),
    )
}  # fmt: skip


def saved(image: Image.Image, quality: int) -> Image.Image:
    """Save as JPEG and read again."""
    sink = io.BytesIO()
    image.save(sink, "JPEG", quality=quality)
    return Image.open(sink).convert("RGB")


def lightened(image: Image.Image, gamma: float) -> Image.Image:
    """Change the exposure."""
    return image.point([round(255 * (level / 255) ** gamma) for level in range(256)] * 3)


def stretched(
    image: Image.Image, random: np.random.Generator, gamma: float = 0.6, noise: float = 5
) -> Image.Image:
    """Stretch each channel over a noisy, lightened surround."""
    levels = np.asarray(image, float) + 10 + random.normal(0, noise, (*image.size[::-1], 3))
    low, high = np.percentile(levels, [0.5, 99.5], axis=(0, 1))
    return Image.fromarray((255 * ((levels - low) / (high - low)).clip(0, 1) ** gamma).astype(np.uint8))


def cropped(image: Image.Image, left: float, top: float, right: float, bottom: float) -> Image.Image:
    """Cut shares of the sides off."""
    width, height = image.size
    box = (left * width, top * height, (1 - right) * width, (1 - bottom) * height)
    return image.crop(tuple(round(edge) for edge in box))


CHANGES: dict[str, Change] = {
    "saved again, quality 30": lambda image, random: saved(image, 30),
    "resized to 40 %": lambda image, random: image.resize((image.width * 2 // 5, image.height * 2 // 5)),
    "turned by 90°": lambda image, random: image.transpose(Image.Transpose.ROTATE_90),
    "turned by 180°": lambda image, random: image.transpose(Image.Transpose.ROTATE_180),
    "turned by 7°": lambda image, random: image.rotate(7, Image.Resampling.BICUBIC, expand=True),
    "turned by 37°": lambda image, random: image.rotate(37, Image.Resampling.BICUBIC, expand=True),
    "mirrored": lambda image, random: ImageOps.mirror(image),
    "darker, gamma 1.7": lambda image, random: lightened(image, 1.7),
    "lighter, gamma 0.6": lambda image, random: lightened(image, 0.6),
    "contrast stretched, noisy": lambda image, random: stretched(image, random),
    "blurred, 3 px": lambda image, random: image.filter(ImageFilter.GaussianBlur(3)),
    "colours shifted": lambda image, random: Image.fromarray(
        (np.asarray(image) * np.array([0.8, 1.2, 1.5])).clip(0, 255).astype(np.uint8)
    ),
    "cropped by 2 to 12 %": lambda image, random: cropped(image, 0.12, 0.05, 0.02, 0),
    "cropped by 10 % all around": lambda image, random: cropped(image, 0.1, 0.1, 0.12, 0.1),
    "mirrored, turned, saved, darker": lambda image, random: saved(
        lightened(ImageOps.mirror(image).rotate(12, Image.Resampling.BICUBIC, expand=True), 1.4), 40
    ),
}


def plant(data: Path, folder: Path, photographs: int, copies: int, *, all_stretched: bool) -> None:
    """Write photographs and planted copies, all of grade 0, as a folder of one's own images."""
    (folder / "images").mkdir(parents=True)
    random = np.random.default_rng(0)
    names = sorted(path.stem for path in (data / "images").iterdir())[:photographs]
    chosen = {str(name) for name in random.choice(names, copies, replace=False)}
    rows = ["image,grade"]
    for name in names:
        image = Image.open(data / "images" / f"{name}.jpg").convert("RGB")
        whole = stretched(image, random) if all_stretched else image
        saved(whole, 92).save(folder / "images" / f"{name}.jpg", quality=92)
        rows.append(f"{name}.jpg,0")
        if name in chosen:
            for number, change in enumerate(CHANGES.values()):
                copy = change(image, random)
                copy = stretched(copy, random) if all_stretched else copy
                copy.save(folder / "images" / f"{name}+{number}.jpg", quality=92)
                rows.append(f"{name}+{number}.jpg,0")
    (folder / "labels.csv").write_text("\n".join(rows))


Names = list[tuple[str, str]]


def found(prepared: Path) -> tuple[Names, Names, int, float]:
    """Find the copies in a prepared folder.

    Returns:
        The pairs that are found, all pairs within the groups that they join, the number of images, and the seconds.
    """
    data = open_prepared(prepared)
    began = time.perf_counter()
    split, classes = np.full(len(data.records), "train"), np.zeros(len(data.records), np.int8)
    groups = duplicate_groups(data, split, classes, None, read_pixels(data))
    seconds = time.perf_counter() - began
    names = [str(name).removesuffix(".jpg") for name in data.records.image_id]
    pairs = [(names[i], names[j]) for group in groups for pair in group.pairs for i, j in [pair.rows]]
    joined = [(names[i], names[j]) for group in groups for i, j in combinations(group.rows, 2)]
    return pairs, joined, len(names), seconds


def is_right(one: str, other: str) -> bool:
    """Tell whether two images show one eye."""
    eyes = {one.partition("+")[0], other.partition("+")[0]}
    return len(eyes) == 1 or eyes in SAME


def report(title: str, copies: int, pairs: Names, joined: Names, images: int, seconds: float) -> None:
    """Print the table of one folder."""
    right = [pair for pair in pairs if is_right(*pair)]
    print(f"\n{title}: {images:,} images, {seconds:.0f} s; {len(pairs):,} pairs found, {len(right):,} right")
    for pair in pairs:
        if not is_right(*pair):
            print(f"  wrong: {pair[0]}, {pair[1]}")
    print(f"  known pairs of IDRiD: {len({frozenset(pair) for pair in joined} & SAME)} of {len(SAME)}")
    counts: Counter[int] = Counter()
    for pair in joined:
        original, copy = sorted(pair, key=len)
        if copy.partition("+")[0] == original:
            counts[int(copy.partition("+")[2])] += 1
    for number, change in enumerate(CHANGES):
        print(f"  {change}: {counts[number]} of {copies}")


def drawn(images: int, size: int) -> str:
    """Return what is found among drawn retinas, both eyes of each patient."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "drawn"
        data = prepare("synthetic", out, recipe=Recipe(size), images=images, seed=0, workers=2)
        patients = len(np.unique(data.records.patient_id))
        pairs, _, number, seconds = found(out)
    return f"\ndrawn, {number:,} images of {patients:,} patients, {size} px: {seconds:.0f} s, {len(pairs)} pairs found, none right"


def main() -> None:
    """Run the measurement and print its tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True, help="IDRiD: labels.csv and images/")
    arguments.add_argument("--size", type=int, default=64)
    arguments.add_argument("--copies", type=int, default=40, help="photographs of which copies are planted")
    arguments.add_argument("--photographs", type=int, default=516, help="how many of them")
    arguments.add_argument("--part", choices=("all", "plain", "stretched", "drawn"), default="all")
    given = arguments.parse_args()
    for part in ("plain", "stretched"):
        if given.part not in (part, "all"):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            source, out = Path(scratch) / "raw", Path(scratch) / "prepared"
            plant(given.data, source, given.photographs, given.copies, all_stretched=part == "stretched")
            prepare("folder", out, recipe=Recipe(given.size), source=source, workers=2)
            title = "every photograph stretched" if part == "stretched" else "photographs as they are"
            report(f"{title}, {given.size} px", given.copies, *found(out))
    if given.part in ("drawn", "all"):
        print(drawn(1000, given.size))


if __name__ == "__main__":
    main()
