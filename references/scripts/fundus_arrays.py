"""How the shipped arrays of `fundus` and `fundus-small` were drawn.

Both targets have synthetic fundus images of all five grades, equally many of each, pooled to 28 px
(`data.preprocessing.pooling`); grades are those that a fallible reader reports. `fundus`: 500 training images; as test
points 250 images of the same camera, 250 of the shifted one, and 500 more in four kinds of corruption at five strengths,
25 images each, of the in-domain test. `fundus-small`, on which settings are tuned: other patients, 100 training images,
and 100 of each camera as test points. The arrays are shipped, because rendering may differ by a grey level between
processors, and a posterior is that of given data. They were made by

    python references/scripts/fundus_arrays.py src/retinabench/fidelity/reference/shipped

The corruptions follow the kinds of CIFAR-10-C. They damage small images of known truth; those of real cameras, which
`retinabench prepare --corrupt` makes, are in `data.preprocessing.corruption`.

References:
    Hendrycks & Dietterich 2019, "Benchmarking neural network robustness to common corruptions and perturbations".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from retinabench.core.files import atomic_write
from retinabench.core.random_streams import numpy_generator
from retinabench.data.dataset import ArrayDataset
from retinabench.data.preprocessing.corruption import STRENGTHS, add_noise, multiply, to_bytes
from retinabench.data.preprocessing.graham import BLOCK, SIZE, extremes
from retinabench.data.synthetic import fundus, streams

GRADES = 5

Image = NDArray[np.uint8]


class ImageCounts(NamedTuple):
    """Numbers of images: for training, for each of the two tests, for each kind and strength of corruption."""

    seed: int
    train: int
    test: int
    corrupted: int


PLANS = {"fundus": ImageCounts(2026, 500, 250, 25), "fundus-small": ImageCounts(2027, 100, 100, 0)}


def _noise(image: Image, strength: int, generator: np.random.Generator) -> Image:
    """Add Gaussian noise with a std of 4 to 26 grey levels."""
    std = (4, 8, 12, 18, 26)[strength - 1]
    return add_noise(image, std, generator)


def _blur(image: Image, strength: int, generator: np.random.Generator) -> Image:
    """Blur by a Gaussian with a std of 1 to 5 pixels."""
    std = (1.0, 1.5, 2.5, 3.5, 5.0)[strength - 1]
    return to_bytes(gaussian_filter(image.astype(np.float64), (std, std, 0)))


def _brightness(image: Image, strength: int, generator: np.random.Generator) -> Image:
    """Multiply by 1.2 to 2.2: the bright parts saturate."""
    return multiply(image, (1.2, 1.4, 1.6, 1.9, 2.2)[strength - 1])


def _pixelation(image: Image, strength: int, generator: np.random.Generator) -> Image:
    """Keep one pixel in every block of 2 to 7."""
    block = (2, 3, 4, 5, 7)[strength - 1]
    rows, columns = (np.arange(side) // block * block for side in image.shape[:2])
    return image[np.ix_(rows, columns)]


CORRUPTIONS: dict[str, Callable[[Image, int, np.random.Generator], Image]] = {
    "noise": _noise,
    "blur": _blur,
    "brightness": _brightness,
    "pixelation": _pixelation,
}


def draw(plan: ImageCounts) -> tuple[ArrayDataset, ArrayDataset]:
    """Draw training and test points: minutes on one core, and on another processor perhaps a grey level off."""
    seed, size = plan.seed, plan.test
    train, of_train = choose(plan, "in_domain", plan.train, start=0)
    test, _ = choose(plan, "in_domain", size, start=of_train)
    shifted, _ = choose(plan, "shifted", size, start=0)
    cells = [(kind, strength) for kind in CORRUPTIONS for strength in STRENGTHS]
    cases = [
        (seed, kind, strength, test[(plan.corrupted * cell + k) % size])
        for cell, (kind, strength) in enumerate(cells)
        for k in range(plan.corrupted)
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        own = list(workers.map(partial(draw_pooled, seed, "in_domain"), train + test, chunksize=10))
        foreign = list(workers.map(partial(draw_pooled, seed, "shifted"), shifted, chunksize=10))
        corrupted = list(workers.map(_corrupted, cases, chunksize=10))
    grades = [
        *_grades(seed, "in_domain", test),
        *_grades(seed, "shifted", shifted),
        *_grades(seed, "in_domain", [index for *_, index in cases]),
    ]
    groups = ["in_domain"] * size + ["shifted"] * size
    groups += [f"corrupted-{kind}-{strength}" for _, kind, strength, _ in cases]
    return (
        ArrayDataset(
            np.stack(own[: plan.train]),
            np.array(_grades(seed, "in_domain", train), np.int64),
            np.full(plan.train, "train"),
        ),
        ArrayDataset(
            np.stack([*own[plan.train :], *foreign, *corrupted]), np.array(grades, np.int64), np.array(groups)
        ),
    )


def choose(plan: ImageCounts, population: streams.Population, images: int, start: int) -> tuple[list[int], int]:
    """Choose images with equally many of each reported grade."""
    left = dict.fromkeys(range(GRADES), images // GRADES)
    found: list[int] = []
    for index in count(start):
        grade = fundus.truth(index, seed=plan.seed, population=population).reported_grade
        if left[grade]:
            left[grade] -= 1
            found.append(index)
        if len(found) == images:
            break
    order = numpy_generator(plan.seed, "fundus", population, start).permutation(images)
    return [found[k] for k in order], found[-1] // 2 * 2 + 2


def draw_pooled(seed: int, population: streams.Population, index: int) -> Image:
    """Draw one image and pool it, (28, 28, 3)."""
    return extremes(_drawn(seed, population, index))


def _grades(seed: int, population: streams.Population, indices: Iterable[int]) -> list[int]:
    return [fundus.truth(index, seed=seed, population=population).reported_grade for index in indices]


def _drawn(seed: int, population: streams.Population, index: int) -> Image:
    return fundus.draw(index, size=BLOCK * SIZE, seed=seed, population=population, masks=False).image


def _corrupted(case: tuple[int, str, int, int]) -> Image:
    seed, kind, strength, index = case
    generator = numpy_generator(seed, "corruption", kind, strength, index)
    return extremes(CORRUPTIONS[kind](_drawn(seed, "in_domain", index), strength, generator))


def _write(folder: Path) -> None:
    for name, plan in PLANS.items():
        arrays = {
            f"{part}_{column}": values
            for part, points in zip(("train", "test"), draw(plan), strict=True)
            for column, values in (("inputs", points.inputs), ("targets", points.targets), ("group", points.groups))
        }
        with atomic_write(folder / f"{name}-data.npz") as sink:
            np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]  # NumPy's stubs


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
