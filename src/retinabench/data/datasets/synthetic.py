"""Synthetic retinas as a data set: which drawn images form which split.

Images and truth come from `data.synthetic`; the splits are those of a study like Country Shift. For
`images` training images: validation images/4, test 3*images/8 by the in-domain camera; validation images/8, test
images/4 by the shifted camera; or `counts` of these five parts. Fellow eyes are in one split: every part has an even number
of images.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.data.dataset import Records, join, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import Survey
from retinabench.data.preprocessing.preprocess import Recipe, preprocess
from retinabench.data.synthetic.fundus import draw, truth

STEPS = "They are drawn: retinabench prepare synthetic --out data/synthetic"
PARTS = (
    ("in_domain", "train", 1.0), ("in_domain", "validation", 1 / 4), ("in_domain", "test", 3 / 8),
    ("shifted", "validation", 1 / 8), ("shifted", "test", 1 / 4),
)  # fmt: skip
MOST_IMAGES = 1_000_000


def records(
    source: Path | None, images: int = 3200, seed: int = 0, *, counts: Sequence[int] = (), survey: Survey | None = None
) -> Records:
    if source is not None:
        raise InputError("synthetic retinas are drawn, not read", hint="Leave --source out.")
    if images < 32:
        raise InputError(f"{images} training images cannot fill the splits", hint="Use at least 32 (--images).")
    if images > MOST_IMAGES:
        hint = "Give fewer --images."
        raise InputError(f"{images:,} training images are more than are drawn ({MOST_IMAGES:,})", hint=hint)
    first = {"in_domain": 0, "shifted": 0}
    parts = []
    for part, (domain, split, share) in enumerate(PARTS):
        count = 2 * round((counts[part] if counts else images * share) / 2)
        parts.append(_part(domain, split, range(first[domain], first[domain] + count), seed))
        first[domain] += count
    return join(parts)


def _part(domain: str, split: str, indices: range, seed: int) -> Records:
    truths = [truth(index, seed=seed, population=domain) for index in indices]
    return make_records(
        (f"{domain}-{index:06d}" for index in indices),
        (truth.reported_grade for truth in truths),
        patient_id=(f"{domain}-p{truth.patient:06d}" for truth in truths),
        eye=(truth.eye for truth in truths),
        domain=domain,
        split=split,
        source=(f"{seed}:{domain}:{index}" for index in indices),
        p_referable=[truth.p_referable for truth in truths],
    )


def read(source: str, root: Path | None, recipe: Recipe) -> NDArray[np.uint8]:
    """Draw and return one image (size, size, 3); its field of view fills the square, as with `crop`."""
    seed, population, index = source.split(":")
    drawn = draw(int(index), size=recipe.size, seed=int(seed), population=population, masks=False).image
    return drawn if recipe.preprocess == "crop" else preprocess(Image.fromarray(drawn), recipe)


DATASET = ImageDataset(records, STEPS, read=read, options=("images", "seed"), needs_source=False)
