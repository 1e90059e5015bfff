"""The target `fundus`: drawn retinas of all five grades, evenly many of each, in the form of `extremes.py`.

500 training pictures; 250 of the same camera and 250 of the shifted ones as test; 500 more in four kinds of corruption
at five strengths, 25 pictures each, of the in-domain test. Grades are those that the fallible reader reports. The
arrays are shipped: the drawing may differ by a grey level between processors (`data/synthetic`), and a posterior is
one of given data. They were made by

    python -m retinabench.fidelity.fundus src/retinabench/fidelity/shipped/fundus-data.npz
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import resources
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.data import synthetic
from retinabench.errors import InputError
from retinabench.fidelity.corruptions import CORRUPTIONS, STRENGTHS
from retinabench.fidelity.extremes import BLOCK, SIZE, extremes
from retinabench.fidelity.points import Points
from retinabench.seeds import numpy_generator
from retinabench.store import atomic_write

SEED = 2026
GRADES = 5
TRAIN, TEST, CORRUPTED = 500, 250, 25
SHIPPED = "fundus-data.npz"


def load(source: Path | None) -> tuple[Points, Points]:
    """Return the shipped points. Raises `InputError` where a source is given."""
    if source is not None:
        raise InputError("the data of 'fundus' come with the package", cure="Leave --data out.")
    file = resources.files("retinabench.fidelity").joinpath("shipped", SHIPPED)
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return tuple(  # type: ignore[return-value]
            Points(arrays[f"{part}_inputs"], arrays[f"{part}_targets"], arrays[f"{part}_group"])
            for part in ("train", "test")
        )


def draw() -> tuple[Points, Points]:
    """Draw the points anew: minutes on one core, and on another processor perhaps a grey level off."""
    train, of_train = _patients("in_domain", TRAIN, start=0)
    test, _ = _patients("in_domain", TEST, start=of_train)
    shifted, _ = _patients("shifted", TEST, start=0)
    cells = [(kind, strength) for kind in CORRUPTIONS for strength in STRENGTHS]
    spoilt = [
        (kind, strength, test[(CORRUPTED * cell + k) % TEST])
        for cell, (kind, strength) in enumerate(cells)
        for k in range(CORRUPTED)
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        own = list(workers.map(partial(_picture, "in_domain"), train + test, chunksize=10))
        foreign = list(workers.map(partial(_picture, "shifted"), shifted, chunksize=10))
        corrupted = list(workers.map(_corrupted, spoilt, chunksize=10))
    return (
        Points(np.stack(own[:TRAIN]), _grades("in_domain", train), np.full(TRAIN, "train")),
        Points(
            np.stack([*own[TRAIN:], *foreign, *corrupted]),
            np.concatenate(
                [
                    _grades("in_domain", test),
                    _grades("shifted", shifted),
                    _grades("in_domain", [index for *_, index in spoilt]),
                ]
            ),
            np.array(
                ["in_domain"] * TEST
                + ["shifted"] * TEST
                + [f"corrupted-{kind}-{strength}" for kind, strength, _ in spoilt]
            ),
        ),
    )


def _patients(population: synthetic.Population, pictures: int, start: int) -> tuple[list[int], int]:
    """Return indices with equally many of each reported grade, in a mixed order, and the first one not looked at.

    Both start and end at a patient's first eye, so that no patient is in two parts.
    """
    left = dict.fromkeys(range(GRADES), pictures // GRADES)
    chosen: list[int] = []
    for index in count(start):
        grade = synthetic.truth(index, seed=SEED, population=population).reported_grade
        if left[grade]:
            left[grade] -= 1
            chosen.append(index)
        if len(chosen) == pictures:
            break
    order = numpy_generator(SEED, "fundus", population, start).permutation(pictures)
    return [chosen[k] for k in order], chosen[-1] // 2 * 2 + 2


def _grades(population: synthetic.Population, indices: Iterable[int]) -> NDArray[np.int64]:
    return np.array(
        [synthetic.truth(index, seed=SEED, population=population).reported_grade for index in indices],
        np.int64,
    )


def _drawn(population: synthetic.Population, index: int) -> NDArray[np.uint8]:
    return synthetic.draw(index, size=BLOCK * SIZE, seed=SEED, population=population, masks=False).image


def _picture(population: synthetic.Population, index: int) -> NDArray[np.uint8]:
    return extremes(_drawn(population, index))


def _corrupted(case: tuple[str, int, int]) -> NDArray[np.uint8]:
    kind, strength, index = case
    generator = numpy_generator(SEED, "corruption", kind, strength, index)
    return extremes(CORRUPTIONS[kind](_drawn("in_domain", index), strength, generator))


def _arrays(train: Points, test: Points) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for part, points in (("train", train), ("test", test)):
        yield f"{part}_inputs", points.inputs
        yield f"{part}_targets", points.targets
        yield f"{part}_group", points.group


if __name__ == "__main__":
    with atomic_write(Path(sys.argv[1])) as sink:
        np.savez_compressed(sink, **dict(_arrays(*draw())))  # type: ignore[arg-type]  # NumPy's stubs
