"""Stripes: synthetic grey images whose referable cases have stripes of high contrast.

| | |
|---|---|
| input | synthetic images of any size |
| label | grade 0-4, drawn uniformly; the contrast of the stripes is 10 grey levels per grade |
| population | none |
| camera | none; the shifted images are darker |
| splits | training, validation and test images of both domains |
| patients | every image is its own patient |
| known traps | none |
| licence | Apache-2.0, as this package |
| citation | none |
| how to get it | `STEPS` below |
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.data.dataset import Records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import Survey
from retinabench.data.preprocessing.preprocess import Recipe, preprocess

STEPS = "They are drawn: retinabench prepare stripes --images 64 --size 32 --out data/stripes"
SHARES = {("in_domain", "train"): 2, ("in_domain", "validation"): 1, ("in_domain", "test"): 1,
          ("shifted", "validation"): 1, ("shifted", "test"): 1}  # fmt: skip


def records(source: Path | None, images: int = 64, seed: int = 0, *, survey: Survey | None = None) -> Records:
    """Return the rows of all splits.

    Args:
        source: Unused: there are no files.
        images: Number of training images; every other part has half as many.
        seed: Seed of the grades and images.
        survey: Unused: there are no labels without images.
    """
    parts = [key for key, share in SHARES.items() for _ in range(share * images // 2)]
    grade = np.random.default_rng(seed).integers(0, 5, len(parts)).astype(np.int8)
    image_id = np.array([f"stripes-{k}" for k in range(len(parts))])
    return Records(
        image_id=image_id,
        patient_id=image_id,
        eye=np.full(len(parts), ""),
        grade=grade,
        domain=np.array([domain for domain, _ in parts]),
        split=np.array([split for _, split in parts]),
        source=np.array(
            [f"{seed}:{k}:{g}:{domain}" for k, (g, (domain, _)) in enumerate(zip(grade, parts, strict=True))]
        ),
        p_referable=(grade >= 2).astype(np.float64),
    )


def read(source: str, root: Path | None, recipe: Recipe) -> NDArray[np.uint8]:
    """Draw one image (size, size, 3) from its `Records.source`."""
    seed, number, grade, domain = source.split(":")
    noise = np.random.default_rng([int(seed), int(number)]).normal(0, 5, (recipe.size, recipe.size))
    stripes = 10 * int(grade) * (np.arange(recipe.size) // 4 % 2)
    grey = np.clip((80 if domain == "shifted" else 120) + stripes + noise, 0, 255).astype(np.uint8)
    return preprocess(Image.fromarray(grey).convert("RGB"), recipe)


DATASET = ImageDataset(records, STEPS, read=read, options=("images", "seed"), needs_source=False)
