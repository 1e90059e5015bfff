"""The targets of drawn retinas: all five grades, evenly many of each, in the form of `extremes.py`.

`fundus`: 500 training pictures; 250 of the same camera and 250 of the shifted ones as test; 500 more in four kinds of
corruption at five strengths, 25 pictures each, of the in-domain test. `fundus-small`: other patients, 100 training
pictures, 100 of the same camera and 100 of the shifted ones as test: what hyper-parameters are tuned on. Grades are those
that the fallible reader reports. The arrays are shipped: the drawing may differ by a grey level between processors
(`data/synthetic`), and a posterior is one of given data. They were made by

    python -m retinabench.fidelity.fundus src/retinabench/fidelity/shipped
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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.core.atomic_files import atomic_write
from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.data import synthetic
from retinabench.data.dataset import ArrayDataset, concatenate
from retinabench.data.preprocessing.pooling import BLOCK, SIZE, extremes
from retinabench.fidelity.targets.corruptions import CORRUPTIONS, STRENGTHS

GRADES = 5


class Study(NamedTuple):
    """How many pictures: for training, for each of the two tests, for each cell of kind and strength of corruption."""

    seed: int
    train: int
    test: int
    corrupted: int


STUDIES = {"fundus": Study(2026, 500, 250, 25), "fundus-small": Study(2027, 100, 100, 0)}


def load(source: Path | None, name: str = "fundus") -> ArrayDataset:
    """Return the shipped points, with the splits ``train`` and ``test``. Raises `InputError` where a source is given."""
    if source is not None:
        raise InputError(f"the data of '{name}' come with the package", hint="Leave --data out.")
    file = resources.files("retinabench.fidelity.reference").joinpath("shipped", f"{name}-data.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return concatenate(
            {
                part: ArrayDataset(*(arrays[f"{part}_{name}"] for name in ("inputs", "targets", "group")))
                for part in ("train", "test")
            }
        )


def draw(study: Study) -> tuple[ArrayDataset, ArrayDataset]:
    """Draw the points anew: minutes on one core, and on another processor perhaps a grey level off."""
    seed, size = study.seed, study.test
    train, of_train = chosen(study, "in_domain", study.train, start=0)
    test, _ = chosen(study, "in_domain", size, start=of_train)
    shifted, _ = chosen(study, "shifted", size, start=0)
    cells = [(kind, strength) for kind in CORRUPTIONS for strength in STRENGTHS]
    spoilt = [
        (seed, kind, strength, test[(study.corrupted * cell + k) % size])
        for cell, (kind, strength) in enumerate(cells)
        for k in range(study.corrupted)
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        own = list(workers.map(partial(picture, seed, "in_domain"), train + test, chunksize=10))
        foreign = list(workers.map(partial(picture, seed, "shifted"), shifted, chunksize=10))
        corrupted = list(workers.map(_corrupted, spoilt, chunksize=10))
    grades = [
        *_grades(seed, "in_domain", test),
        *_grades(seed, "shifted", shifted),
        *_grades(seed, "in_domain", [index for *_, index in spoilt]),
    ]
    groups = ["in_domain"] * size + ["shifted"] * size
    groups += [f"corrupted-{kind}-{strength}" for _, kind, strength, _ in spoilt]
    return (
        ArrayDataset(
            np.stack(own[: study.train]),
            np.array(_grades(seed, "in_domain", train), np.int64),
            np.full(study.train, "train"),
        ),
        ArrayDataset(
            np.stack([*own[study.train :], *foreign, *corrupted]),
            np.array(grades, np.int64),
            np.array(groups),
        ),
    )


def chosen(
    study: Study, population: synthetic.Population, pictures: int, start: int
) -> tuple[list[int], int]:
    """Return indices with equally many of each reported grade, in a mixed order, and the first one not looked at.

    Both start and end at a patient's first eye, so that no patient is in two parts.
    """
    left = dict.fromkeys(range(GRADES), pictures // GRADES)
    found: list[int] = []
    for index in count(start):
        grade = synthetic.truth(index, seed=study.seed, population=population).reported_grade
        if left[grade]:
            left[grade] -= 1
            found.append(index)
        if len(found) == pictures:
            break
    order = numpy_generator(study.seed, "fundus", population, start).permutation(pictures)
    return [found[k] for k in order], found[-1] // 2 * 2 + 2


def picture(seed: int, population: synthetic.Population, index: int) -> NDArray[np.uint8]:
    """Draw one picture in its small form, (28, 28, 3)."""
    return extremes(_drawn(seed, population, index))


def _grades(seed: int, population: synthetic.Population, indices: Iterable[int]) -> list[int]:
    return [synthetic.truth(index, seed=seed, population=population).reported_grade for index in indices]


def _drawn(seed: int, population: synthetic.Population, index: int) -> NDArray[np.uint8]:
    return synthetic.draw(index, size=BLOCK * SIZE, seed=seed, population=population, masks=False).image


def _corrupted(case: tuple[int, str, int, int]) -> NDArray[np.uint8]:
    seed, kind, strength, index = case
    generator = numpy_generator(seed, "corruption", kind, strength, index)
    return extremes(CORRUPTIONS[kind](_drawn(seed, "in_domain", index), strength, generator))


def _arrays(train: ArrayDataset, test: ArrayDataset) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for part, points in (("train", train), ("test", test)):
        yield f"{part}_inputs", points.inputs
        yield f"{part}_targets", points.targets
        yield f"{part}_group", points.groups


if __name__ == "__main__":
    for name, study in STUDIES.items():
        with atomic_write(Path(sys.argv[1]) / f"{name}-data.npz") as sink:
            np.savez_compressed(sink, **dict(_arrays(*draw(study))))  # type: ignore[arg-type]  # NumPy's stubs
