"""A bank: samples by concepts with their truth, possibly far larger than memory, and its samples as a prepared folder.

A question is a pair (sample, concept); a cell is (concept, truth). The bank counts its cells once, in chunks of rows, and finds the k-th
sample of a cell through these counts: the truth may be a memory map of millions of regions, and asking copies none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.concepts.banks.masks import region_ids, region_images, region_truth
from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.core.files import atomic_write, remove
from retinabench.core.workspace import Workspace
from retinabench.data.dataset import ConceptImages, Rows, make_records
from retinabench.data.prepare import SHARD, SHARD_BYTES
from retinabench.data.prepared import COMPLETE, FORMAT, Prepared, complete, open_prepared, write_shard
from retinabench.predictions.check import Check

CHUNK = 4096  # rows: counting reads so many at once, finding a sample scans one chunk
UNKNOWN = -1


class Bank:
    """Samples by concepts with their truth.

    Args:
        sample_id: (n,) names of the samples; None numbers them.
        concepts: Names of the c concepts.
        truth: (n, c) int8: 1 present, 0 absent, -1 unknown, which is never asked.
        source: File that the truth is from, for messages.
        patient: (n,) patient of each sample; None where each sample is a patient of its own.

    Attributes:
        samples: Number of samples n.
        ids: (n,) text; None where samples are identified by their number.
        patient: (n,) number of the patient of each sample; None where each sample is a patient of its own.
        cells: (c, 2) int64, samples of each concept with truth 0 and 1.
    """

    def __init__(
        self,
        sample_id: ArrayLike | None,
        concepts: Sequence[str],
        truth: NDArray[np.int8],
        source: str | None = None,
        patient: ArrayLike | None = None,
    ) -> None:
        check = Check(source)
        self.source = source
        self.concepts = tuple(str(name) for name in concepts)
        if not self.concepts or len(set(self.concepts)) < len(self.concepts):
            raise InputError("needs concepts, each once", file=source, hint="Name every column apart.")
        if truth.ndim != 2 or truth.shape[1] != len(self.concepts) or truth.dtype != np.int8:
            needed = f"(n, {len(self.concepts)}) int8"
            raise InputError(f"the truth has shape {truth.shape} and type {truth.dtype}, needed is {needed}")
        self.truth, self.samples = truth, len(truth)
        self.ids: NDArray[np.str_] | None = None
        if sample_id is not None:
            ids = check.text("image_id", check.length("image_id", sample_id, self.samples))
            check.unique("image_id", ids)
            self.ids, _ = check.identified("image_id", ids)
        self.patient: NDArray[np.intp] | None = None
        if patient is not None:
            names, codes = np.unique(check.length("patient_id", patient, self.samples), return_inverse=True)
            self.patient = codes if len(names) < self.samples else None
        # (chunks + 1, c, 2): how many samples of each cell lie before each chunk.
        self._before = np.zeros((-(-self.samples // CHUNK) + 1, len(self.concepts), 2), np.int64)
        for k in range(len(self._before) - 1):
            rows = np.asarray(truth[k * CHUNK : (k + 1) * CHUNK])
            if rows.min() < UNKNOWN or rows.max() > 1:
                row, column = np.argwhere((rows < UNKNOWN) | (rows > 1))[0]
                problem, hint = (f"is {rows[row, column]}, not 0 or 1", "Unknown truth is -1 (empty in a file).")
                raise check.fail(self.concepts[column], k * CHUNK + row, problem, hint)
            self._before[k + 1] = self._before[k] + np.stack([(rows == o).sum(0) for o in (0, 1)], axis=1)
        self.cells: NDArray[np.int64] = self._before[-1]
        if not self.cells.any():
            raise InputError("the bank has no question: no truth is known", file=source)

    def name(self, sample: int) -> str:
        """Return the id of a sample, or its number if it has none."""
        return str(sample) if self.ids is None else str(self.ids[sample])

    def member(self, concept: int, truth: int, rank: int) -> int:
        before = self._before[:, concept, truth]
        chunk = int(before.searchsorted(rank, side="right")) - 1
        rows = self.truth[chunk * CHUNK : (chunk + 1) * CHUNK, concept]
        return chunk * CHUNK + int((rows == truth).nonzero()[0][rank - before[chunk]])

    @cached_property
    def hash(self) -> str:
        """SHA-256 of concepts, truth, ids and patients, by which a transcript is tied to its bank."""
        digest = hashlib.sha256("\n".join((str(self.samples), *self.concepts)).encode())
        for start in range(0, self.samples, CHUNK):
            digest.update(np.ascontiguousarray(self.truth[start : start + CHUNK]).tobytes())
            if self.ids is not None:
                digest.update("\n".join(self.ids[start : start + CHUNK].tolist()).encode())
        if self.patient is not None:
            digest.update(np.ascontiguousarray(self.patient, np.int64).data)
        return digest.hexdigest()


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
        hint = "Leave --grid out."
        raise InputError("the bank says what is in an image, not where: regions cannot be asked about", hint=hint)
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
    shards, truths = ([out / f"{kind}-{k:05}.npy" for k in range(len(starts))] for kind in ("images", "truth"))
    with progress.track("Images", len(images), unit="images") as advance:
        for shard, file, start in zip(shards, truths, starts, strict=True):
            rows = range(start, min(start + step, len(images)))
            if not file.is_file():
                pixels, truth = zip(*(_samples(images, row, size, grid) for row in rows), strict=True)
                write_shard(shard, np.concatenate(pixels))
                _save(file, np.concatenate(truth))
            advance(len(rows))
    names = images.sample_id.tolist()
    ids = names if grid == 1 else [region for name in names for region in region_ids(name, grid)]
    grades, patients = np.zeros(len(ids), np.int8), np.repeat(images.patient_id, grid**2)
    _save(out / "truth.npy", np.concatenate([np.load(check(file), allow_pickle=False) for file in truths]))
    records = make_records(ids, grades, source=ids, patient_id=patients, split="test")
    complete(out, records, shards, settings, name="concepts", size=size, concepts=tuple(images.concepts))
    for file in truths:
        remove(file)


def _samples(images: ConceptImages, row: int, size: int, grid: int) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Return the samples (grid², size, size, 3) of an image and their truth (grid², C)."""
    image = images.image(row, grid * size)
    if grid == 1:
        return image[None], images.truth[row][None]
    assert images.masks is not None
    return region_images(image, grid), region_truth(images.masks(row), grid).astype(np.int8)


def _save(file: Path, truth: NDArray[np.int8]) -> None:
    with atomic_write(file, checked=True) as handle:
        np.save(handle, truth, allow_pickle=False)
