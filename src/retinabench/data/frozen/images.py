"""The images of a frozen benchmark: drawn or prepared, and compared with their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.data.datasets.synthetic import read
from retinabench.data.frozen.definition import HASH_BYTES, FrozenBenchmark, listing_sha256, truth_of
from retinabench.data.prepare import prepare
from retinabench.data.prepared import Prepared
from retinabench.data.preprocessing.preprocess import Recipe

CHUNK = 256  # images in memory at a time


def draw_benchmark(
    benchmark: FrozenBenchmark, out: Path, *, workers: int | None = None, progress: Progress = QUIET
) -> Prepared:
    """Draw the images of a benchmark into a prepared folder, or find them there, and compare every hash."""
    if benchmark.draw is None:
        hint = f"Prepare its data set: retinabench prepare {benchmark.dataset}"
        raise InputError(f"{benchmark.name} is not drawn", hint=hint)
    drawn = prepare(
        benchmark.dataset, out, recipe=Recipe(benchmark.draw.size), images=benchmark.draw.images,
        seed=benchmark.draw.seed, workers=workers, progress=progress,
    )  # fmt: skip
    check_images(benchmark, drawn)
    return drawn


def image_hashes(benchmark: FrozenBenchmark, data: Prepared) -> dict[str, str]:
    if benchmark.hash_of == "files":
        files = data.files
        return dict(zip(files["image_id"].to_pylist(), files["sha256"].to_pylist(), strict=True))
    chunks = np.split(np.arange(len(data)), range(CHUNK, len(data), CHUNK))
    digests = [hashlib.sha256(image.tobytes()).hexdigest() for rows in chunks for image in data.images(rows)]
    return dict(zip(data.records.image_id.tolist(), digests, strict=True))


def check_images(benchmark: FrozenBenchmark, data: Prepared) -> None:
    truth, hashes = truth_of(benchmark.name), image_hashes(benchmark, data)
    names = truth.image_id.tolist()
    if lacking := [name for name in names if name not in hashes]:
        raise InputError(f"lacks {len(lacking):,} images of {benchmark.name}, such as '{lacking[0]}'", file=data.folder)
    if strangers := len(hashes) - len(names):
        raise InputError(f"holds {strangers:,} images that {benchmark.name} does not have", file=data.folder)
    pairs = zip(names, truth.sha256.tolist(), strict=True)
    differ = [name for name, known in pairs if hashes[name][: 2 * HASH_BYTES] != known]
    if differ or listing_sha256(hashes, hashes.values()) != benchmark.listing_sha256:
        first = f", such as '{differ[0]}'" if differ else ""
        problem = f"{len(differ):,} of {len(names):,} images are not those of {benchmark.name}{first}"
        raise InputError(problem, file=data.folder, hint=_versions_hint(benchmark))
    order = np.argsort(data.records.image_id)
    for column in ("grade", "domain", "split"):
        if not np.array_equal(getattr(data.records, column)[order], getattr(truth, column)):
            raise InputError(f"{column} differs from that of {benchmark.name}", file=data.folder)


def _versions_hint(benchmark: FrozenBenchmark) -> str:
    if not benchmark.made_with:
        return "The published files themselves are needed, not copies that were compressed again."
    made = ", ".join(f"{name} {of}" for name, of in benchmark.made_with.items())
    here = ", ".join(f"{name} {version(name)}" for name in benchmark.made_with)
    return f"They were drawn with {made}; here are {here}. Install those versions."


def drawn_image(benchmark: FrozenBenchmark) -> Callable[[str], NDArray[np.uint8] | None]:
    """Return a function that draws an image of a benchmark by its id; None for an id that it does not have."""
    known = set(truth_of(benchmark.name).image_id.tolist())

    def draw(image_id: str) -> NDArray[np.uint8] | None:
        if image_id not in known or benchmark.draw is None:
            return None
        population, _, index = image_id.rpartition("-")
        recipe = Recipe(benchmark.draw.size)
        return read(f"{benchmark.draw.seed}:{population}:{int(index)}", None, recipe)

    return draw
