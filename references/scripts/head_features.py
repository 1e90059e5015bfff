"""How the shipped features of `idrid-head` and `drawn-head` were made.

Images at 320 px pass the trunk of the preset `real/frozen`, EfficientNet-Lite0 trained on ImageNet; of its 2,560 features, standardised over
the training images, the first 8 principal components of the training images are kept, scaled to a std of 1 there. Training
and in-domain test images are undamaged; `corrupted` are test images under each kind of damage of `data.preprocessing.corruption` at five
strengths, 8 images each; another camera is drawn: `drawn` for IDRiD, `shifted` for the drawn retinas. Targets are grades.

The images of IDRiD are by Porwal et al. 2018, "Indian Diabetic Retinopathy Image Dataset", doi 10.21227/H25W98, licence CC BY 4.0; the
features are derived from them and shipped under the same licence. They were made, from IDRiD as `retinabench prepare` made it at 320 px, by

    python references/scripts/head_features.py data/idrid-320 src/retinabench/fidelity/reference/shipped

They are shipped because a trunk gives other last digits on another processor, and a posterior is that of given data.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fundus_arrays import GRADES, ImageCounts, choose
from retinabench.core.files import atomic_write
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS, Corruption, corrupt
from retinabench.data.synthetic import fundus, streams
from retinabench.experiments.features import Extractor, feature_scale
from retinabench.models.settings import ModelConfig

TRUNK = ModelConfig(name="efficientnet_lite0", weights="imagenet", pool="mean_max", trained="head")
SIZE, KEPT = 320, 8
PER_CELL = 8  # damaged images of each kind and strength
PLAN = ImageCounts(2028, 150, 150, PER_CELL)
FOREIGN = 100  # images of the other camera
GRAIN = 2**-12

Images = Sequence[NDArray[np.uint8]]
Part = tuple[Images, NDArray[np.int64], list[str]]


def principal(features: NDArray[np.float32], train: int) -> NDArray[np.float32]:
    """Return the first `KEPT` principal components (N, 8) of features (N, D), fitted on the first `train` rows."""
    mean, std = feature_scale(features[:train])
    scaled = ((features - mean) / std).astype(np.float64)
    _, _, axes = np.linalg.svd(scaled[:train], full_matrices=False)
    axes = axes[:KEPT] * np.sign(axes[:KEPT].sum(axis=1, keepdims=True))  # the sign of an axis is arbitrary
    found = scaled @ axes.T
    kept: NDArray[np.float32] = (np.rint(found / found[:train].std(axis=0) / GRAIN) * GRAIN).astype(np.float32)
    return kept


def damaged(images: Images, grades: NDArray[np.int64], names: Sequence[str]) -> Part:
    """Return test images under every kind and strength of damage, taken in turn.

    Shapes: `images` (H, W, 3).
    """
    cells = [(kind, strength) for kind in KINDS for strength in STRENGTHS for _ in range(PER_CELL)]
    rows = [k % len(images) for k in range(len(cells))]
    found = [
        corrupt(images[row], Corruption(kind, strength), names[row])
        for row, (kind, strength) in zip(rows, cells, strict=True)
    ]
    return found, grades[rows], [f"corrupted-{kind}-{strength}" for kind, strength in cells]


def idrid_parts(folder: Path) -> list[Part]:
    """Return training images, test images, damaged ones and drawn ones of IDRiD."""
    prepared = open_prepared(folder)
    records = prepared.records
    found: list[Part] = []
    for split, group in (("train", "train"), ("test", "in_domain")):
        rows = np.flatnonzero(records.split == split)
        rows = rows[np.argsort(records.image_id[rows])]
        found.append((list(prepared.images(rows)), records.grade[rows].astype(np.int64), [group] * len(rows)))
    names = sorted(records.image_id[records.split == "test"].tolist())
    return [*found, damaged(found[1][0], found[1][1], names), _drawn("shifted", FOREIGN, 0, "drawn")[0]]


def drawn_parts() -> list[Part]:
    """Return training images, test images, damaged ones and those of another camera, all drawn."""
    train, start = _drawn("in_domain", PLAN.train, 0, "train")
    test, _ = _drawn("in_domain", PLAN.test, start, "in_domain")
    names = [f"test-{k}" for k in range(len(test[0]))]
    return [train, test, damaged(test[0], test[1], names), _drawn("shifted", FOREIGN, 0, "shifted")[0]]


def _drawn(population: streams.Population, images: int, start: int, group: str) -> tuple[Part, int]:
    """Draw images with equally many of each grade from an index on; return them, and the first index not looked at."""
    chosen, end = choose(PLAN, population, images // GRADES * GRADES, start)
    found = [
        fundus.draw(index, size=SIZE, seed=PLAN.seed, population=population, masks=False).image for index in chosen
    ]
    grades = [fundus.truth(index, seed=PLAN.seed, population=population).reported_grade for index in chosen]
    return (found, np.array(grades, np.int64), [group] * len(chosen)), end


def _write(path: Path, parts: list[Part]) -> None:
    extract = Extractor(TRUNK, torch.device("cpu"))
    images = [image for part in parts for image in part[0]]
    features = np.concatenate([extract(np.stack(images[k : k + 32])) for k in range(0, len(images), 32)])
    train = len(parts[0][0])
    inputs = principal(features, train)
    grades, groups = (np.concatenate([part[1] for part in parts]), np.array([g for part in parts for g in part[2]]))
    arrays = {
        f"{name}_{column}": values[rows]
        for name, rows in (("train", slice(train)), ("test", slice(train, None)))
        for column, values in (("inputs", inputs), ("targets", grades), ("group", groups))
    }
    with atomic_write(path) as sink:
        np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]  # NumPy's stubs


if __name__ == "__main__":
    source, out = map(Path, sys.argv[1:3])
    _write(out / "idrid-head-data.npz", idrid_parts(source))
    _write(out / "drawn-head-data.npz", drawn_parts())
