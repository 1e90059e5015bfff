"""The samples of a bank as a prepared folder: images, or regions of images, memory-mapped, with their truth.

The folder is one of `data.prepared`, so that the loader of the training loop and the cache of features read it, and memory
never holds more than one shard. A killed preparation continues with the first shard that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.lesion_images import region_ids, region_images, region_truth
from retinabench.core.errors import InputError
from retinabench.core.files import atomic_write, check, remove, write_bytes, write_json
from retinabench.core.progress import QUIET, Progress
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import ConceptImages, Rows
from retinabench.data.ingest.shards import SHARD, SHARD_BYTES
from retinabench.data.prepared.folder import Prepared, open_prepared
from retinabench.data.prepared.manifest import COMPLETE, FORMAT, Manifest, PreparedSettings
from retinabench.data.prepared.shard_files import fingerprint, write_shard
from retinabench.data.records import Records


def prepare_samples(
    images: ConceptImages,
    out: Path,
    *,
    size: int,
    grid: int = 1,
    source: Mapping[str, object],
    progress: Progress = QUIET,
) -> Prepared:
    """Write all samples of a bank into a folder, or continue there; return it opened."""
    if grid > 1 and images.masks is None:
        raise InputError(
            "the bank says what is in an image, not where: regions cannot be asked about",
            hint="Leave --grid out.",
        )
    workspace = Workspace(out, "set of samples", "prepare.json")
    settings = {"dataset": "concepts", "size": size, "grid": grid, "format": FORMAT, **source}
    with workspace.lock(wait=True, say=progress.say):
        workspace.begin(settings, empty=True, hint="Choose another --out, or delete the folder.")
        if not (out / COMPLETE).is_file():
            _write(images, out, size, grid, settings, progress)
    return open_prepared(out)


def sample_rows(rows: Rows, grid: int) -> Rows:
    """Return the rows of the samples of some images: each has grid * grid of them."""
    return (rows[:, None] * grid**2 + np.arange(grid**2)).ravel()


def _write(
    images: ConceptImages, out: Path, size: int, grid: int, settings: Mapping[str, object], progress: Progress
) -> None:
    step = max(1, min(SHARD, SHARD_BYTES // (3 * size**2)) // grid**2)
    starts = range(0, len(images), step)
    shards = [out / f"images-{number:05}.npy" for number in range(len(starts))]
    truths = [out / f"truth-{number:05}.npy" for number in range(len(starts))]
    with progress.track("Images", len(images), unit="images") as advance:
        for shard, file, start in zip(shards, truths, starts, strict=True):
            rows = range(start, min(start + step, len(images)))
            if not file.is_file():
                pixels, truth = zip(*(_samples(images, row, size, grid) for row in rows), strict=True)
                write_shard(shard, np.concatenate(pixels))
                _save(file, np.concatenate(truth))
            advance(len(rows))
    records = _records(images, grid)
    _save(out / "truth.npy", np.concatenate([np.load(check(file), allow_pickle=False) for file in truths]))
    write_bytes(out / "records.parquet", records.to_parquet(), checked=True)
    manifest = Manifest(
        name="concepts",
        size=size,
        images=len(records),
        concepts=tuple(images.concepts),
        fingerprint=fingerprint(records, shards),
        shards=tuple(shard.name for shard in shards),
        settings=PreparedSettings.from_json(settings),
        version=__version__,
    )
    write_json(out / COMPLETE, manifest.to_dict(), checked=True)
    for file in truths:
        remove(file)


def _samples(
    images: ConceptImages, row: int, size: int, grid: int
) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Return the samples (grid², size, size, 3) of an image and their truth (grid², C)."""
    image = images.image(row, grid * size)
    if grid == 1:
        return image[None], images.truth[row][None]
    assert images.masks is not None
    return region_images(image, grid), region_truth(images.masks(row), grid).astype(np.int8)


def _records(images: ConceptImages, grid: int) -> Records:
    names = [str(name) for name in images.sample_id]
    ids = names if grid == 1 else [region for name in names for region in region_ids(name, grid)]
    n = len(ids)
    return Records(
        image_id=np.array(ids),
        patient_id=np.repeat(images.patient_id, grid**2),
        eye=np.full(n, ""),
        grade=np.zeros(n, np.int8),
        domain=np.full(n, "in_domain"),
        split=np.full(n, "test"),
        source=np.array(ids),
        p_referable=np.full(n, np.nan),
    )


def _save(file: Path, truth: NDArray[np.int8]) -> None:
    with atomic_write(file, checked=True) as handle:
        np.save(handle, truth, allow_pickle=False)
